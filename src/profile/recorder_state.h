// SPDX-License-Identifier: Apache-2.0
// What the recorder keeps while it records: the chunks of every thread, GPU spans, notes, sites.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "profile/recorder.h"

namespace paoding::profile {

struct ClockPair {
  Ticks ticks = 0;
  std::int64_t ns = 0;
};

/// Both clocks at one moment: of several tries the one that was disturbed least.
ClockPair read_clocks();

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
  OpenSpans open;
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
  // A thread's first span in this recording.
  void begin(ThreadSpans& spans, std::uint64_t session) {
    spans.session = session;
    spans.chunks_used = 0;
    spans.dropped = 0;
    spans.number = thread_count++;
  }

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

}  // namespace paoding::profile
