// SPDX-License-Identifier: Apache-2.0
// Traces made by hand: a thread that steps and launches, and streams of a GPU. Times are in microseconds.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "profile/trace.h"

namespace paoding::profile {

class MadeTrace {
 public:
  explicit MadeTrace(Source source = Source::pytorch) {
    process_ = trace_.add_process(1, -1, "made", source);
    thread_ = trace_.add_track(TrackKind::thread, "thread 1", -1, process_);
  }

  TrackId thread(const std::string& name) { return trace_.add_track(TrackKind::thread, name, -1, process_); }
  void on_thread(TrackId track) { at_thread_ = track; }
  SpanId host(SpanKind kind, const std::string& name, double from, double to) {
    SiteInfo site{.name = name, .kind = kind};
    if (kind == SpanKind::op) site.name.clear(), site.op = name;
    return add(at_thread_ == kNone ? thread_ : at_thread_, site, from, to, 0);
  }
  /// The call that launches from now on.
  void launch_by(const std::string& call) { call_ = call; }
  void step(double from, double to) { host(SpanKind::step, "ProfilerStep", from, to); }
  /// A call that takes 4 us, inside an op where one is named, and its kernel.
  void launch(double at, double from, double to, const std::string& kernel = "kernel", int stream = 7,
              const std::string& op = "") {
    if (!op.empty()) host(SpanKind::op, op, at - 1, at + 5);
    ++correlation_;
    add(at_thread_ == kNone ? thread_ : at_thread_, {.name = call_, .kind = SpanKind::launch}, at, at + 4,
        correlation_);
    work(SpanKind::kernel, kernel, from, to, stream);
  }
  /// A copy by a call from `at` to `until`.
  SpanId copy(Copy way, const std::string& memory, std::int64_t bytes, double at, double until, double from, double to,
              int stream = 7) {
    ++correlation_;
    add(at_thread_ == kNone ? thread_ : at_thread_, {.name = "cudaMemcpyAsync", .kind = SpanKind::launch}, at, until,
        correlation_);
    const SpanId span = work(SpanKind::memcpy, "Memcpy", from, to, stream, way, bytes);
    trace_.add_argument(span, trace_.add_column("memory", ArgumentType::text), memory);
    return span;
  }
  /// Launched by the call before.
  SpanId work(SpanKind kind, const std::string& name, double from, double to, int stream, Copy way = Copy::none,
              std::int64_t bytes = -1) {
    const auto [found, is_new] = streams_.try_emplace(stream, kNone);
    if (is_new) found->second = trace_.add_track(TrackKind::stream, "stream " + std::to_string(stream), 0, process_);
    SiteInfo site{.name = name, .kind = kind, .copy = way, .async = true};
    return add(found->second, site, from, to, correlation_, bytes);
  }
  SpanId unlaunched(const std::string& name, double from, double to, int stream = 7) {
    const std::uint32_t before = std::exchange(correlation_, 0);
    const SpanId span = work(SpanKind::kernel, name, from, to, stream);
    correlation_ = before;
    return span;
  }
  Trace& trace() { return trace_; }
  Trace finish() {
    trace_.finish();
    return std::move(trace_);
  }

 private:
  SpanId add(TrackId track, const SiteInfo& site, double from, double to, std::uint32_t correlation,
             std::int64_t bytes = -1) {
    return trace_.add({.track = track,
                       .site = trace_.add_site(site),
                       .start_ns = static_cast<std::int64_t>(from * 1000),
                       .duration_ns = static_cast<std::int64_t>((to - from) * 1000),
                       .correlation = correlation,
                       .bytes = bytes});
  }

  Trace trace_;
  ProcessId process_ = 0;
  TrackId thread_ = 0, at_thread_ = kNone;
  std::string call_ = "cudaLaunchKernel";
  std::map<int, TrackId> streams_;
  std::uint32_t correlation_ = 0;
};

}  // namespace paoding::profile
