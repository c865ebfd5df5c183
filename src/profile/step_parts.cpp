// SPDX-License-Identifier: Apache-2.0
#include "profile/step_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "profile/budget.h"
#include "profile/intervals.h"
#include "profile/report.h"
#include "profile/step_times.h"
#include "profile/trace_counts.h"

namespace paoding::profile {

namespace {

// An interval of time and its use.
struct Claim {
  std::int64_t start, end;
  SpanId span;    // kNone: nobody's
  HostUse use;    // of a thread
  bool is_begin;  // of the span
};

bool is_copy_span(SpanKind kind) { return kind == SpanKind::memcpy || kind == SpanKind::memset; }

class PartsOfSteps {
 public:
  // `steps`: in order, without overlaps.
  PartsOfSteps(const Trace& trace, TrackId track, std::vector<Interval> steps)
      : trace_(trace), track_(track), count_(static_cast<double>(steps.size())), free_(std::move(steps)) {
    for (const ReplayPart& part : trace.parts()) {
      if (part.site != kNone && part.ns > 0) parts_of_replay_[part.replay].push_back(part);
    }
    const auto& columns = trace.columns();
    const auto is_shapes = [&](const ArgumentColumn& c) {
      return c.type == ArgumentType::text && trace.text(c.name) == "shapes";
    };
    const auto found = std::ranges::find_if(columns, is_shapes);
    if (found != columns.end()) shapes_ = &*found;
  }

  std::vector<StepPart> find() {
    take(on_gpu(false)), take(on_gpu(true)), take(on_thread());
    for (StepPart& part : made_) part.ns /= count_, part.calls /= count_;
    return std::move(made_);
  }

 private:
  using PartId = std::uint32_t;

  // Without overlaps: the span that began first goes on to its end.
  std::vector<Claim> on_gpu(bool copies) const {
    const ProcessId process = trace_.tracks()[track_].process;
    std::vector<SpanId> spans;
    for (SpanId i = 0; i < trace_.size(); ++i) {
      const SpanKind kind = trace_.kind(i);
      const bool is_work = kind == SpanKind::kernel || kind == SpanKind::replay || is_copy_span(kind);
      if (is_work && trace_.on_gpu(i) && trace_.track(i).process == process && is_copy_span(kind) == copies) {
        spans.push_back(i);
      }
    }
    std::ranges::stable_sort(spans, {}, [&](SpanId i) { return trace_.start(i); });
    std::vector<Claim> claims;
    std::int64_t until = trace_.window_start();
    for (const SpanId i : spans) {
      const std::int64_t start = std::max(trace_.start(i), until);
      if (trace_.end(i) <= start) continue;
      until = trace_.end(i);
      claims.push_back({start, until, i, HostUse::ops, true});
    }
    return claims;
  }

  std::vector<Claim> on_thread() const {
    std::vector<Claim> claims;
    const std::vector<ThreadTime> threads = thread_times(trace_);
    for (const UseSegment& s : threads[track_].segments) {
      claims.push_back({s.start, s.end, s.span, s.use, s.span != kNone && s.start == trace_.start(s.span)});
    }
    return claims;
  }

  // Gives the time that is still free to these; both are in order.
  void take(const std::vector<Claim>& claims) {
    std::vector<Interval> left;
    std::size_t at = 0;
    for (Interval free : free_) {
      while (at < claims.size() && claims[at].end <= free.start) ++at;
      for (std::size_t c = at; c < claims.size() && claims[c].start < free.end; ++c) {
        const std::int64_t start = std::max(claims[c].start, free.start), end = std::min(claims[c].end, free.end);
        if (start > free.start) left.push_back({free.start, start});
        add(claims[c], end - start, start == claims[c].start && claims[c].is_begin);
        free.start = end;
      }
      if (free.start < free.end) left.push_back(free);
    }
    free_ = std::move(left);
  }

  void add(const Claim& claim, std::int64_t ns, bool is_begin) {
    const auto time = static_cast<double>(ns);
    if (claim.span != kNone && trace_.kind(claim.span) == SpanKind::replay) {
      const auto found = parts_of_replay_.find(trace_.site_id(claim.span));
      if (found != parts_of_replay_.end()) return add_replay(found->second, time, is_begin);
    }
    StepPart& part = made_[claim.span == kNone ? part_of_use(claim.use) : part_of(claim.span, claim.use)];
    part.ns += time, part.calls += is_begin;
  }

  // Divides the time in the proportions of replays that were stamped in full.
  void add_replay(const std::vector<ReplayPart>& parts, double ns, bool is_begin) {
    double sum = 0, replays = 0;
    for (const ReplayPart& part : parts) sum += static_cast<double>(part.ns);
    for (const ReplayPart& whole : trace_.parts()) {
      if (whole.replay == parts.front().replay && whole.site == kNone) replays += static_cast<double>(whole.calls);
    }
    for (const ReplayPart& part : parts) {
      StepPart& to = made_[part_of_site(part.site, kNone)];
      to.ns += ns * static_cast<double>(part.ns) / sum;
      if (is_begin && replays > 0) to.calls += static_cast<double>(part.calls) / replays;
    }
  }

  static constexpr int kFurthest = 256;  // spans within each other

  // The cause of a span: for a GPU's the launch, else the span around it.
  SpanId before(SpanId i) const {
    return trace_.on_gpu(i) && trace_.cause(i) != kNone ? trace_.cause(i) : trace_.parent(i);
  }

  // The op of a span: itself, or a span around it, or its cause. The phases of an op belong to the whole op.
  SpanId op_span(SpanId i) const {
    for (int further = 0; i != kNone && further < kFurthest; ++further, i = before(i)) {
      if (trace_.site(i).op == 0) continue;
      const SpanId around = trace_.on_gpu(i) || trace_.kind(i) == SpanKind::op ? kNone : trace_.parent(i);
      if (around == kNone || trace_.site(around).op != trace_.site(i).op) return i;
    }
    return kNone;
  }

  std::string_view shape_of(SpanId op) const {
    if (shapes_ == nullptr) return "";
    for (int further = 0; op != kNone && further < kFurthest; ++further, op = before(op)) {
      const auto found = std::lower_bound(shapes_->of.begin(), shapes_->of.end(), op);
      if (found != shapes_->of.end() && *found == op) {
        return trace_.text(shapes_->text(static_cast<std::size_t>(found - shapes_->of.begin())));
      }
      if (!trace_.on_gpu(op) && trace_.kind(op) == SpanKind::op) return "";
    }
    return "";
  }

  PartId part_of(SpanId span, HostUse use) {
    const bool is_hosts = !trace_.on_gpu(span);
    if (is_hosts && (use == HostUse::recording || use == HostUse::unseen)) return part_of_use(use);
    const SpanId op = op_span(span);
    if (op != kNone) {
      const PartId part = part_of_site(trace_.site_id(op), op);
      if (!is_hosts && op != span) add_kernel(made_[part], trace_.name(span));
      return part;
    }
    const SpanKind kind = trace_.kind(span);
    if (!is_hosts) return part_of_site(trace_.site_id(span), kNone);
    const bool has_name = kind == SpanKind::range || kind == SpanKind::host;
    return has_name && !trace_.name(span).empty() ? part_of_name(fmt::format("({})", trace_.name(span)), false)
                                                  : part_of_use(use);
  }

  PartId part_of_use(HostUse use) { return part_of_name(fmt::format("({})", to_string(use)), false); }

  PartId part_of_name(const std::string& name, bool is_op) {
    const auto [found, is_new] = by_name_.try_emplace(name, static_cast<PartId>(made_.size()));
    if (is_new) made_.emplace_back(), made_.back().name = name, made_.back().is_op = is_op;
    return found->second;
  }

  PartId part_of_site(SiteId id, SpanId op) {
    const StringId shape = shapes_ == nullptr ? 0 : shape_id(shape_of(op));
    const auto [found, is_new] = by_site_.try_emplace({id, shape}, kNone);
    if (is_new) found->second = part_of_facts(trace_.sites()[id], shape_of(op));
    return found->second;
  }

  // Sites that differ in nothing but which of their ops they are have one part.
  PartId part_of_facts(const Site& site, std::string_view shape) {
    const bool is_group = site.members_end - site.members_begin > 0;
    std::string name;
    if (is_group) {
      name = group_name(trace_, site);
    } else if (site.op != 0) {
      name = trace_.text(site.op);
    } else if (site.name != 0) {
      name = trace_.text(site.name);
    } else {
      name = fmt::format("({})", to_string(site.kind));
    }
    const std::string scope(trace_.text(site.scope));
    const auto key = std::tuple(scope, name, std::string(shape), site.bytes, site.flops);
    const auto [found, is_new] = by_facts_.try_emplace(key, static_cast<PartId>(made_.size()));
    if (is_new) {
      StepPart part;
      part.scope = scope, part.name = name, part.shape = shape;
      part.bytes = site.bytes, part.flops = site.flops, part.is_op = true;
      for (auto m = site.members_begin; m < site.members_end; ++m) {
        part.members.emplace_back(trace_.text(trace_.members()[m].op));
      }
      if (part.members.empty()) part.members.push_back(part.name);
      made_.push_back(std::move(part));
    }
    add_kernel(made_[found->second], trace_.text(site.kernel));
    return found->second;
  }

  static void add_kernel(StepPart& part, std::string_view kernel) {
    if (!kernel.empty() && std::ranges::find(part.kernels, kernel) == part.kernels.end()) {
      part.kernels.emplace_back(kernel);
    }
  }

  StringId shape_id(std::string_view shape) {
    return shape_ids_.try_emplace(std::string(shape), static_cast<StringId>(shape_ids_.size())).first->second;
  }

  const Trace& trace_;
  const TrackId track_;
  const double count_;
  std::vector<Interval> free_;
  std::map<SiteId, std::vector<ReplayPart>> parts_of_replay_;
  const ArgumentColumn* shapes_ = nullptr;
  std::unordered_map<std::string, StringId> shape_ids_;
  std::map<std::pair<SiteId, StringId>, PartId> by_site_;
  std::map<std::tuple<std::string, std::string, std::string, std::int64_t, double>, PartId> by_facts_;
  std::map<std::string, PartId> by_name_;
  std::vector<StepPart> made_;
};

// The one in the middle by length, or both, and of the quarter around them those that are as long but for half a
// percent, in order: on average they are as long as the median.
std::vector<Interval> middle_steps(const std::vector<Interval>& steps) {
  constexpr double kAsLong = 0.005;
  std::vector<std::size_t> by_length(steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) by_length[i] = i;
  const auto length = [&](std::size_t i) { return static_cast<double>(steps[i].end - steps[i].start); };
  std::ranges::stable_sort(by_length, {}, length);
  const std::size_t low = (steps.size() - 1) / 2, high = steps.size() / 2, most = steps.size() / 8;
  const double median = (length(by_length[low]) + length(by_length[high])) / 2;
  std::size_t around = 0;  // as many on both sides
  while (around < most && length(by_length[low - around - 1]) >= median * (1 - kAsLong) &&
         length(by_length[high + around + 1]) <= median * (1 + kAsLong)) {
    ++around;
  }
  const auto begin = static_cast<std::ptrdiff_t>(low - around), end = static_cast<std::ptrdiff_t>(high + around + 1);
  std::vector<std::size_t> kept(by_length.begin() + begin, by_length.begin() + end);
  std::ranges::sort(kept);
  std::vector<Interval> middle;
  for (const std::size_t i : kept) middle.push_back(steps[i]);
  return middle;
}

// The median; of an even number halfway between the two in the middle.
std::int64_t middle_of(std::vector<std::int64_t> ns) {
  std::ranges::sort(ns);
  const std::int64_t low = ns[(ns.size() - 1) / 2], high = ns[ns.size() / 2];
  return low + (high - low) / 2;
}

// The thread with the most spans; kNone where nothing was recorded.
TrackId busiest_thread(const Trace& trace) {
  std::vector<std::size_t> spans(trace.tracks().size());
  for (SpanId i = 0; i < trace.size(); ++i) spans[trace.track_id(i)] += trace.on_gpu(i) ? 0 : 1;
  const auto most = std::ranges::max_element(spans);
  return most == spans.end() || *most == 0 ? kNone : static_cast<TrackId>(most - spans.begin());
}

std::string gpus_of(const Trace& trace) {
  std::set<std::int32_t> devices;
  for (const Track& track : trace.tracks()) {
    if (track.kind != TrackKind::thread) devices.insert(track.device);
  }
  return devices.empty() ? "CPU" : fmt::format("{} GPU{}", devices.size(), devices.size() == 1 ? "" : "s");
}

}  // namespace

std::size_t warm_up_steps(const std::vector<std::int64_t>& ns) {
  constexpr double kSpreads = 5, kLeast = 0.05;
  if (ns.size() < 4) return 0;
  const std::vector<std::int64_t> later(ns.begin() + static_cast<std::ptrdiff_t>(ns.size() / 2), ns.end());
  const std::int64_t middle = median(later);
  std::vector<std::int64_t> off;
  for (const std::int64_t one : later) off.push_back(std::abs(one - middle));
  const auto usual = static_cast<double>(middle);
  const double most = usual + std::max(kSpreads * 1.4826 * static_cast<double>(median(off)), kLeast * usual);
  std::size_t steps = 0;
  while (steps < ns.size() / 2 && static_cast<double>(ns[steps]) > most) ++steps;
  return steps;
}

ProcessSteps steps_of_process(const Trace& trace, std::string name) {
  ProcessSteps process;
  process.name = std::move(name);
  const Records records = count_records(trace);
  process.lost = records.dropped + records.timeless;
  process.target = gpus_of(trace);
  if (!trace.anchors().empty()) {
    process.wall_ns = trace.anchors().front().wall_ns;
    const std::string_view host = trace.text(trace.anchors().front().host);
    process.machine = host.substr(host.rfind(' ') + 1);  // in front of it: which of its boots; npos + 1 is 0
  }
  Steps steps = find_steps(trace);
  process.has_steps = !steps.of.empty();
  if (!process.has_steps) {
    steps.track = busiest_thread(trace);
    if (steps.track == kNone || trace.wall_ns() <= 0) return process;
    steps.of.push_back({trace.window_start(), trace.window_end()});
  }
  for (const Interval& step : steps.of) process.ns.push_back(step.end - step.start);
  process.warm_up = warm_up_steps(process.ns);
  const auto begin = static_cast<std::ptrdiff_t>(process.warm_up);
  process.ns.erase(process.ns.begin(), process.ns.begin() + begin);
  steps.of.erase(steps.of.begin(), steps.of.begin() + begin);
  process.median_ns = middle_of(process.ns);
  process.parts = PartsOfSteps(trace, steps.track, middle_steps(steps.of)).find();
  return process;
}

}  // namespace paoding::profile
