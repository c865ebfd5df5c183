// SPDX-License-Identifier: Apache-2.0
// Recorder: how a running program writes spans. Off, it costs one relaxed load; on, two time stamps and a 24-byte store
// into the thread's own chunk: no lock, no text, no allocation but for a new chunk every kChunkRecords spans.
//
//   static const SiteId site = Recorder::add_site({.name = "feed", .kind = SpanKind::feed});   // once
//   SpanScope seen(site);                                                                      // each time
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "paoding/profile.h"
#include "profile/clock.h"
#include "profile/held_bytes.h"
#include "profile/trace.h"

namespace paoding::profile {

/// A time stamp of the fastest steady clock there is: the CPU's counter where it never stops or changes its rate,
/// else steady_ns(). A recording converts.
using Ticks = std::uint64_t;

/// One span as it is written; with the site kNone an argument of one (Recorder::argument).
struct SpanRecord {
  SiteId site;
  std::uint32_t run;
  Ticks start, end;
};

/// The sites of a place in a loop, one per turn.
struct TurnSites {
  SiteId first = 0;
  std::uint32_t turns = 1;

  SiteId at(std::int64_t turn) const { return first + (turn < turns ? static_cast<std::uint32_t>(turn) : turns - 1); }
};

/// The sites of a program, which go with it: a process that binds a program for every size that comes would keep their
/// names and shapes for ever. Once something has been recorded sites stay, for whoever reads that. Threads: one fills
/// it, any destroys it.
class HeldSites {
 public:
  HeldSites() = default;
  ~HeldSites();
  HeldSites(const HeldSites&) = delete;
  HeldSites& operator=(const HeldSites&) = delete;

  /// While it lives, sites that Recorder::add_held_sites registers on this thread are held.
  class Scope {
   public:
    explicit Scope(HeldSites* sites);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    HeldSites* around_;
  };

 private:
  friend class Recorder;
  std::vector<SiteId> first_;  // of each registration
};

/// The spans of a thread that have begun and not ended, for a recording that starts or stops meanwhile: outermost
/// first, the first few of them. Written by its thread, read by others.
struct OpenSpans {
  static constexpr std::uint32_t kMost = 8;
  struct Span {
    std::atomic<SiteId> site{0};
    std::atomic<std::uint32_t> run{0};
    std::atomic<Ticks> start{0};  // 0: began while nothing was being recorded
  };
  std::atomic<std::uint32_t> depth{0};
  std::array<Span, kMost> spans;

  /// How many there were.
  std::uint32_t push(SiteId site, std::uint32_t run, Ticks start) {
    const std::uint32_t at = depth.load(std::memory_order_relaxed);
    if (at < kMost) {
      spans[at].site.store(site, std::memory_order_relaxed);
      spans[at].run.store(run, std::memory_order_relaxed);
      spans[at].start.store(start, std::memory_order_relaxed);
    }
    depth.store(at + 1, std::memory_order_release);
    return at;
  }
  /// The innermost has ended; `left` is what push() returned.
  void pop(std::uint32_t left) { depth.store(left, std::memory_order_release); }
};

/// Where a thread writes next.
struct RecordCursor {
  SpanRecord* records = nullptr;
  std::uint32_t used = 0, limit = 0;
  std::atomic<std::uint32_t>* published = nullptr;
  std::uint64_t session = 0;
};

/// An argument of a span: the name lives as long as the process.
struct SpanArgument {
  const char* name;
  std::int64_t value;
};

/// Stands for the name and type of an argument of host spans; equal pairs have one id.
using ArgumentId = std::uint32_t;

/// Texts that are values of arguments in a recording.
class ArgumentTexts;

struct RecorderOptions {
  State state = State::all;
  Detail detail = Detail::op;
  /// The most memory of host spans. Long before, they begin to go to a file; spans are dropped where the disk is too
  /// slow.
  std::size_t max_bytes = std::size_t{64} << 20;
  /// From the start on everything goes to this file, which outlives a crash. Empty: to one without a name, when there
  /// is much.
  std::string file = {};
};

/// A part of the engine that records GPU work; it is called when a recording starts and stops.
struct GpuSource {
  std::function<void(State, Detail)> start;  // called before the first span is taken
  std::function<void()> stop;                // adds its spans (Recorder::add_gpu) and returns
  /// Begin and end a part of the recording that CUPTI records; stop ends it too.
  std::function<void()> begin_cupti = [] {}, end_cupti = [] {};
};

/// A recording that has ended, as it was written: a Trace when somebody asks for one, which takes its time.
class Recorded;

class Recorder {
 public:
  static constexpr std::uint32_t kChunkRecords = 8192;

  /// Whether host spans are wanted; ask before taking time stamps.
  static bool active() { return (flags_.load(std::memory_order_relaxed) & kHost) != 0; }
  /// Whether host spans inside ops (infer_shape, prepare, compute) are wanted too.
  static bool phases_active() { return (flags_.load(std::memory_order_relaxed) & kPhases) != 0; }
  /// Whether GPU spans are wanted.
  static bool gpu_active() { return (flags_.load(std::memory_order_relaxed) & kGpu) != 0; }

  static Ticks now() {
#if defined(__x86_64__)
    if (counter_is_steady_) [[likely]]
      return __rdtsc();
#endif
    return static_cast<Ticks>(steady_ns());
  }

  /// Registers a place in a program, at compile time; equal facts give the same id. Ids live as long as the process.
  static SiteId add_site(const SiteInfo& info);
  /// Registers a place in a loop: from the second turn on instances end in "@1", "@2", ... However many turns there are
  /// costs nothing. Where ids have become few, the turns share one.
  static TurnSites add_sites(const SiteInfo& info, std::int64_t turns);
  /// The same for a place in a program, whose ids live as long as the HeldSites of this thread's Scope.
  static TurnSites add_held_sites(const SiteInfo& info, std::int64_t turns);

  /// The site for events of `site` that ran as this kernel.
  static SiteId run_as(SiteId site, const std::string& kernel);

  /// Writes one span of the calling thread. `run` numbers the execution: needed on the run's own span and on launches
  /// (0 elsewhere: spans take it from the span around them). Returns `end`, or the time behind it when the recorder has
  /// got memory for more.
  static Ticks complete(SiteId site, Ticks start, Ticks end, std::uint32_t run = 0) {
    RecordCursor& at = cursor_;
    Ticks behind = end;
    if (at.used == at.limit || at.session != session_.load(std::memory_order_relaxed)) [[unlikely]] {
      const bool has_room = next_chunk();
      behind = now();
      if (!has_room) return behind;
    }
    at.records[at.used] = {site, run, start, end};
    at.used += 1;
    // Publishes the record to stop(), which may run in another thread at this moment.
    at.published->store(at.used, std::memory_order_release);
    return behind;
  }

  /// Ids live as long as the process.
  static ArgumentId add_argument(const std::string& name, ArgumentType type);
  /// The bits of a text, of the recording under way; nothing where there is too much of it, which the recording notes.
  static std::optional<std::uint64_t> argument_text(std::string_view text);
  /// An argument of a span of the calling thread, in front of its complete(): of the one that began at `start`.
  static void argument(ArgumentId id, std::uint64_t bits, Ticks start) { complete(kNone, bits, start, id); }

  /// A moment of the calling thread's, of a site of that kind.
  static void instant(SiteId site) {
    if (!active()) return;
    const Ticks at = now();
    complete(site, at, at);
  }

  /// The calling thread's.
  static OpenSpans& open_spans() {
    if (open_ == nullptr) [[unlikely]]
      find_open_spans();
    return *open_;
  }

  /// In front of every run of a program: a recording that was asked for from outside may begin or end with it.
  static void before_run() {
    if (counts_runs_.load(std::memory_order_relaxed)) [[unlikely]]
      count_run();
  }

  /// A number for an execution, never 0.
  static std::uint32_t next_run();

  /// A track for add_gpu; valid until stop(). Equal arguments give the same id.
  static TrackId gpu_track(TrackKind kind, const std::string& name, int device);
  /// Writes one GPU span, timed elsewhere by steady_ns(). `correlation`: see Span. Any thread; takes a lock.
  static void add_gpu(SiteId site, std::uint32_t run, std::int64_t start_ns, std::int64_t duration_ns, TrackId track,
                      std::uint32_t correlation = 0, std::span<const SpanArgument> arguments = {});
  /// Adds a part of the launches of a graph: ReplayPart.
  static void add_part(SiteId replay, SiteId site, std::uint64_t calls, std::int64_t ns);
  /// Adds a part of a kernel's time: Phase.
  static void add_phase(SiteId site, std::string name, std::int64_t ns);
  /// Adds a limit of a GPU; once is enough.
  static void add_limit(const Limit& limit);
  /// Notes a gap of this recording; counts of equal texts add up.
  static void add_note(std::string text, std::uint64_t count = 0, Note::Kind kind = Note::Kind::other);
  /// Adds a fact about memory; once is enough.
  static void add_memory(const Memory& memory);
  /// So many bytes more, or fewer, of a device are held: a counter of the recording, if there is one.
  static void hold(HeldFor what, int device, std::int64_t more) noexcept;
  /// Counts recordings, so that a note that is wanted once in each can compare with its last one.
  static std::uint64_t session() { return session_.load(std::memory_order_relaxed); }
  /// Registers a source for all recordings to come.
  static void add_source(GpuSource source);

  /// Error (argument) when a recording is already under way. It is no error beside one that was asked for from outside,
  /// which goes on; end() then returns a recording with a note that everything is in the other.
  static void start(const RecorderOptions& options);
  /// Ends the recording. Error (argument) when there is none, or one only that was asked for from outside.
  static Recorded end();
  /// The same, as a Trace.
  static Trace stop();
  /// From here on the GPU's sources go by CUPTI. Returns which recording it is. Error (argument) when there is none, or
  /// they do already.
  static std::uint64_t begin_cupti();
  /// No longer, if that recording is still under way.
  static void end_cupti(std::uint64_t recording);
  static bool running();
  /// The time that one span costs its thread, measured once.
  static std::uint64_t span_cost_ns();
  /// Options of the recording under way or, when there is none, of the last one.
  static RecorderOptions options();

 private:
  static constexpr std::uint32_t kHost = 1, kGpu = 2, kPhases = 4;

  friend class Recorded;
  friend class HeldSites;
  struct Chunk;
  struct ThreadSpans;
  struct Recording;
  struct ThreadExit;
  struct Parts;
  class ToTrace;
  class Stream;

  static void release(const std::vector<SiteId>& held);
  static void begin(const RecorderOptions& options, bool is_from_outside);
  static void end_from_outside();
  static Recorded end_whole(Recording& r);
  static Recorded end_inside(Recording& r);
  static void count_run();
  static void leave_fork();
  static bool follow_environment();
  static void end_at_exit();
  static ThreadExit* this_thread();
  static OpenSpans& beyond_its_end();
  static std::vector<SpanRecord> open_of(const ThreadSpans& spans);
  static void find_open_spans();
  static bool next_chunk();
  static Recording& recording();

  static inline std::atomic<std::uint32_t> flags_{0};
  static inline std::atomic<std::uint64_t> session_{0};
  static const bool counter_is_steady_;
  static inline std::atomic<bool> counts_runs_{false};
  static const bool follows_environment_;  // behind the clock, which it needs
  // constinit: reaching them needs no guard; initial-exec: nor a call, and a library that is loaded late has room for
  // so little.
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local RecordCursor cursor_{};
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local OpenSpans* open_ = nullptr;
};

class Recorded {
 public:
  Recorded(Recorded&& other) noexcept;
  Recorded& operator=(Recorded&&) = delete;
  /// A recording that goes to a file is whole in it then.
  ~Recorded();
  /// Once.
  Trace to_trace();

 private:
  friend class Recorder;
  explicit Recorded(std::unique_ptr<Recorder::Parts> parts);

  std::unique_ptr<Recorder::Parts> parts_;
};

/// Whether a recording that starts during a span records it. Long spans ask for that, which costs some stores when
/// nothing is recorded.
enum class Known : std::uint8_t { while_recording, always };

/// The spans of a thread that goes through a list: each begins where the one before it has ended, so that a span costs
/// one reading of the clock. The time between two of them, the recorder's few ns included, belongs to the later one.
class SpanList {
 public:
  /// When the next span begins.
  Ticks now() const { return at_; }
  /// Records the time since the last span ended as a span. Returns its begin.
  Ticks complete(SiteId site) {
    const Ticks start = at_;
    at_ = Recorder::complete(site, start, end_ = read());
    return start;
  }
  /// The end of the last span.
  Ticks end() const { return end_; }
  /// Leaves out the time since the last span.
  Ticks skip() { return std::exchange(at_, end_ = read()); }

 private:
  // The counter is read out of order: of two readings with little in between the second may be less.
  Ticks read() const { return std::max(Recorder::now(), at_); }
  Ticks at_ = Recorder::now(), end_ = at_;
};

/// Records its own lifetime as a span.
template <Known kKnown>
class BasicSpanScope {
 public:
  explicit BasicSpanScope(SiteId site, std::uint32_t run = 0) : site_(site), run_(run) {
    if (Recorder::active()) [[unlikely]]
      start_ = Recorder::now();
    if (start_ == 0 && kKnown == Known::while_recording) [[likely]]
      return;
    open_ = &Recorder::open_spans();
    around_ = open_->push(site, run, start_);
  }
  ~BasicSpanScope() {
    if (kKnown == Known::always ? Recorder::active() : start_ != 0) [[unlikely]]
      Recorder::complete(site_, start_, Recorder::now(), run_);
    if (kKnown == Known::always || start_ != 0) [[unlikely]]
      open_->pop(around_);
  }
  BasicSpanScope(const BasicSpanScope&) = delete;
  BasicSpanScope& operator=(const BasicSpanScope&) = delete;

 private:
  SiteId site_;
  std::uint32_t run_;
  Ticks start_ = 0;  // 0: began while nothing was recorded
  OpenSpans* open_;  // the thread's, where it is among them, with so many around it
  std::uint32_t around_;
};
using SpanScope = BasicSpanScope<Known::while_recording>;
using LongSpanScope = BasicSpanScope<Known::always>;

}  // namespace paoding::profile
