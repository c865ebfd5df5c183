// SPDX-License-Identifier: Apache-2.0
// Fills a Trace; finish() finds parents, causes and runs.
#include "profile/trace.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/huge_pages.h"
#include "profile/trace_counts.h"

namespace paoding::profile {

std::string_view to_string(SpanKind kind) {
  switch (kind) {
    case SpanKind::range: return "range";
    case SpanKind::run: return "run";
    case SpanKind::compile: return "compile";
    case SpanKind::op: return "op";
    case SpanKind::infer_shape: return "infer_shape";
    case SpanKind::prepare: return "prepare_data";
    case SpanKind::compute: return "compute";
    case SpanKind::feed: return "feed";
    case SpanKind::fetch: return "fetch";
    case SpanKind::memcpy: return "memcpy";
    case SpanKind::memset: return "memset";
    case SpanKind::launch: return "launch";
    case SpanKind::wait: return "wait";
    case SpanKind::kernel: return "kernel";
    case SpanKind::work: return "work";
    case SpanKind::host: return "host";
    case SpanKind::recording: return "recording";
    case SpanKind::replay: return "replay";
    case SpanKind::instant: return "instant";
    case SpanKind::step: return "step";
    case SpanKind::frame: return "frame";
  }
  return "?";
}

std::string_view to_string(Copy copy) {
  switch (copy) {
    case Copy::none: return "";
    case Copy::host_to_device: return "CPU->GPU";
    case Copy::device_to_host: return "GPU->CPU";
    case Copy::same_device:
    case Copy::device_to_device: return "GPU->GPU";
    case Copy::host_to_host: return "CPU->CPU";
  }
  return "?";
}

Trace::Trace() { intern(""); }

StringId Trace::intern(std::string_view text) {
  if (auto found = string_ids_.find(text); found != string_ids_.end()) return found->second;
  const auto id = static_cast<StringId>(strings_.size());
  strings_.emplace_back(text);
  string_ids_.emplace(strings_.back(), id);
  return id;
}

TrackId Trace::add_track(TrackKind kind, std::string_view name, int device, ProcessId process) {
  PD_ASSERT(process == 0 || process < processes_.size(), "a track names a process that is not there");
  tracks_.push_back({kind, intern(name), device, process});
  return static_cast<TrackId>(tracks_.size() - 1);
}

CounterId Trace::add_counter(int device, std::string_view name, ProcessId process) {
  PD_ASSERT(process == 0 || process < processes_.size(), "a counter names a process that is not there");
  const StringId id = intern(name);
  const auto same = [&](const Counter& counter) {
    return counter.device == device && counter.name == id && counter.process == process;
  };
  const auto found = std::ranges::find_if(counters_, same);
  const auto counter = static_cast<CounterId>(found - counters_.begin());
  if (found == counters_.end()) counters_.push_back({device, id, process});
  return counter;
}

void Trace::add_sample(const Sample& sample) {
  PD_ASSERT(sample.counter < counters_.size(), "a sample names a counter that is not there");
  samples_.push_back(sample);
}

// What a counter was before the window it is at its start.
void Trace::sort_samples() {
  std::ranges::stable_sort(samples_, {}, [](const Sample& s) { return std::pair(s.counter, s.ns); });
  std::erase_if(samples_, [&](const Sample& sample) { return sample.ns > window_end_; });
  for (Sample& sample : samples_) sample.ns = std::max(sample.ns, window_start_);
  std::vector<Sample> kept;
  for (const Sample& sample : samples_) {
    const bool is_same = !kept.empty() && kept.back().counter == sample.counter;
    if (is_same && kept.back().value == sample.value) continue;
    if (is_same && kept.back().ns == sample.ns) kept.pop_back();
    const bool is_back = !kept.empty() && kept.back().counter == sample.counter && kept.back().value == sample.value;
    if (!is_back) kept.push_back(sample);
  }
  samples_ = std::move(kept);
}

SiteId Trace::add_site(const SiteInfo& info) {
  Site site;
  site.name = intern(info.name);
  site.op = intern(info.op);
  site.scope = intern(info.scope);
  site.instance = intern(info.instance);
  site.kernel = intern(info.kernel);
  site.kind = info.kind;
  site.copy = info.copy;
  site.async = info.async;
  site.bytes = info.bytes;
  site.flops = std::isfinite(info.flops) ? info.flops : 0;  // a broken file may have anything
  site.unit = info.unit;
  site.shapes = intern(info.shapes);
  site.launch = info.launch;
  std::string key = fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}", site.name, site.op, site.scope, site.instance,
                                site.kernel, static_cast<int>(site.kind), static_cast<int>(site.copy), site.async,
                                site.bytes, site.flops, static_cast<int>(site.unit), site.shapes);
  if (const LaunchShape& launch = info.launch; launch.is_known()) {
    key += fmt::format(",{}x{}x{},{},{},{}", launch.grid[0], launch.grid[1], launch.grid[2], launch.threads,
                       launch.registers, launch.shared_bytes);
  }
  for (const auto& member : info.members) key += fmt::format(",{}:{}", intern(member.op), member.bytes);
  const auto [found, is_new] = site_ids_.try_emplace(std::move(key), static_cast<SiteId>(sites_.size()));
  if (!is_new) return found->second;
  site.members_begin = static_cast<std::uint32_t>(members_.size());
  for (const auto& member : info.members) members_.push_back({intern(member.op), member.bytes});
  site.members_end = static_cast<std::uint32_t>(members_.size());
  sites_.push_back(site);
  return found->second;
}

void Trace::set_window(std::int64_t start_ns, std::int64_t end_ns) {
  PD_ASSERT(size() == 0 && start_ns <= end_ns, "a window is set before spans are added, and does not end first");
  has_window_ = true;
  window_start_ = start_ns;
  window_end_ = end_ns;
}

void Trace::reserve(std::size_t spans) {
  reserve_large(start_, spans), reserve_large(duration_, spans);
  reserve_large(track_, spans), reserve_large(site_, spans);
  reserve_large(run_, spans), reserve_large(correlation_, spans);
  reserve_large(parent_, spans), reserve_large(cause_, spans);
}

SpanId Trace::add(const Span& whole) {
  PD_ASSERT(whole.track < tracks_.size() && whole.site < sites_.size(),
            "a span names a track or site that is not there");
  PD_ASSERT(whole.duration_ns >= 0, "a span ends before it starts");
  Span span = whole;
  if (sites_[span.site].kind == SpanKind::instant) span.duration_ns = 0;
  if (!std::isfinite(span.flops)) span.flops = -1;
  Cut cut;
  if (has_window_) {
    const std::int64_t start = span.start_ns, end = start + span.duration_ns;
    cut = {start<window_start_, end> window_end_};
    if (end < window_start_ || start > window_end_) {
      ++outside_;
      return kNone;
    }
    span.start_ns = std::max(start, window_start_);
    span.duration_ns = std::min(end, window_end_) - span.start_ns;
  }
  const auto id = static_cast<SpanId>(size());
  if ((cut.at_start || cut.at_end) && cut_.empty()) cut_.assign(size(), {});
  if (!cut_.empty() || cut.at_start || cut.at_end) cut_.push_back(cut);
  if (span.bytes >= 0 && bytes_.empty()) bytes_.assign(size(), -1);
  if (span.flops >= 0 && flops_.empty()) flops_.assign(size(), -1);
  start_.push_back(span.start_ns);
  duration_.push_back(span.duration_ns);
  track_.push_back(span.track);
  site_.push_back(span.site);
  run_.push_back(span.run);
  correlation_.push_back(span.correlation);
  parent_.push_back(span.parent);
  cause_.push_back(span.cause);
  if (!bytes_.empty() || span.bytes >= 0) bytes_.push_back(span.bytes);
  if (!flops_.empty() || span.flops >= 0) flops_.push_back(span.flops);
  return id;
}

void Trace::set_cut(SpanId i, Cut cut) {
  if (cut_.empty()) cut_.assign(size(), {});
  cut_[i] = cut;
}

Span Trace::span(SpanId i) const {
  return {.track = track_[i],
          .site = site_[i],
          .start_ns = start_[i],
          .duration_ns = duration_[i],
          .run = run_[i],
          .correlation = correlation_[i],
          .parent = parent_[i],
          .cause = cause_[i],
          .bytes = bytes_.empty() ? -1 : bytes_[i],
          .flops = flops_.empty() ? -1 : flops_[i]};
}

SiteInfo Trace::site_info(SiteId i) const {
  const Site& site = sites_[i];
  const auto text_of = [&](StringId id) { return std::string(text(id)); };
  SiteInfo info{.name = text_of(site.name),
                .op = text_of(site.op),
                .scope = text_of(site.scope),
                .instance = text_of(site.instance),
                .kernel = text_of(site.kernel),
                .kind = site.kind,
                .copy = site.copy,
                .async = site.async,
                .bytes = site.bytes,
                .flops = site.flops,
                .unit = site.unit,
                .shapes = text_of(site.shapes),
                .launch = site.launch};
  for (auto m = site.members_begin; m < site.members_end; ++m) {
    info.members.push_back({text_of(members_[m].op), members_[m].bytes});
  }
  return info;
}

void Trace::add_note(std::string text, std::uint64_t count, Note::Kind kind) {
  if (kind == Note::Kind::span_cost) {
    span_cost_ns_ = count;
  } else {
    notes_.push_back({std::move(text), count, kind});
  }
}

Limit Trace::common_limit() const {
  if (limits_.empty()) return {};
  Limit common = limits_.front();
  for (const Limit& limit : limits_) {
    if (limit.bytes_per_ns != common.bytes_per_ns) common.bytes_per_ns = 0;
    for (std::size_t unit = 0; unit < kUnits; ++unit) {
      if (limit.flops_per_ns[unit] != common.flops_per_ns[unit]) common.flops_per_ns[unit] = 0;
    }
  }
  return common;
}

std::int64_t Trace::bytes(SpanId i) const { return bytes_.empty() || bytes_[i] < 0 ? site(i).bytes : bytes_[i]; }

double Trace::flops(SpanId i) const { return flops_.empty() || flops_[i] < 0 ? site(i).flops : flops_[i]; }

std::string_view Trace::name(SpanId i) const {
  const Site& s = site(i);
  return text(s.name != 0 ? s.name : s.op);
}

void Trace::finish(Links links) {
  if (links == Links::to_find) {
    sort_spans();
    link_parents();
    link_causes();
    link_feeds();
  }
  sort_columns();
  if (outside_ > 0) {
    add_note("spans outside of the recording, left out", std::exchange(outside_, 0), Note::Kind::outside);
  }
  runs_.clear();
  first_ns_ = last_ns_ = size() == 0 ? 0 : start_[0];
  for (SpanId i = 0; i < size(); ++i) {
    if (kind(i) == SpanKind::run && !is_lost_time(*this, i)) runs_.push_back(i);
    first_ns_ = std::min(first_ns_, start(i));
    last_ns_ = std::max(last_ns_, end(i));
  }
  if (!has_window_) {
    window_start_ = first_ns_;
    window_end_ = last_ns_;
    for (const Sample& sample : samples_) {
      const bool is_first = size() == 0 && &sample == samples_.data();
      window_start_ = is_first ? sample.ns : std::min(window_start_, sample.ns);
      window_end_ = is_first ? sample.ns : std::max(window_end_, sample.ns);
    }
  }
  sort_samples();
  std::stable_sort(runs_.begin(), runs_.end(), [&](SpanId a, SpanId b) { return start(a) < start(b); });
}

bool Trace::has_sound_links() const {
  for (SpanId i = 0; i < size(); ++i) {
    if (i > 0 && comes_before(i, i - 1)) return false;
    if (parent_[i] != kNone && (parent_[i] >= i || track_[parent_[i]] != track_[i])) return false;
    if (cause_[i] != kNone && (cause_[i] >= size() || on_gpu(cause_[i]))) return false;
  }
  return true;
}

void Trace::forget_links() {
  std::fill(parent_.begin(), parent_.end(), kNone);
  std::fill(cause_.begin(), cause_.end(), kNone);
  flows_.clear();
}

}  // namespace paoding::profile
