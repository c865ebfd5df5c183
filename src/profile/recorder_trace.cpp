// SPDX-License-Identifier: Apache-2.0
// The end of a recording: the spans of threads and GPUs become a Trace.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <set>
#include <thread>
#include <unordered_map>

#include "base/check.h"
#include "base/env.h"
#include "profile/recorder_state.h"

namespace paoding::profile {

ClockPair read_clocks() {
  ClockPair best;
  Ticks best_width = ~Ticks{0};
  for (int i = 0; i < 32; ++i) {
    const Ticks before = Recorder::now();
    const std::int64_t ns = steady_ns();
    const Ticks after = Recorder::now();
    if (after - before < best_width) {
      best_width = after - before;
      best = {before + (after - before) / 2, ns};
    }
  }
  return best;
}

OwnProcess own_process() {
  OwnProcess own{.pid = ::getpid(), .name = program_invocation_short_name};
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}) {
    const std::string text = env_text(name);
    int rank = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), rank);
    if (text.empty() || problem != std::errc{} || end != text.data() + text.size() || rank < 0) continue;
    own.rank = rank;
    break;
  }
  return own;
}

SiteInfo Recorder::Recording::site_info(SiteId site) {
  std::lock_guard lock(sites_mutex);
  const SiteRange& range = std::prev(sites.upper_bound(site))->second;
  SiteInfo info = range.info;
  if (site > range.sites.first) info.instance += fmt::format("@{}", site - range.sites.first);
  return info;
}

// The spans of a thread that have begun and not ended.
std::vector<SpanRecord> Recorder::open_of(const ThreadSpans& spans) {
  std::vector<SpanRecord> open;
  const std::uint32_t depth = std::min(spans.open->depth.load(std::memory_order_acquire), OpenSpans::kMost);
  for (std::uint32_t i = 0; i < depth; ++i) {
    const OpenSpans::Span& span = spans.open->spans[i];
    open.push_back({span.site.load(std::memory_order_relaxed), span.run.load(std::memory_order_relaxed),
                    span.start.load(std::memory_order_relaxed), 0});
  }
  return open;
}

// From ticks to ns of steady_clock, on the line through both ends of the recording.
class Recorder::ToTrace {
 public:
  explicit ToTrace(Parts& parts)
      : parts_(parts),
        ns_per_tick_(static_cast<double>(parts.stopped.ns - parts.started.ns) /
                     static_cast<double>(parts.stopped.ticks - parts.started.ticks)) {
    trace_.set_window(parts.started.ns, to_ns(parts.window_end));
    const OwnProcess own = own_process();
    const ProcessId process = trace_.add_process(own.pid, own.rank, own.name);
    for (const SharedClocks& at : {parts.shared_at_start, parts.shared_at_end}) {
      trace_.add_anchor(process, clock_host(), at);
    }
  }

  void add_threads() {
    std::size_t count = parts_.gpu_spans.size();
    for (const Parts::Thread& thread : parts_.threads) {
      count += thread.chunks.size() * kChunkRecords + thread.open.size();
    }
    trace_.reserve(count);
    for (Parts::Thread& thread : parts_.threads) add_thread(thread);
    if (dropped_ > 0) {
      trace_.add_note("host spans dropped, the recorder was full", dropped_, Note::Kind::dropped);
    }
    if (cut_at_start_ > 0) trace_.add_note("spans that began before the recording, cut", cut_at_start_);
    if (cut_at_end_ > 0) trace_.add_note("spans that were under way when it ended, cut", cut_at_end_);
  }

  void add_gpus() {
    std::vector<TrackId> tracks;
    for (const auto& [kind, name, device] : parts_.gpu_tracks) tracks.push_back(trace_.add_track(kind, name, device));
    for (const GpuPiece& piece : parts_.gpu_spans.pieces()) {
      auto argument = piece.arguments.begin();
      for (std::uint32_t i = 0; i < piece.spans.size(); ++i) {
        const GpuSpan& s = piece.spans[i];
        const SpanId id = trace_.add({.track = tracks[s.track],
                                      .site = trace_site(s.site),
                                      .start_ns = s.start_ns,
                                      .duration_ns = std::max<std::int64_t>(0, s.duration_ns),
                                      .run = s.run,
                                      .correlation = s.correlation});
        for (; argument != piece.arguments.end() && argument->span == i; ++argument) {
          const auto& [name, value] = argument->argument;
          if (id != kNone) trace_.add_argument(id, trace_.add_column(name, ArgumentType::integer), value);
        }
      }
    }
    parts_.gpu_spans = {};
    for (const Limit& limit : parts_.limits) trace_.add_limit(limit);
    for (const Phase& phase : parts_.phases) trace_.add_phase({trace_site(phase.site), phase.name, phase.ns});
    for (const ReplayPart& part : parts_.parts) {
      const SiteId site = part.site == kNone ? kNone : trace_site(part.site);
      trace_.add_part({trace_site(part.replay), site, part.calls, part.ns});
    }
  }

  Trace finish() {
    for (Note& note : parts_.notes) trace_.add_note(std::move(note.text), note.count, note.kind);
    parts_.notes.clear();
    for (Memory& memory : parts_.memory) trace_.add_memory(std::move(memory));
    parts_.memory.clear();
    for (const Sample& s : parts_.samples) {
      const HeldNow& held = parts_.held[s.counter];
      trace_.add_sample({trace_.add_counter(held.device, to_string(held.what)), s.ns, s.value});
    }
    parts_.samples = {};
    trace_.finish();
    return std::move(trace_);
  }

 private:
  std::int64_t to_ns(Ticks ticks) const {
    const auto since = static_cast<std::int64_t>(ticks - parts_.started.ticks);  // negative before the recording
    return parts_.started.ns + static_cast<std::int64_t>(static_cast<double>(since) * ns_per_tick_);
  }

  void add_thread(Parts::Thread& thread) {
    const TrackId track = trace_.add_track(TrackKind::thread, fmt::format("thread{}", thread.number));
    dropped_ += thread.dropped;
    EndOrder ends;
    ArgumentsAhead ahead;
    thread.for_each_chunk([&](std::span<const SpanRecord> records) {
      for (const SpanRecord& record : records) {
        if (ahead.take(record)) continue;
        const SpanId id = add(track, record, to_ns(ends.of(record.end)));
        for (const auto& [name, bits] : ahead.of(record)) add_argument(id, name, bits);
      }
    });
    for (const SpanRecord& record : thread.open) add(track, record, trace_.window_end() + 1);
  }

  void add_argument(SpanId id, ArgumentId name, std::uint64_t bits) {
    if (id == kNone) return;
    const ArgumentName own = recording().argument_name(name);
    const ColumnId column = trace_.add_column(own.name, own.type);
    switch (own.type) {
      case ArgumentType::integer: trace_.add_argument(id, column, static_cast<std::int64_t>(bits)); break;
      case ArgumentType::real: trace_.add_argument(id, column, std::bit_cast<double>(bits)); break;
      case ArgumentType::text: trace_.add_argument(id, column, parts_.texts->at(bits)); break;
    }
  }

  // kNone where it lies outside of the recording.
  SpanId add(TrackId track, const SpanRecord& record, std::int64_t end) {
    const bool begins_before = record.start < parts_.started.ticks;
    const std::int64_t start = begins_before ? parts_.started.ns - 1 : to_ns(record.start);
    end = std::max(start, end);
    std::uint32_t run = record.run;
    if (run == 0 && begins_before) run = next_run();  // a run that began while nothing was recorded
    const SpanId id = trace_.add(
        {.track = track, .site = trace_site(record.site), .start_ns = start, .duration_ns = end - start, .run = run});
    if (id == kNone) return id;
    cut_at_start_ += begins_before;
    cut_at_end_ += end > trace_.window_end();
    return id;
  }

  SiteId trace_site(SiteId site) {
    Known& near = near_[site % near_.size()];  // a loop's sites, without a look into the table
    if (near.site == site && near.of != kNone) return near.of;
    const auto [found, is_new] = site_of_.try_emplace(site);
    if (is_new) found->second = trace_.add_site(recording().site_info(site));
    near = {site, found->second};
    return found->second;
  }

  Parts& parts_;
  const double ns_per_tick_;
  Trace trace_;
  struct Known {
    SiteId site = 0, of = kNone;
  };
  std::unordered_map<SiteId, SiteId> site_of_;  // recorder's id -> trace's
  std::array<Known, 1024> near_;                // some of them
  std::uint64_t dropped_ = 0, cut_at_start_ = 0, cut_at_end_ = 0;
};

void Recorder::Recording::give_back(std::vector<std::shared_ptr<Chunk>>& chunks) {
  constexpr std::size_t kMost = 128;
  const std::lock_guard lock(mutex);
  for (std::shared_ptr<Chunk>& chunk : chunks) {
    if (free_chunks.size() < kMost && chunk.use_count() == 1) free_chunks.push_back(std::move(chunk));
  }
  chunks.clear();
}

std::unique_ptr<Recorder::Parts> Recorder::Recording::take(ClockPair stopped, Ticks window_end) {
  const std::lock_guard lock(mutex);
  running = false;
  auto over = std::make_unique<Parts>();
  over->started = started, over->stopped = stopped;
  over->shared_at_start = shared_at_start, over->shared_at_end = read_shared_clocks();
  over->window_end = window_end;
  for (const auto& spans : threads) {
    // Open spans are read first: one that ends meanwhile is then among the records too, and is recognised.
    Parts::Thread thread;
    thread.open = open_of(*spans);
    const bool is_of_this = spans->session == session_.load();
    if (!is_of_this && thread.open.empty()) continue;
    thread.number = is_of_this ? spans->number : thread_count++;
    if (is_of_this) {
      thread.chunks = spans->chunks;  // its thread may be about to write into the last one still
      thread.dropped = spans->dropped;
      if (!thread.chunks.empty()) thread.used = thread.chunks.back()->used().load(std::memory_order_acquire);
      if (spans->chunks.size() > 1) spans->chunks.erase(spans->chunks.begin(), spans->chunks.end() - 1);
    }
    over->threads.push_back(std::move(thread));
  }
  std::ranges::sort(over->threads, {}, &Parts::Thread::number);
  std::erase_if(threads, [](const auto& spans) { return spans->exited; });
  if (dropped_samples > 0) {
    notes.push_back({"changes of what is held dropped, the recorder was full", dropped_samples, Note::Kind::dropped});
  }
  if (const std::uint64_t left_out = texts->left_out(); left_out > 0) {
    notes.push_back({"arguments left out, whose texts are more than 16 MB", left_out, Note::Kind::other});
  }
  static_cast<BesideThreads&>(*over) = std::exchange(static_cast<BesideThreads&>(*this), {});
  over->held = held;
  over->stream = std::move(stream);
  if (over->stream != nullptr) over->stream->cut();
  return over;
}

Recorded::Recorded(std::unique_ptr<Recorder::Parts> parts) : parts_(std::move(parts)) {}
Recorded::Recorded(Recorded&& other) noexcept = default;

Recorded::~Recorded() {
  if (parts_ == nullptr) return;
  if (parts_->stream != nullptr && parts_->stream->has_name()) parts_->stream->finish(*parts_);
  for (Recorder::Parts::Thread& thread : parts_->threads) Recorder::recording().give_back(thread.chunks);
}

Trace Recorded::to_trace() {
  PD_ASSERT(parts_ != nullptr, "a recording becomes a trace once");
  const std::unique_ptr<Recorder::Parts> parts = std::move(parts_);
  if (parts->stream != nullptr) {
    parts->stream->finish(*parts);
    return parts->stream->read();
  }
  Recorder::ToTrace made(*parts);
  made.add_threads();
  made.add_gpus();
  for (Recorder::Parts::Thread& thread : parts->threads) Recorder::recording().give_back(thread.chunks);
  return made.finish();
}

Trace Recorder::stop() { return end().to_trace(); }

Recorded Recorder::end() {
  Recording& r = recording();
  std::lock_guard control(r.control);
  if (!running() || (r.is_from_outside && !r.has_inside)) {
    fail(ErrorKind::argument, "stop_profiler: nothing is being recorded, needs start_profiler first");
  }
  return r.is_from_outside ? end_inside(r) : end_whole(r);
}

void Recorder::end_from_outside() {
  Recording& r = recording();
  std::lock_guard control(r.control);
  if (running() && r.is_from_outside) end_whole(r);
}

// A moment in which nothing was.
Recorded Recorder::end_inside(Recording& r) {
  r.has_inside = false;
  auto none = std::make_unique<Parts>();
  none->started = read_clocks();
  none->stopped = {none->started.ticks + 1, none->started.ns + 1};
  none->window_end = none->started.ticks;
  none->shared_at_start = none->shared_at_end = read_shared_clocks();
  none->notes.push_back({"everything: `paoding profile` records this program, and its report has it", 0});
  return Recorded(std::move(none));
}

Recorded Recorder::end_whole(Recording& r) {
  static const SiteId site = add_site({.name = "stop_profiler", .kind = SpanKind::recording});
  const Ticks asked = now();
  flags_.store(0);
  bool has_waited = false;
  if (r.options->state != State::cpu) {
    for (const GpuSource& source : r.sources) {
      has_waited = true;
      try {
        source.stop();
      } catch (const std::exception& e) {  // the host's half is still worth having
        add_note(fmt::format("GPU spans: {}", e.what()));
      }
    }
  }
  // The GPUs' work is part of the recording, which therefore ends after it.
  const Ticks ended = has_waited ? now() : asked;
  if (has_waited && r.options->state != State::gpu) complete(site, asked, ended);

  ClockPair stopped = read_clocks();
  // A clock pair is good to some 30 ns: over 2 ms a rate good to 15 ppm, 30 ns at the end of those 2 ms.
  while (stopped.ns - r.started.ns < 2'000'000) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(2'000'000 - (stopped.ns - r.started.ns)));
    stopped = read_clocks();
  }

  return Recorded(r.take(stopped, ended));
}

}  // namespace paoding::profile
