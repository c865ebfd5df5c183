// SPDX-License-Identifier: Apache-2.0
#include "trace/xplane_plane.h"

#include <algorithm>

#include "base/one_line.h"

namespace paoding::trace {
namespace {

struct FactName {
  std::string_view name;
  XFact fact;
};

constexpr FactName kFactNames[] = {
    {"correlation_id", XFact::correlation},
    {"hlo_op", XFact::hlo_op},
    {"hlo_module", XFact::hlo_module},
    {"program_id", XFact::program},
    {"name", XFact::op_name},
    {"tf_op", XFact::tf_op},
    {"kernel_details", XFact::kernel_details},
    {"memcpy_details", XFact::memcpy_details},
    {"cuda_graph_id", XFact::graph},
    {"cuda_graph_node_id", XFact::graph_node},
    {"step_num", XFact::step},
    {"allocator_name", XFact::allocator},
    {"bytes_allocated", XFact::bytes_allocated},
    {"flops", XFact::flops},
    {"bytes_accessed", XFact::bytes_accessed},
};

XFact fact_of(std::string_view name) {
  const auto* found = std::ranges::find(kFactNames, name, &FactName::name);
  return found == std::end(kFactNames) ? XFact::none : found->fact;
}

// An entry of a map: its key and its message.
std::pair<std::uint64_t, std::string_view> entry_of(std::string_view message, bool* is_whole) {
  std::pair<std::uint64_t, std::string_view> entry;
  WireReader all(message);
  while (all.next()) {
    if (all.field() == 1) entry.first = all.number();
    if (all.field() == 2) entry.second = all.bytes();
  }
  *is_whole = !all.is_broken();
  return entry;
}

}  // namespace

XPlane::XPlane(std::string_view message) {
  WireReader all(message);
  std::vector<std::string_view> stats;
  while (all.next()) {
    if (all.type() != WireType::bytes) continue;
    switch (all.field()) {
      case 2: name_ = all.bytes(); break;
      case 3: add_line(all.bytes()); break;
      case 4: add_event_metadata(all.bytes()); break;
      case 5: add_stat_metadata(all.bytes()); break;
      case 6: stats.push_back(all.bytes()); break;
      default: break;
    }
  }
  is_broken_ |= all.is_broken();
  for (const std::string_view one : stats) stats_.push_back(stat_of(one));
}

void XPlane::add_line(std::string_view message) {
  XLine line{.message = message};
  WireReader all(message);
  while (all.next()) {
    switch (all.field()) {
      case 1: line.id = all.number(); break;
      case 2: line.name = all.bytes(); break;
      case 3: line.timestamp_ns = all.signed_number(); break;
      case 4: ++line.events; break;
      case 11: line.shown = all.bytes(); break;
      default: break;
    }
  }
  lines_.push_back(line);
}

void XPlane::add_event_metadata(std::string_view entry) {
  bool is_whole = false;
  const auto [id, message] = entry_of(entry, &is_whole);
  is_broken_ |= !is_whole;
  EventMetadata own{.message = message, .is_known = true};
  for (WireReader all(message); all.next();) {
    if (all.field() == 2) own.name = all.bytes();
    if (all.field() == 4) own.shown = all.bytes();
  }
  event_ids_.push_back(id);
  if (id < kSmall) {
    if (id >= small_events_.size()) small_events_.resize(std::max<std::size_t>(id + 1, small_events_.size() * 2));
    small_events_[id] = own;
  } else {
    events_[id] = own;
  }
}

void XPlane::add_stat_metadata(std::string_view entry) {
  bool is_whole = false;
  const auto [id, message] = entry_of(entry, &is_whole);
  is_broken_ |= !is_whole;
  std::string_view name;
  for (WireReader all(message); all.next();) {
    if (all.field() == 2) name = all.bytes();
  }
  stat_names_[id] = name;
  const XFact fact = fact_of(name);
  if (fact == XFact::none) return;
  if (id < kSmall) {
    if (id >= roles_.size()) roles_.resize(id + 1, XFact::none);
    roles_[id] = fact;
  } else {
    more_roles_[id] = fact;
  }
}

const XStat* XPlane::stat(std::string_view name) const {
  const auto found = std::ranges::find(stats_, name, &XStat::name);
  return found == stats_.end() ? nullptr : &*found;
}

const XPlane::EventMetadata& XPlane::metadata(std::uint64_t id) const {
  static const EventMetadata kUnknown;
  if (id < small_events_.size()) return small_events_[id];
  const auto found = events_.find(id);
  return found == events_.end() ? kUnknown : found->second;
}

std::vector<XStat> XPlane::stats_of(const EventMetadata& metadata) const {
  std::vector<XStat> stats;
  for (WireReader all(metadata.message); all.next();) {
    if (all.field() == 5 && all.type() == WireType::bytes) stats.push_back(stat_of(all.bytes()));
  }
  return stats;
}

std::string_view XPlane::stat_name(std::uint64_t id) const {
  const auto found = stat_names_.find(id);
  return found == stat_names_.end() ? std::string_view() : found->second;
}

XStat XPlane::stat_of(std::string_view message) const {
  XStat stat;
  for (WireReader all(message); all.next();) {
    switch (all.field()) {
      case 1: stat.name = stat_name(all.number()); break;
      case 2: stat.real = all.real(); break;
      case 3:
      case 4: stat.number = all.number(); break;
      case 5:
      case 6:
        stat.text = all.bytes();
        stat.is_text = true;
        break;
      case 7:
        stat.text = stat_name(all.number());
        stat.is_text = true;
        break;
      default: break;
    }
  }
  return stat;
}

std::string_view XPlane::text(XText id) const {
  if (id == 0) return {};
  if ((id & kOwnText) == 0) return stat_name(id - 1);
  const std::uint64_t own = id & ~kOwnText;  // or a number that the file has in a text's place
  return own < own_texts_.size() ? own_texts_[own] : std::string_view();
}

XText XPlane::own_text(std::string_view text) {
  const auto [found, is_new] = own_text_ids_.try_emplace(text, kOwnText | own_texts_.size());
  if (is_new) own_texts_.push_back(text);
  return found->second;
}

bool XPlane::read(std::string_view message, XEvent* event) {
  event->metadata = 0;
  event->offset_ps = event->duration_ps = 0;
  event->has_duration = false;
  event->has = 0;
  WireReader all(message);
  while (all.next()) {
    switch (all.field()) {
      case 1: event->metadata = all.number(); break;
      case 2: event->offset_ps = all.signed_number(); break;
      case 3:
        event->duration_ps = all.signed_number();
        event->has_duration = true;
        break;
      case 4:
        if (!read_stat(all.bytes(), event)) return false;
        break;
      default: break;
    }
  }
  return !all.is_broken();
}

bool XPlane::read_stat(std::string_view message, XEvent* event) {
  WireReader all(message);
  if (!all.next()) return !all.is_broken();
  if (all.field() != 1) return true;
  const XFact fact = role(all.number());
  if (fact == XFact::none) return true;
  std::uint64_t value = 0;
  while (all.next()) {
    switch (all.field()) {
      case 2: value = all.real() > 0 ? static_cast<std::uint64_t>(std::min(all.real(), 1e18)) : 0; break;
      case 3:
      case 4: value = all.number(); break;
      case 5: value = own_text(all.bytes()); break;
      case 7: value = all.number() < (kOwnText >> 1) ? all.number() + 1 : 0; break;
      default: break;
    }
  }
  event->facts[static_cast<std::size_t>(fact)] = value;
  event->has |= std::uint32_t{1} << static_cast<unsigned>(fact);
  return !all.is_broken();
}

std::optional<profile::Limit> limit_of(const XPlane& plane, std::int64_t device) {
  constexpr std::int64_t kMostDevices = 4096;
  constexpr std::uint64_t kMostRate = 1'000'000'000'000'000, kMostCores = 1 << 20;
  constexpr std::size_t kLongestName = 100;
  if (device < 0 || device > kMostDevices || plane.lines().empty()) return {};
  const auto number = [&](std::string_view name, std::uint64_t most) {
    const XStat* stat = plane.stat(name);
    return stat != nullptr && !stat->is_text && stat->number <= most ? stat->number : 0;
  };
  profile::Limit limit{.device = static_cast<std::int32_t>(device)};
  limit.bytes_per_ns = static_cast<double>(number("memory_bandwidth", kMostRate)) / 1e9;
  limit.sms = static_cast<std::int32_t>(number("core_count", kMostCores));
  const XStat* name = plane.stat("gpu_device_name");
  if (name != nullptr && name->is_text) limit.name = one_line(name->text.substr(0, kLongestName));
  if (limit.bytes_per_ns <= 0 && limit.name.empty()) return {};
  return limit;
}

}  // namespace paoding::trace
