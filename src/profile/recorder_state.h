// SPDX-License-Identifier: Apache-2.0
// The recorder's state during a recording: the chunks of every thread, GPU spans, notes, sites.
#pragma once

#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "io/files.h"
#include "profile/live_file.h"
#include "profile/recorder.h"
#include "profile/recording.h"

namespace paoding::profile {

/// A thread's spans are written in the order of their ends. Two readings of the counter in close succession may come
/// out in the wrong order (it is read out of order, and cores differ a little): then a span would end after its parent.
class EndOrder {
 public:
  Ticks of(Ticks end) {
    constexpr Ticks kNear = 4096;
    if (end < last_ && last_ - end < kNear) return last_;
    return last_ = end;
  }

 private:
  Ticks last_ = 0;
};

/// This process and its rank among others, from the variables of torchrun, Open MPI and Slurm.
struct OwnProcess {
  int pid = 0, rank = -1;
  std::string name;
};
OwnProcess own_process();

/// Both clocks at one moment: of several tries the one that was disturbed least.
ClockPair read_clocks();

struct Recorder::Chunk {
  Chunk(std::shared_ptr<std::byte> memory_of_several, std::size_t which)
      : records(reinterpret_cast<SpanRecord*>(memory_of_several.get()) + which * kChunkRecords),
        memory(std::move(memory_of_several)) {}
  explicit Chunk(const LiveFile::Memory& in_file) : records(in_file.records), live(in_file.head) {}
  std::atomic<std::uint32_t>& used() { return live == nullptr ? own_used : live->used; }
  /// Its records are in the recording, or are not needed any more.
  void is_over() {
    if (live != nullptr) live->order.store(0);
  }
  SpanRecord* const records;
  const std::shared_ptr<std::byte> memory;
  LiveChunk* const live = nullptr;  // where the memory is a file's
  std::atomic<std::uint32_t> own_used{0};
};

// Arguments that wait for their span, which comes after them in its thread's records.
class ArgumentsAhead {
 public:
  struct One {
    ArgumentId id;
    std::uint64_t bits;
  };
  /// Whether the record is one, which is kept.
  bool take(const SpanRecord& record) {
    if (record.site != kNone) return false;
    if (record.end != of_) all_.clear();
    of_ = record.end;
    all_.push_back({record.run, record.start});
    return true;
  }
  /// The arguments of the span, which are then forgotten.
  std::vector<One> of(const SpanRecord& record) {
    return all_.empty() || record.start != of_ ? std::vector<One>{} : std::exchange(all_, {});
  }

 private:
  std::vector<One> all_;
  Ticks of_ = 0;  // when their span began
};

// Which a recording, its stream and the trace made of it share.
class ArgumentTexts {
 public:
  std::optional<std::uint64_t> add(std::string_view text);
  /// From here on the file knows them too.
  void tell(LiveFile* live) { live_ = live; }
  std::string_view at(std::uint64_t id) const;
  /// That there was no room for.
  std::uint64_t left_out() const;

 private:
  mutable std::mutex mutex_;
  std::deque<std::string> all_;  // a deque: its strings never move
  std::unordered_map<std::string_view, std::uint64_t> ids_;
  std::size_t bytes_ = 0;
  std::uint64_t left_out_ = 0;
  LiveFile* live_ = nullptr;
};

struct ArgumentName {
  std::string name;
  ArgumentType type;
};

// The spans of one thread. Only this thread changes the chunk list, under Recording::mutex.
struct Recorder::ThreadSpans {
  std::vector<std::shared_ptr<Chunk>> chunks;  // the last one is being written
  std::uint64_t session = 0;                   // of the recording that the chunks belong to
  std::uint32_t number = 0;                    // order of first span in that recording: thread0, thread1 ...
  std::atomic<std::uint64_t> dropped{0};
  OpenSpans own_open;
  OpenSpans* open = &own_open;
  LiveThread* live = nullptr;  // where `open` is in a file
  bool exited = false;
};

struct GpuSpan {
  SiteId site;
  std::uint32_t run;
  std::int64_t start_ns, duration_ns;
  TrackId track;
  std::uint32_t correlation;
};

struct GpuArgument {
  std::uint32_t span;  // in its piece
  SpanArgument argument;
};

struct GpuPiece {
  std::vector<GpuSpan> spans;
  std::vector<GpuArgument> arguments;  // in the order of their spans
};

// Spans are kept in pieces, so that memory grows only by new ones and pieces can be taken away.
class GpuSpans {
 public:
  /// Whether another piece is full.
  bool add(const GpuSpan& span, std::span<const SpanArgument> arguments) {
    if (pieces_.empty() || is_full(pieces_.back())) pieces_.emplace_back().spans.reserve(Recorder::kChunkRecords);
    GpuPiece& piece = pieces_.back();
    const auto at = static_cast<std::uint32_t>(piece.spans.size());
    for (const SpanArgument& argument : arguments) piece.arguments.push_back({at, argument});
    argument_count_ += arguments.size();
    piece.spans.push_back(span);
    return is_full(piece);
  }
  std::size_t size() const {
    return pieces_.empty() ? 0 : (pieces_.size() - 1) * Recorder::kChunkRecords + pieces_.back().spans.size();
  }
  std::size_t bytes() const { return size() * sizeof(GpuSpan) + argument_count_ * sizeof(GpuArgument); }
  const std::deque<GpuPiece>& pieces() const { return pieces_; }
  /// The first piece if it is full or, with `is_part`, in any case.
  std::optional<GpuPiece> take_full(bool is_part = false) {
    if (pieces_.empty() || !(is_part || is_full(pieces_.front()))) return std::nullopt;
    GpuPiece first = std::move(pieces_.front());
    pieces_.pop_front();
    argument_count_ -= first.arguments.size();
    return first;
  }

 private:
  static bool is_full(const GpuPiece& piece) { return piece.spans.size() == Recorder::kChunkRecords; }
  std::deque<GpuPiece> pieces_;  // all full but the last
  std::size_t argument_count_ = 0;
};

// Memory of a device that is held for one purpose.
struct HeldNow {
  HeldFor what = HeldFor::other;
  int device = -1;
  std::int64_t bytes = 0;
};

using GpuTracks = std::vector<std::tuple<TrackKind, std::string, int>>;

// Sites that are registered together: ids from `sites.first` on.
struct SiteRange {
  SiteInfo info;
  TurnSites sites;
  std::int64_t holders = 0;  // of HeldSites
  bool stays = false;        // as long as the process
};

// The parts of a recording besides the spans of the host's threads, during the recording and after it.
struct BesideThreads {
  GpuTracks gpu_tracks;
  GpuSpans gpu_spans;
  std::vector<ReplayPart> parts;  // of the recorder's sites
  std::vector<Phase> phases;      // of the recorder's sites too
  std::vector<Limit> limits;
  std::vector<Memory> memory;
  std::vector<Sample> samples;
  std::vector<Note> notes;
  std::shared_ptr<ArgumentTexts> texts = std::make_shared<ArgumentTexts>();
};

// A recording that is over.
struct Recorder::Parts : BesideThreads {
  struct Thread {
    std::uint32_t number = 0;
    std::vector<std::shared_ptr<Chunk>> chunks;
    std::uint32_t used = 0;        // records of the last chunk; later ones came too late
    std::vector<SpanRecord> open;  // spans that have begun and not ended
    std::uint64_t dropped = 0;

    /// Calls `take` with the records of each chunk. Afterwards `open` has only spans that have not ended meanwhile.
    template <class Take>
    void for_each_chunk(Take&& take);
  };

  ClockPair started, stopped;
  SharedClocks shared_at_start, shared_at_end;
  Ticks window_end = 0;
  std::vector<Thread> threads;
  std::vector<HeldNow> held;       // as samples number them
  std::unique_ptr<Stream> stream;  // where all but this went
};

// Takes full chunks away and writes them to a file, in a thread of its own.
class Recorder::Stream {
 public:
  /// With an empty path a file that has no name. Error (file) when it cannot be made.
  Stream(Recording& recording, const std::string& path);
  ~Stream();

  /// Takes nothing away any more; under Recording::mutex.
  void cut() { is_cut_ = true; }
  /// The rest of the recording.
  void finish(Parts& rest);
  /// Reads everything that was written.
  Trace read() const;
  /// Whether anybody could read it but this process.
  bool has_name() const { return has_name_; }

 private:
  struct Full {
    std::uint32_t thread;
    std::shared_ptr<Chunk> chunk;
  };

  void run();
  std::vector<Full> take_full();
  void write(std::uint32_t thread, std::span<const SpanRecord> records);
  void write_clock(ClockPair pair);
  void write_anchor(const SharedClocks& at);
  void write_chunk(const Full& full);
  /// Writes a piece of GPU spans that is full or, with `is_part`, any.
  bool write_gpu_piece(bool is_part);
  void write_facts();
  void write_samples_so_far();
  void write_samples(std::span<const Sample> samples, std::span<const HeldNow> held);
  void write_gpu(const GpuPiece& piece, const GpuTracks& tracks);
  void write_rest(Parts& rest);
  void stop_thread();

  Recording& r_;
  const ClockPair started_;
  ClockPair last_;  // that was written
  std::int64_t last_anchor_ns_ = 0;
  const std::string host_ = clock_host();
  const bool has_name_;
  std::string path_;
  files::Descriptor descriptor_;
  std::optional<RecordingWriter> writer_;
  std::unordered_map<SiteId, SiteId> site_of_;        // recorder's id -> the file's
  std::unordered_map<std::uint32_t, EndOrder> ends_;  // per thread
  std::unordered_map<std::uint32_t, ArgumentsAhead> ahead_;
  const std::shared_ptr<ArgumentTexts> texts_;
  LiveFile* const live_;
  std::vector<StoredSpan> batch_;
  std::uint64_t bytes_ = 0;              // written
  std::size_t limits_ = 0, memory_ = 0;  // of the recording's that were written
  std::string problem_;                  // nothing was written since
  bool is_cut_ = false;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  const pid_t process_;  // a child of fork() has no such thread, and leaves it
  std::unique_ptr<std::thread> thread_;
};

struct Recorder::Recording : BesideThreads {
  /// Host and GPU spans in memory.
  std::size_t bytes_in_memory() const {
    return chunk_count * kChunkRecords * sizeof(SpanRecord) + gpu_spans.bytes() + samples.size() * sizeof(Sample);
  }
  /// Once there is much everything goes to a file, if there can be one.
  void stream_where_much();
  /// Adds a sample of one of `held`; none where the recording's state leaves it out.
  void add_sample(std::size_t of, std::int64_t ns);

  /// Called before a recording from outside begins, so that its spans survive this process.
  void make_live_file(const std::string& recording);
  /// Copies the arguments at the end of the calling thread's last chunk into its new one.
  static void repeat_arguments(const RecordCursor& full);
  /// Ends the recording and hands its parts over.
  std::unique_ptr<Parts> take(ClockPair stopped, Ticks window_end);

  std::mutex mutex;
  std::vector<std::shared_ptr<ThreadSpans>> threads;
  std::size_t chunk_count = 0;  // in memory, of this recording
  std::vector<std::shared_ptr<Chunk>> free_chunks;
  LiveFile* live = nullptr;  // of a recording from outside; it stays where it is when that is over
  std::uint64_t live_order = 0;
  std::unique_ptr<Stream> stream;
  std::string problem;  // why there is none though there is much
  std::uint32_t thread_count = 0;

  bool running = false;
  std::optional<RecorderOptions> options;
  ClockPair started;
  SharedClocks shared_at_start;
  std::vector<HeldNow> held;  // whether anything is recorded or not
  std::uint64_t dropped_samples = 0;
  std::vector<GpuSource> sources;
  bool goes_by_cupti = false;
  bool is_from_outside = false;  // `paoding profile` asked for it
  bool has_inside = false;       // the program has asked for one too

  /// Registers a site, or finds it.
  SiteRange& range_of(const SiteInfo& info, std::int64_t turns);
  /// Takes a registration of HeldSites back.
  void release(SiteId first);
  /// The facts of a site, by the recorder's id.
  SiteInfo site_info(SiteId site);
  ArgumentName argument_name(ArgumentId id);
  /// More of them that are free, once there are many ten at a time. Throws std::bad_alloc.
  void make_chunks();
  /// Chunks that nobody writes or reads any more are used again.
  void give_back(std::vector<std::shared_ptr<Chunk>>& chunks);

  std::mutex sites_mutex;
  std::map<SiteId, SiteRange> sites;                        // by the first
  std::map<std::string, SiteId> site_ranges;                // by their facts: the widest
  std::map<std::uint32_t, std::vector<SiteId>> free_sites;  // of ranges that are gone, by turns
  SiteId next_site = 0;
  bool has_recorded = false;
  std::vector<ArgumentName> argument_names;
  std::map<std::pair<std::string, ArgumentType>, ArgumentId> argument_ids;

  std::mutex control;  // start and stop, one at a time
  std::atomic<std::uint32_t> runs{0};
};

template <class Take>
void Recorder::Parts::Thread::for_each_chunk(Take&& take) {
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const std::span<const SpanRecord> records{chunks[c]->records, c + 1 < chunks.size() ? kChunkRecords : used};
    for (const SpanRecord& record : records) {
      if (open.empty()) break;
      std::erase_if(open, [&](const SpanRecord& o) { return o.site == record.site && o.start == record.start; });
    }
    take(records);
  }
}

}  // namespace paoding::profile
