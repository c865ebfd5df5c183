// SPDX-License-Identifier: Apache-2.0
// The recorder's slow half: chunks, threads that come and go, clock calibration, and turning records into a Trace.
#include "profile/recorder.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>
#include <unordered_map>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/check.h"

namespace paoding::profile {

namespace {

bool counter_is_steady() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0x80000007, &a, &b, &c, &d) == 0) return false;
  return (d & (1u << 8)) != 0;  // "invariant TSC"
#else
  return false;
#endif
}

std::int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct ClockPair {
  Ticks ticks = 0;
  std::int64_t ns = 0;
};

// Both clocks at one moment: of several tries the one that was disturbed least.
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

}  // namespace

struct Recorder::Chunk {
  std::atomic<std::uint32_t> used{0};
  std::unique_ptr<SpanRecord[]> records = std::make_unique_for_overwrite<SpanRecord[]>(kChunkRecords);
};

// What one thread wrote. Only its thread changes the chunk list, under Recording::mutex.
struct Recorder::ThreadSpans {
  std::vector<std::unique_ptr<Chunk>> chunks;
  std::size_t chunks_used = 0;  // the rest is kept for the next recording, so that a second one allocates nothing
  std::uint64_t session = 0;    // of the recording that the chunks belong to
  std::uint32_t number = 0;     // order of first span in that recording: thread0, thread1 ...
  std::atomic<std::uint64_t> dropped{0};
  bool exited = false;
};

struct GpuSpan {
  SiteId site;
  std::uint32_t run;
  std::int64_t start_ns, duration_ns;
  TrackId track;
  std::uint32_t correlation;
};

// What is registered at once: ids from `sites.first` on.
struct SiteRange {
  SiteInfo info;
  TurnSites sites;
};

struct Recorder::Recording {
  std::mutex mutex;
  std::vector<std::shared_ptr<ThreadSpans>> threads;
  std::size_t chunk_count = 0;  // used in this recording
  std::uint32_t thread_count = 0;

  bool running = false;
  std::optional<RecorderOptions> options;
  ClockPair started;
  std::vector<std::tuple<TrackKind, std::string, int>> gpu_tracks;
  std::vector<GpuSpan> gpu_spans;
  std::vector<Note> notes;
  std::vector<GpuSource> sources;

  std::mutex sites_mutex;
  std::vector<SiteRange> sites;
  std::map<std::string, std::size_t> site_ranges;  // by what they say: the widest

  std::mutex control;  // start and stop, one at a time
  std::atomic<std::uint32_t> runs{0};
};

const bool Recorder::counter_is_steady_ = counter_is_steady();

Recorder::Recording& Recorder::recording() {
  static Recording* const the_one = new Recording;  // never destroyed: threads may outlive main()
  return *the_one;
}

// Ends with its thread; the spans stay, shared with the Recording, until stop().
struct Recorder::ThreadExit {
  std::shared_ptr<ThreadSpans> spans = std::make_shared<ThreadSpans>();
  bool* gone;

  explicit ThreadExit(bool* flag) : gone(flag) {
    Recording& r = recording();
    std::lock_guard lock(r.mutex);
    r.threads.push_back(spans);
  }
  ~ThreadExit() {
    Recording& r = recording();
    std::lock_guard lock(r.mutex);
    cursor_ = {};
    *gone = true;
    spans->exited = true;
    // Spans of a recording that is over are of no use any more.
    if (spans->session != session_.load() || !r.running) std::erase(r.threads, spans);
  }
};

bool Recorder::next_chunk() {
  static constinit thread_local bool gone = false;
  if (gone) return false;  // a later thread_local's destructor records: too late to be kept
  thread_local ThreadExit mine(&gone);
  Recording& r = recording();
  std::lock_guard lock(r.mutex);
  ThreadSpans& spans = *mine.spans;
  const std::uint64_t session = session_.load();
  if (!r.running) {
    cursor_ = {};  // began while recording, ended after it
    cursor_.session = session;
    return false;
  }
  if (spans.session != session) {
    spans.session = session;
    spans.chunks_used = 0;
    spans.dropped = 0;
    spans.number = r.thread_count++;
  }
  if ((r.chunk_count + 1) * kChunkRecords * sizeof(SpanRecord) > r.options->max_bytes) {
    spans.dropped.fetch_add(1, std::memory_order_relaxed);
    cursor_ = {};
    cursor_.session = session;
    return false;
  }
  r.chunk_count += 1;
  if (spans.chunks_used == spans.chunks.size()) spans.chunks.push_back(std::make_unique<Chunk>());
  Chunk& chunk = *spans.chunks[spans.chunks_used++];
  chunk.used.store(0);
  cursor_ = {chunk.records.get(), 0, kChunkRecords, &chunk.used, session};
  return true;
}

SiteId Recorder::add_site(const SiteInfo& info) { return add_sites(info, 1).first; }

TurnSites Recorder::add_sites(const SiteInfo& info, std::int64_t turns) {
  std::string key =
      fmt::format("{}\n{}\n{}\n{}\n{} {} {} {} {}", info.name, info.op, info.scope, info.instance,
                  static_cast<int>(info.kind), static_cast<int>(info.copy), info.async, info.bytes, info.flops);
  for (const auto& member : info.members) key += fmt::format("\n{} {}", member.op, member.bytes);
  Recording& r = recording();
  std::lock_guard lock(r.sites_mutex);
  const auto made = r.site_ranges.try_emplace(std::move(key), r.sites.size());
  std::size_t& place = made.first->second;
  const bool is_new = made.second;
  const auto registered = [&] { return r.sites[place].sites; };
  if (!is_new && registered().turns >= turns) return registered();
  constexpr std::int64_t kFew = std::int64_t{1} << 31;
  const SiteId next = r.sites.empty() ? 0 : r.sites.back().sites.first + r.sites.back().sites.turns;
  if (turns > kFew - next) {
    if (!is_new) return registered();
    turns = 1;
  }
  place = r.sites.size();
  r.sites.push_back({info, {next, static_cast<std::uint32_t>(turns)}});
  return registered();
}

std::uint32_t Recorder::next_run() {
  std::uint32_t run = 0;
  while (run == 0) run = recording().runs.fetch_add(1, std::memory_order_relaxed) + 1;
  return run;
}

TrackId Recorder::gpu_track(TrackKind kind, const std::string& name, int device) {
  Recording& r = recording();
  std::lock_guard lock(r.mutex);
  const std::tuple<TrackKind, std::string, int> track{kind, name, device};
  const auto found = std::find(r.gpu_tracks.begin(), r.gpu_tracks.end(), track);
  const auto id = static_cast<TrackId>(found - r.gpu_tracks.begin());
  if (found == r.gpu_tracks.end()) r.gpu_tracks.push_back(track);
  return id;
}

void Recorder::add_gpu(SiteId site, std::uint32_t run, std::int64_t start_ns, std::int64_t duration_ns, TrackId track,
                       std::uint32_t correlation) {
  Recording& r = recording();
  std::lock_guard lock(r.mutex);
  if (!r.running || r.options->state == State::cpu) return;
  PD_ASSERT(track < r.gpu_tracks.size(), "a GPU span on a track of an earlier recording");
  r.gpu_spans.push_back({site, run, start_ns, duration_ns, track, correlation});
}

void Recorder::add_note(std::string text, std::uint64_t count) {
  Recording& r = recording();
  std::lock_guard lock(r.mutex);
  if (r.running) r.notes.push_back({std::move(text), count});
}

void Recorder::add_source(GpuSource source) {
  Recording& r = recording();
  std::lock_guard lock(r.control);
  r.sources.push_back(std::move(source));
}

bool Recorder::running() {
  Recording& r = recording();
  std::lock_guard lock(r.mutex);
  return r.running;
}

RecorderOptions Recorder::options() {
  Recording& r = recording();
  std::lock_guard lock(r.mutex);
  return r.options.value_or(RecorderOptions{});
}

void Recorder::start(const RecorderOptions& options) {
  Recording& r = recording();
  std::lock_guard control(r.control);
  {
    std::lock_guard lock(r.mutex);
    if (r.running) {
      fail(ErrorKind::argument,
           "start_profiler: a recording is already under way (state {}, detail {}), needs to be stopped first",
           to_string(r.options->state), to_string(r.options->detail));
    }
    std::erase_if(r.threads, [](const auto& spans) { return spans->exited; });
    r.running = true;
    r.options = options;
    r.chunk_count = r.thread_count = 0;
    r.gpu_tracks.clear();
    r.gpu_spans.clear();
    r.notes.clear();
    session_.fetch_add(1);
  }
  try {
    if (options.state != State::cpu) {
      for (const GpuSource& source : r.sources) source.start(options.state, options.detail);
    }
  } catch (...) {
    std::lock_guard lock(r.mutex);
    r.running = false;
    throw;
  }
  r.started = read_clocks();
  std::uint32_t flags = 0;
  if (options.state != State::gpu) flags |= kHost | (options.detail == Detail::op ? 0 : kPhases);
  if (options.state != State::cpu) flags |= kGpu;
  flags_.store(flags);
}

Trace Recorder::stop() {
  Recording& r = recording();
  std::lock_guard control(r.control);
  if (!running()) fail(ErrorKind::argument, "stop_profiler: nothing is being recorded, needs start_profiler first");
  flags_.store(0);
  if (r.options->state != State::cpu) {
    for (const GpuSource& source : r.sources) {
      try {
        source.stop();
      } catch (const std::exception& e) {  // the host's half is still worth having
        add_note(fmt::format("GPU spans: {}", e.what()));
      }
    }
  }

  ClockPair stopped = read_clocks();
  // A clock pair is good to some 30 ns: over 2 ms a rate good to 15 ppm, 30 ns at the end of those 2 ms.
  while (stopped.ns - r.started.ns < 2'000'000) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(2'000'000 - (stopped.ns - r.started.ns)));
    stopped = read_clocks();
  }
  const double ns_per_tick =
      static_cast<double>(stopped.ns - r.started.ns) / static_cast<double>(stopped.ticks - r.started.ticks);
  const auto to_ns = [&](Ticks ticks) {
    return r.started.ns + static_cast<std::int64_t>(static_cast<double>(ticks - r.started.ticks) * ns_per_tick);
  };

  std::lock_guard lock(r.mutex);
  r.running = false;
  Trace trace;
  std::unordered_map<SiteId, SiteId> site_of;  // recorder's id -> trace's
  const auto trace_site = [&](SiteId site) {
    const auto [found, is_new] = site_of.try_emplace(site);
    if (!is_new) return found->second;
    std::lock_guard sites(r.sites_mutex);
    const auto behind = std::upper_bound(r.sites.begin(), r.sites.end(), site,
                                         [](SiteId id, const SiteRange& range) { return id < range.sites.first; });
    const SiteRange& range = *std::prev(behind);
    SiteInfo info = range.info;
    if (site > range.sites.first) info.instance += fmt::format("@{}", site - range.sites.first);
    return found->second = trace.add_site(info);
  };

  std::uint64_t dropped = 0, too_early = 0;
  std::vector<ThreadSpans*> threads;
  for (const auto& spans : r.threads) {
    if (spans->session == session_.load()) threads.push_back(spans.get());
  }
  std::sort(threads.begin(), threads.end(), [](auto* a, auto* b) { return a->number < b->number; });
  for (ThreadSpans* spans : threads) {
    const TrackId track = trace.add_track(TrackKind::thread, fmt::format("thread{}", spans->number));
    dropped += spans->dropped;
    for (std::size_t c = 0; c < spans->chunks_used; ++c) {
      const Chunk& chunk = *spans->chunks[c];
      const std::uint32_t used = chunk.used.load(std::memory_order_acquire);
      for (std::uint32_t i = 0; i < used; ++i) {
        const SpanRecord& record = chunk.records[i];
        if (record.start < r.started.ticks) {  // belongs half to the time before
          ++too_early;
          continue;
        }
        const std::int64_t start = to_ns(record.start);
        const std::int64_t end = std::max(start, to_ns(record.end));
        trace.add({.track = track,
                   .site = trace_site(record.site),
                   .start_ns = start,
                   .duration_ns = end - start,
                   .run = record.run});
      }
    }
  }
  std::erase_if(r.threads, [](const auto& spans) { return spans->exited; });

  std::vector<TrackId> gpu_tracks;
  for (const auto& [kind, name, device] : r.gpu_tracks) gpu_tracks.push_back(trace.add_track(kind, name, device));
  for (const GpuSpan& s : r.gpu_spans) {
    trace.add({.track = gpu_tracks[s.track],
               .site = trace_site(s.site),
               .start_ns = s.start_ns,
               .duration_ns = std::max<std::int64_t>(0, s.duration_ns),
               .run = s.run,
               .correlation = s.correlation});
  }
  r.gpu_spans = {};
  for (Note& note : r.notes) trace.add_note(std::move(note.text), note.count);
  r.notes.clear();
  if (dropped > 0) trace.add_note("host spans dropped, the recorder was full", dropped);
  if (too_early > 0) trace.add_note("host spans that began before the recording", too_early);
  trace.finish();
  return trace;
}

}  // namespace paoding::profile
