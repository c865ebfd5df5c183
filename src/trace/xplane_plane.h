// SPDX-License-Identifier: Apache-2.0
// One plane of an XSpace: what its numbers stand for, and its events with the facts that are looked for. The numbers of
// fields are those of tsl/profiler/protobuf/xplane.proto.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "profile/trace.h"
#include "trace/wire.h"

namespace paoding::trace {

/// Facts about events that are looked for.
enum class XFact : std::uint8_t {
  none,
  correlation,
  hlo_op,
  hlo_module,
  program,
  op_name,  // "name": the path that the user's program gives an op
  tf_op,
  kernel_details,
  memcpy_details,
  graph,
  graph_node,
  step,
  allocator,
  bytes_allocated,
  flops,
  bytes_accessed,
};
inline constexpr std::size_t kXFacts = static_cast<std::size_t>(XFact::bytes_accessed) + 1;

/// A number that stands for a text of the plane; 0 is none.
using XText = std::uint64_t;

struct XEvent {
  std::uint64_t metadata = 0;
  std::int64_t offset_ps = 0, duration_ps = 0;
  bool has_duration = false;                      // false: a moment
  std::array<std::uint64_t, kXFacts> facts = {};  // numbers, or XText
  std::uint32_t has = 0;                          // a bit for each that the event has

  bool has_fact(XFact fact) const { return (has >> static_cast<unsigned>(fact) & 1) != 0; }
  std::uint64_t fact(XFact fact) const { return facts[static_cast<std::size_t>(fact)]; }
};

struct XLine {
  std::uint64_t id = 0;
  std::string_view name = {}, shown = {};
  std::int64_t timestamp_ns = 0;
  std::string_view message = {};
  std::size_t events = 0;
  /// As it is called: what is to be shown, or its name.
  std::string_view title() const { return shown.empty() ? name : shown; }
};

struct XStat {
  std::string_view name;
  std::uint64_t number = 0;
  double real = 0;
  std::string_view text;
  bool is_text = false;
};

class XPlane {
 public:
  explicit XPlane(std::string_view message);
  XPlane(XPlane&&) = default;
  XPlane(const XPlane&) = delete;

  std::string_view name() const { return name_; }
  const std::vector<XLine>& lines() const { return lines_; }
  const std::vector<XStat>& stats() const { return stats_; }
  const XStat* stat(std::string_view name) const;
  bool is_broken() const { return is_broken_; }

  struct EventMetadata {
    std::string_view name = {}, shown = {}, message = {};
    bool is_known = false;
    std::string_view title() const { return shown.empty() ? name : shown; }
  };
  const EventMetadata& metadata(std::uint64_t id) const;
  const std::vector<std::uint64_t>& metadata_ids() const { return event_ids_; }
  std::vector<XStat> stats_of(const EventMetadata& metadata) const;
  std::string_view text(XText id) const;

  /// Calls `take` with every event of the line; returns how many were broken.
  template <class Take>
  std::uint64_t for_each_event(const XLine& line, Take&& take) {
    std::uint64_t broken = 0;
    WireReader all(line.message);
    XEvent event;
    while (all.next()) {
      if (all.field() != 4 || all.type() != WireType::bytes) continue;
      if (read(all.bytes(), &event)) {
        take(event);
      } else {
        broken += 1;
      }
    }
    return broken + (all.is_broken() ? 1 : 0);
  }

 private:
  static constexpr std::uint64_t kOwnText = std::uint64_t{1} << 63;  // text of an event itself, not of the plane's list
  static constexpr std::uint64_t kSmall = 1 << 16;                   // ids below have a place in a vector

  void add_line(std::string_view message);
  void add_event_metadata(std::string_view entry);
  void add_stat_metadata(std::string_view entry);
  XStat stat_of(std::string_view message) const;
  std::string_view stat_name(std::uint64_t id) const;
  XFact role(std::uint64_t id) const {
    if (id < roles_.size()) return roles_[id];
    const auto found = more_roles_.find(id);
    return found == more_roles_.end() ? XFact::none : found->second;
  }
  XText own_text(std::string_view text);
  bool read(std::string_view message, XEvent* event);
  bool read_stat(std::string_view message, XEvent* event);

  std::string_view name_;
  std::vector<XLine> lines_;
  std::vector<XStat> stats_;
  std::vector<EventMetadata> small_events_;
  std::unordered_map<std::uint64_t, EventMetadata> events_;
  std::vector<std::uint64_t> event_ids_;
  std::unordered_map<std::uint64_t, std::string_view> stat_names_;
  std::vector<XFact> roles_;
  std::unordered_map<std::uint64_t, XFact> more_roles_;
  std::vector<std::string_view> own_texts_;
  std::unordered_map<std::string_view, XText> own_text_ids_;
  bool is_broken_ = false;
};

/// The GPU of a device's plane, as far as its stats describe one.
std::optional<profile::Limit> limit_of(const XPlane& plane, std::int64_t device);

}  // namespace paoding::trace
