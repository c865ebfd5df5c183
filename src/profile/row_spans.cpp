// SPDX-License-Identifier: Apache-2.0
// Which calls a span opens, and whose time it is.
#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "profile/row_tree.h"
#include "profile/trace_counts.h"

namespace paoding::profile {

// To the call and all calls around it. Those of other host spans, which lie around this one, contain it already.
void RowTree::add_piece(CallId call, Interval interval, bool gpu) {
  if (gpu ? options_.state == State::cpu : options_.state == State::gpu) return;
  for (; call != kNone; call = calls_[call].parent) {
    Call& own = calls_[call];
    if (own.has_lists) {
      add_to_lists(own, interval, gpu);
    } else if (own.span == span_) {
      add_now(own, interval);
    } else {
      return;
    }
    if (own.parent == kNone) roots_[own.section].covered.add(interval, gpu);
  }
}

// Intervals come from one track, and in order.
void RowTree::add_now(Call& call, Interval interval) {
  if (call.has_pieces) interval.start = std::max(interval.start, call.end);
  interval.end = std::max(interval.end, interval.start);
  call.has_pieces = true;
  call.end = interval.end;
  call.ns += interval.end - interval.start;
  for (auto t = call.targets_begin; t < call.targets_end; ++t) {
    if (targets_[t].share == 1.0) append(nodes_[targets_[t].node].under_way, interval);
  }
}

void RowTree::add_to_lists(Call& call, Interval interval, bool gpu) {
  if (call.pieces == kNone && !free_lists_.empty()) {
    call.pieces = free_lists_.back();
    free_lists_.pop_back();
  } else if (call.pieces == kNone) {
    call.pieces = static_cast<std::uint32_t>(lists_.size());
    lists_.emplace_back();
  }
  Lists& own = lists_[call.pieces];
  if (gpu) {
    append(own.gpu, interval);
  } else if (!own.has_host) {
    own.host = interval;
    own.has_host = true;
    return;
  } else if (interval.start >= own.host.start && interval.start <= own.host.end) {
    own.host.end = std::max(own.host.end, interval.end);
    return;
  }
  append(own.all, interval);
}

// Adds the op's bytes and operations to the call and all calls around it.
void RowTree::add_work(CallId call, SpanId span) {
  const auto bytes = static_cast<double>(std::max<std::int64_t>(trace_.bytes(span), 0));
  const double flops = std::max(trace_.flops(span), 0.0), floor = floor_ns(trace_.site(span), bytes, flops);
  if (bytes == 0 && flops == 0) return;
  for (; call != kNone; call = calls_[call].parent) {
    Work& work = work_of(call);
    work.bytes += bytes;
    work.flops += flops;
    work.floor_ns += floor;
  }
}

RowTree::Work& RowTree::work_of(CallId call) {
  std::uint32_t& own = calls_[call].work;
  if (own == kNone && !free_works_.empty()) {
    own = free_works_.back();
    free_works_.pop_back();
    works_[own] = {};
  } else if (own == kNone) {
    own = static_cast<std::uint32_t>(works_.size());
    works_.emplace_back();
  }
  return works_[own];
}

// The least time of a GPU for the op's bytes and operations.
double RowTree::floor_ns(const Site& site, double bytes, double flops) const {
  const double rate = limit_.flops_per_ns[static_cast<std::size_t>(site.unit)];
  return std::max(limit_.bytes_per_ns > 0 ? bytes / limit_.bytes_per_ns : 0, rate > 0 ? flops / rate : 0);
}

// Spans that started work on a GPU, and those around them, have lists. To the end stay spans that another names as its
// parent, without being enclosed by it, and those around them.
void RowTree::find_what_is_kept() {
  const auto keep = [&](SpanId i, Kept how) {
    for (; i != kNone && kept_[i] < how; i = trace_.parent(i)) kept_[i] = how;
  };
  std::vector<SpanId> open;
  for (SpanId i = 0; i < trace_.size(); ++i) {
    if (trace_.on_gpu(i)) {
      if (trace_.cause(i) != kNone) launched_.push_back(i);
      keep(trace_.cause(i), Kept::with_lists);
      continue;
    }
    const SpanId p = trace_.parent(i);
    while (!open.empty() && open.back() != p) open.pop_back();
    const bool is_inside = p == kNone || (trace_.start(p) <= trace_.start(i) && trace_.end(i) <= trace_.end(p));
    if (!is_inside || (p != kNone && open.empty())) keep(p, Kept::to_end);
    open.push_back(i);
  }
  const auto cause = [&](SpanId i) { return trace_.cause(i); };
  if (!std::ranges::is_sorted(launched_, {}, cause)) std::ranges::stable_sort(launched_, {}, cause);
}

// Closes the spans that have ended before a span that lies in `parent`.
void RowTree::end_spans_outside(SpanId parent) {
  while (!open_.empty() && open_.back().span != parent) {
    const auto [span, first] = open_.back();
    open_.pop_back();
    if (has_self_time(span)) {
      add_self_time(span, trace_.end(span));
      self_cursor_[span] = kNoSelf;
    }
    if (kept_[span] != Kept::to_end) close_calls(first);
  }
}

// An op's own time is its computation when no phase or inner op says otherwise; not where the ops of its thread are
// another framework's that hands them to a GPU.
void RowTree::find_ops_without_phases() {
  const std::vector<bool> hands_over = threads_that_hand_over(trace_);
  const auto computes = [&](SpanId i) {
    const SpanKind kind = trace_.kind(i);
    return !trace_.on_gpu(i) &&
           (kind == SpanKind::compute || (kind == SpanKind::op && !hands_over[trace_.track_id(i)]));
  };
  SpanId first = 0;
  while (first < trace_.size() && !computes(first)) ++first;
  if (first == trace_.size()) return;
  self_cursor_.assign(call_of_.size(), kNoSelf);
  for (SpanId i = 0; i < trace_.size(); ++i) {
    if (trace_.on_gpu(i)) continue;
    const SpanKind kind = trace_.kind(i);
    if (kind == SpanKind::op && !hands_over[trace_.track_id(i)]) self_cursor_[i] = trace_.start(i);
    const SpanId p = trace_.parent(i);
    if (p != kNone && (kind == SpanKind::op || kind == SpanKind::compute)) self_cursor_[p] = kNoSelf;
  }
}

void RowTree::add_self_time(SpanId op, std::int64_t until) {
  const Interval self{self_cursor_[op], until};
  if (self.end <= self.start || in_compile_[op]) return;
  if (options_.state != State::gpu) computation_.add(self, false);
  if (inner_of_[op] == call_of_[op] || trace_.kind(op) != SpanKind::op) return;
  const SpanId at_hand = std::exchange(span_, op);
  add_piece(inner_of_[op], self, false);
  span_ = at_hand;
}

// Removes the parts of an op that are not computation; of a compute phase only the time of waiting or recording.
void RowTree::leave_out(SpanId p, SpanKind kind, Interval interval) {
  if (p == kNone || !has_self_time(p)) return;
  if (trace_.kind(p) == SpanKind::compute && kind != SpanKind::wait && kind != SpanKind::recording) return;
  add_self_time(p, interval.start);
  self_cursor_[p] = std::max(self_cursor_[p], interval.end);
}

// A stretch that the user named. XLA records annotations of Python as it does its own work: one that stands by itself
// on the thread that runs programs, with a name that is a word, is the user's.
bool RowTree::is_users_stretch(SpanId i) const {
  const SpanKind kind = trace_.kind(i);
  if (kind == SpanKind::range || kind == SpanKind::step) return true;
  if (kind != SpanKind::host || trace_.source(i) != Source::jax || !runs_programs_[trace_.track_id(i)]) return false;
  const SpanId p = trace_.parent(i);
  if (p != kNone && trace_.kind(p) != SpanKind::frame && !is_users_stretch(p)) return false;
  return trace_.name(i).find_first_of(".:(#[") == std::string_view::npos;
}

void RowTree::add_host_span(SpanId i) {
  const SpanKind kind = trace_.kind(i);
  if (kind == SpanKind::instant) return;  // has no time
  const SpanId p = trace_.parent(i);
  if (kind == SpanKind::frame) {  // its calls are in the rows around it
    if (p == kNone) return;
    std::tie(call_of_[i], inner_of_[i]) = std::pair(call_of_[p], inner_of_[p]);
    in_compile_[i] = in_compile_[p];
    return;
  }
  const Interval interval{trace_.start(i), trace_.end(i)};
  if (kind == SpanKind::compile || (p != kNone && in_compile_[p])) {
    in_compile_[i] = true;
    if (p == kNone || !in_compile_[p]) for_summaries.compiling.push_back(interval);
    if (kind != SpanKind::infer_shape) return;
    const SiteLabels labels = labels_of(trace_.site_id(i));
    if (labels.op == kNone) return;
    const auto ns = static_cast<double>(trace_.duration(i));
    count(compiled_shapes_[{labels.op, kNone}], ns, ns, 0);
    count(compiled_shapes_[{labels.op, labels.instance}], ns, ns, 0);
    return;
  }
  if (kind == SpanKind::work) {  // has no row: the op that it is a part of has one, on the thread that entered it
    if (options_.state == State::gpu) return;
    total_.add(interval, false);
    computation_.add(interval, false);
    return;
  }
  if (kind == SpanKind::run && trace_.cut(i).at_start) {  // its earlier part is not known, nor its ops
    append(for_summaries.unseen, interval);
    return;
  }
  if (kind == SpanKind::recording && p == kNone && per_thread_ && section_of_track_[trace_.track_id(i)] == kNone) {
    total_.add(interval, false);  // of a thread that has nothing else to show
    append(for_summaries.recording, interval);
    if (options_.state == State::gpu) return;
    const std::uint32_t section = hidden_section();
    roots_[section].total.add(interval, false);
    return add_piece(open(kNone, section, label("(recording)")), interval, false);
  }
  const std::uint32_t section = section_of(trace_.track_id(i));
  if (options_.state != State::gpu) {
    if (!is_users_stretch(i)) total_.add(interval, false);
    if (kind != SpanKind::step) roots_[section].total.add(interval, false);
  }
  if (kind == SpanKind::recording) {
    leave_out(p, kind, interval);
    append(for_summaries.recording, interval);
    if (p != kNone) std::tie(call_of_[i], inner_of_[i]) = std::pair(call_of_[p], inner_of_[p]);
    return add_piece(open(kNone, section, label("(recording)")), interval, false);
  }
  const CallId outer = p == kNone ? kNone : call_of_[p];
  CallId call = outer;
  CallId inner = p == kNone ? kNone : inner_of_[p];
  const bool in_op = outer != kNone && calls_[outer].in_op;

  const bool computes = kind == SpanKind::compute || kind == SpanKind::launch || kind == SpanKind::kernel;
  if (!computes && kind != SpanKind::host) leave_out(p, kind, interval);
  switch (kind) {
    case SpanKind::instant:
    case SpanKind::frame:
    case SpanKind::work:
    case SpanKind::recording:
    case SpanKind::step:
    case SpanKind::run:
    case SpanKind::compile: break;
    case SpanKind::op:
      call = inner = open_op(outer, section, trace_.site_id(i), trace_.run(i));
      add_work(call, i);
      if (options_.detail != Detail::op && has_self_time(i)) inner = open(call, section, kComputeLabel);
      break;
    case SpanKind::infer_shape:
    case SpanKind::prepare:
    case SpanKind::compute:
      if (!in_op) call = open_op(outer, section, trace_.site_id(i), trace_.run(i));
      if (options_.detail != Detail::op) {
        call = open(call, section, static_cast<LabelId>(kind) - static_cast<LabelId>(SpanKind::infer_shape));
      }
      inner = call;
      if (kind == SpanKind::compute) self_cursor_[i] = interval.start;
      break;
    case SpanKind::memcpy:
      if (p != kNone && trace_.kind(p) == SpanKind::memcpy) break;
      call = inner = open(outer, section, labels_of(trace_.site_id(i)).name);
      if (const Copy copy = trace_.site(i).copy; copy != Copy::none && copy != Copy::host_to_host) {
        const int is_async = trace_.site(i).async;
        if (options_.state != State::gpu) {
          for_summaries.copies[is_async].push_back(interval);
          for_summaries.copy_calls[is_async] += 1;
        }
      }
      break;
    case SpanKind::memset:
    case SpanKind::launch:
    case SpanKind::kernel:
    case SpanKind::replay:
      if (kind == SpanKind::kernel && options_.state != State::gpu) computation_.add(interval, false);
      if (!in_op) call = inner = open(outer, section, labels_of(trace_.site_id(i)).name);
      break;
    case SpanKind::wait:
      // The other threads of a parallel region: a row only where ops are taken apart.
      if (in_op && options_.detail == Detail::op) break;
      [[fallthrough]];
    case SpanKind::range:
    case SpanKind::feed:
    case SpanKind::fetch:
    case SpanKind::host: call = inner = open(outer, section, labels_of(trace_.site_id(i)).name); break;
  }
  call_of_[i] = call;
  inner_of_[i] = inner;
  // A synthesised compute row gets its pieces from add_self_time. Calls around this one contain this span already,
  // except those opened with it.
  if (call != outer) add_piece(call, interval, false);
}

// Whether the call that launched the work, or one around that, has a row of which the work is a part.
bool RowTree::is_in_call(SpanId i) const {
  const SpanId cause = trace_.cause(i);
  return cause != kNone && call_of_[cause] != kNone &&
         (calls_[call_of_[cause]].in_op || trace_.kind(cause) != SpanKind::launch);
}

// Work that speaks for itself is its GPU's. The ops of a run of ours, whose graph one call launches, are the thread's.
bool RowTree::is_gpus_own(SpanId i) {
  if (trace_.cause(i) == kNone) return true;
  const SiteId site = trace_.site_id(i);
  const bool is_run = trace_.source(i) == Source::paoding &&
                      (labels_of(site).op != kNone || has_parts_[site] || trace_.kind(i) == SpanKind::run);
  return !is_run && !is_in_call(i);
}

// The calls around the launch are open.
void RowTree::add_gpu_spans_of(SpanId host) {
  for (; next_launched_ < launched_.size() && trace_.cause(launched_[next_launched_]) == host; ++next_launched_) {
    add_gpu_span(launched_[next_launched_]);
  }
}

void RowTree::add_gpu_span(SpanId i) {
  span_ = i;
  const auto first = static_cast<CallId>(calls_.size());
  add_calls_of_gpu_span(i);
  close_calls(first);
}

void RowTree::add_calls_of_gpu_span(SpanId i) {
  const SpanKind kind = trace_.kind(i);
  const SpanId cause = trace_.cause(i);
  if (kind == SpanKind::instant) return;
  if (options_.state == State::cpu || (cause != kNone && in_compile_[cause])) return;
  const Interval interval{trace_.start(i), trace_.end(i)};
  const std::uint32_t section = section_of(trace_.track_id(is_gpus_own(i) ? i : cause));
  total_.add(interval, true);
  roots_[section].total.add(interval, true);
  if (kind == SpanKind::run) return;
  const SiteId site_id = trace_.site_id(i);
  const Site& site = trace_.site(i);
  if (has_parts_[site_id]) {
    computation_.add(interval, true);
    roots_[section].covered.add(interval, true);
    Replays& of = replays_[{section, site_id}];
    of.count += 1;
    of.ns += static_cast<double>(trace_.duration(i));
    return;
  }
  const bool is_copy = kind == SpanKind::memcpy;
  const bool from_copy = cause != kNone && trace_.kind(cause) == SpanKind::memcpy;
  if (is_copy && site.copy != Copy::host_to_host) {
    const int is_async = from_copy ? trace_.site(cause).async : site.async;
    for_summaries.copies[is_async].push_back(interval);
    if (!from_copy || options_.state == State::gpu) for_summaries.copy_calls[is_async] += 1;
  } else if (!is_copy && kind != SpanKind::memset && !from_copy) {
    computation_.add(interval, true);
  }

  CallId call = kNone;
  if (is_in_call(i)) {
    call = is_copy ? call_of_[cause] : inner_of_[cause];
    if (is_copy && !from_copy) call = open(call, section, labels_of(site_id).name);
    if (site.kernel != trace_.site(cause).kernel) call = open_kernel(call, section, site_id);
  } else if (labels_of(site_id).op != kNone) {  // launched with a whole graph, or unknown: speaks for itself
    call = open_op(kNone, section, site_id, trace_.run(i));
    add_work(call, i);
    if (is_copy) {
      call = open(call, section, labels_of(site_id).name);
    } else if (options_.detail != Detail::op) {
      call = open(call, section, kComputeLabel);
    }
  } else {
    call = open(kNone, section, labels_of(site_id).name);
  }
  add_piece(call, interval, true);
}

// The time of replays of which only the ends were stamped, as it is shared out in those that were in full.
void RowTree::add_replays() {
  struct Full {
    std::uint64_t count = 0;
    double ns = 0;
    std::vector<const ReplayPart*> parts;
  };
  std::map<SiteId, Full> full;
  for (const ReplayPart& part : trace_.parts()) {
    Full& own = full[part.replay];
    if (part.site == kNone) {
      own.count += part.calls;
    } else {
      own.ns += static_cast<double>(part.ns);
      own.parts.push_back(&part);
    }
  }
  for (const auto& [of, replays] : replays_) {
    const auto& [section, replay] = of;
    const auto& [count, ns, parts] = full.at(replay);
    const double more = static_cast<double>(replays.count) / static_cast<double>(std::max<std::uint64_t>(count, 1));
    for (const ReplayPart* one : parts) {
      const ReplayPart& part = *one;
      const auto calls = static_cast<std::uint64_t>(std::llround(static_cast<double>(part.calls) * more));
      const double scaled_ns = replays.ns * static_cast<double>(part.ns) / ns;
      const Site& site = trace_.sites()[part.site];
      const auto bytes = static_cast<double>(std::max<std::int64_t>(site.bytes, 0));
      const double flops = std::max(site.flops, 0.0), floor = floor_ns(site, bytes, flops);
      CallId call = open_op(kNone, section, part.site, kNone);
      if (options_.detail != Detail::op) call = open(call, section, kComputeLabel);
      for (; call != kNone; call = calls_[call].parent) {
        Work& own = work_of(call);
        own.scaled_ns += scaled_ns;
        own.scaled_calls = calls_[call].in_op ? own.scaled_calls + calls : replays.count;
        own.bytes += static_cast<double>(calls) * bytes;
        own.flops += static_cast<double>(calls) * flops;
        own.floor_ns += static_cast<double>(calls) * floor;
      }
    }
  }
}

}  // namespace paoding::profile
