// SPDX-License-Identifier: Apache-2.0
// Trace: all that was seen. Every source (the recorder, CUPTI, importers) fills one; reports, timelines and diffs read
// it. Columns, not objects: a span costs 40 bytes, and all text and constant facts sit once in its Site.
#pragma once

#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/launch_shape.h"
#include "base/unit_rates.h"
#include "profile/clock.h"

namespace paoding::profile {

using StringId = std::uint32_t;  // 0 is ""
using TrackId = std::uint32_t;
using SiteId = std::uint32_t;
using SpanId = std::uint32_t;
using CounterId = std::uint32_t;
using ProcessId = std::uint32_t;
using ColumnId = std::uint32_t;
inline constexpr std::uint32_t kNone = 0xffffffffu;

enum class TrackKind : std::uint8_t { thread, stream, copy_engine };

/// Who recorded a process, which says how its spans are meant. An op of paoding's that has no phases computes; one of
/// another framework hands its work to a GPU if its thread launches any.
enum class Source : std::uint8_t { paoding, pytorch, jax, tensorflow, nsight_systems, perfetto, rocprof, chrome };
inline constexpr int kSources = static_cast<int>(Source::chrome) + 1;
/// "paoding", "PyTorch (Kineto)", ...
std::string_view to_string(Source source);

/// Where tracks and counters are. One that nobody told of is {}.
struct Process {
  std::int32_t pid = 0;    // 0: not known
  std::int32_t rank = -1;  // among those that work together; -1: alone
  StringId name = 0;       // of the program
  Source source = Source::paoding;
  bool operator==(const Process&) const = default;
};

/// A track of a thread that is none, in traces of others: their profiler and the driver work on threads that are
/// not known. It counts by its kinds, and has no budget.
inline constexpr std::string_view kOverheadTrack = "overhead of the profiler and the driver";

/// A line on which spans follow or contain each other.
struct Track {
  TrackKind kind = TrackKind::thread;
  StringId name = 0;         // "thread0", "stream 7"
  std::int32_t device = -1;  // GPU number; -1 for threads
  ProcessId process = 0;
};

/// The kind of a span. Outer kinds come first: of two spans with equal times the lower kind contains the other.
enum class SpanKind : std::uint8_t {
  range,        // a stretch that the user named; paoding's work inside it has spans of its own
  run,          // one execution of a program, from call to return
  compile,      // making a program; whatever lies inside is not run time
  op,           // all that is done for one op or one fused group
  infer_shape,  // the three phases of an op ...
  prepare,      // ... everything besides computing: copies, staging, casts, layout changes
  compute,      // ... its kernels, on the CPU or (as seen by the host) on the GPU
  feed,         // values handed in
  fetch,        // values handed out
  memcpy,       // direction in Site::copy
  memset,
  launch,     // handing work to a GPU
  wait,       // the host waiting for a GPU or another thread
  kernel,     // one kernel, normally on a stream's track
  work,       // one thread's part of a parallel region
  host,       // any other host work, known by its name only
  recording,  // the recorder's own work
  replay,     // a launch of a graph on a GPU, of which only the ends were stamped: Trace::parts() has its kernels
  instant,    // a moment that has a name, and no length
  step,       // one turn of a loop, as a user or a framework marked it: steps are timed by them where there are any
  frame,      // a function or module of the user's language that was on the stack: on timelines, without a row
};
inline constexpr int kSpanKinds = static_cast<int>(SpanKind::frame) + 1;

enum class Copy : std::uint8_t { none, host_to_device, device_to_host, same_device, device_to_device, host_to_host };

/// Names: "run", "infer_shape", "prepare_data", ...
std::string_view to_string(SpanKind kind);
/// Names: "GPU->CPU", ...
std::string_view to_string(Copy copy);

/// The facts about a place in a program that are the same each time it runs, as its author writes them.
struct SiteInfo {
  struct Member {
    std::string op = {};
    std::int64_t bytes = 0;
  };
  std::string name = {};      // the word of a timeline: kernel name, "wait for fetch"; may be empty when `op` is set
  std::string op = {};        // op type, "slice"; empty when no op is concerned
  std::string scope = {};     // the user's scope, "encoder/layer1"
  std::string instance = {};  // which of the ops of this type, "slice1"
  std::string kernel = {};    // how it ran: a kernel's symbol, or who computes it; empty where that is not known
  SpanKind kind = SpanKind::host;
  Copy copy = Copy::none;
  bool async = false;                // memcpy only: the host does not wait for the copy
  std::int64_t bytes = 0;            // moved or touched; 0 is unknown
  double flops = 0;                  // 0 is unknown
  Unit unit = Unit::none;            // that does them
  std::vector<Member> members = {};  // the ops of a fused group, in order; empty for a single op
  std::string shapes = {};           // inputs and results, "f32[8,64], f32[64,16] -> f32[8,16]"; empty: not known
  LaunchShape launch = {};           // of a kernel on a GPU
};

/// SiteInfo inside a Trace: text interned.
struct Site {
  StringId name = 0, op = 0, scope = 0, instance = 0, kernel = 0;
  SpanKind kind = SpanKind::host;
  Copy copy = Copy::none;
  bool async = false;
  std::int64_t bytes = 0;
  double flops = 0;
  Unit unit = Unit::none;
  std::uint32_t members_begin = 0, members_end = 0;  // into Trace::members()
  StringId shapes = 0;
  LaunchShape launch = {};
};

struct Member {
  StringId op = 0;
  std::int64_t bytes = 0;
};

/// One thing that happened, as a source adds it.
struct Span {
  TrackId track = 0;
  SiteId site = 0;
  std::int64_t start_ns = 0;  // of steady_ns() (clock.h), for every source: a source converts
  std::int64_t duration_ns = 0;
  std::uint32_t run = 0;          // number of the execution it belongs to; 0: its parent's or its cause's
  std::uint32_t correlation = 0;  // of a process: shared by a host span and the GPU spans it caused; 0: none
  SpanId parent = kNone;          // kNone: finish() finds the innermost span of the track that contains it
  SpanId cause = kNone;           // the span on another track that started it; kNone: finish() looks for it
  std::int64_t bytes = -1;        // -1: the site's
  double flops = -1;              // -1: the site's
};

/// One span goes on with something that another one made or brought: a span may be at either end of many.
struct Flow {
  SpanId from = 0, to = 0;
  auto operator<=>(const Flow&) const = default;
};

enum class ArgumentType : std::uint8_t { integer, real, text };

/// The type of an argument; text is interned.
struct Argument {
  ColumnId column = 0;
  std::uint64_t bits = 0;
  bool operator==(const Argument&) const = default;
};

/// An argument that some spans carry, beside those of all: registers, a file's name.
struct ArgumentColumn {
  StringId name = 0;
  ArgumentType type = ArgumentType::integer;
  std::vector<SpanId> of = {};           // after finish() in their order, each once
  std::vector<std::uint64_t> bits = {};  // for each
  std::int64_t integer(std::size_t at) const { return static_cast<std::int64_t>(bits[at]); }
  double real(std::size_t at) const { return std::bit_cast<double>(bits[at]); }
  StringId text(std::size_t at) const { return static_cast<StringId>(bits[at]); }
};

/// How a span that is longer than the trace's window was cut.
struct Cut {
  bool at_start = false, at_end = false;
  bool operator==(const Cut&) const = default;
};

/// The parts of a graph's replays, from those that were stamped in full: so many calls of a site took so long.
struct ReplayPart {
  SiteId replay = 0;
  SiteId site = kNone;  // kNone: replays as a whole
  std::uint64_t calls = 0;
  std::int64_t ns = 0;
  bool operator==(const ReplayPart&) const = default;
};

/// Where in a kernel its time went, by its own account: of all its calls together.
struct Phase {
  SiteId site = 0;
  std::string name;
  std::int64_t ns = 0;
  bool operator==(const Phase&) const = default;
};

/// A GPU with its abilities; 0 is not known.
struct Limit {
  std::int32_t device = 0;
  double bytes_per_ns = 0;  // read by a kernel that streams
  UnitRates flops_per_ns = {};
  std::string name = {};           // as it calls itself: "NVIDIA H200"
  std::int32_t sms = 0;            // multiprocessors, compute units of others
  std::int32_t threads_of_sm = 0;  // that are resident at once; they share the following
  std::int32_t registers_of_sm = 0, shared_of_sm = 0;
  bool operator==(const Limit&) const = default;
};

/// Memory that is held: by a program as a whole, and its largest parts at once.
struct Memory {
  std::int32_t device = -1;  // -1: of the host
  std::string of;            // "program of loss"
  std::string what;          // "arena", "input x"; inside of one that is in front of it: "decoder/matmul"
  bool is_inside = false;
  std::int64_t bytes = 0;
  bool operator==(const Memory&) const = default;
};

/// A number that changes over time: bytes that are held of a device.
struct Counter {
  std::int32_t device = -1;  // -1: of the host
  StringId name = 0;         // "arenas"
  ProcessId process = 0;
};

/// A counter's value from a moment on, until its next sample.
struct Sample {
  CounterId counter = 0;
  std::int64_t ns = 0;  // of steady_ns()
  std::int64_t value = 0;
  bool operator==(const Sample&) const = default;
};

/// A moment of a process by the trace's time and by the clocks that processes share (clock.h).
struct ClockAnchor {
  ProcessId process = 0;
  StringId host = 0;  // whose steady clock it is
  std::int64_t ns = 0, system_ns = 0, wall_ns = 0;
};

/// Something that could not be seen or was lost.
struct Note {
  enum class Kind : std::uint8_t { other, dropped, timeless, outside, estimated, span_cost };
  std::string text;         // "spans dropped because the recorder was full"
  std::uint64_t count = 0;  // 0: not countable
  Kind kind = Kind::other;  // the fate of so many records
};

enum class Links : std::uint8_t { to_find, known };

/// From a moment to another.
struct Window {
  std::int64_t start = 0, end = 0;
};

class Trace {
 public:
  Trace();
  Trace(Trace&&) = default;
  Trace& operator=(Trace&&) = default;
  Trace(const Trace&) = delete;  // the string index points into its own strings
  Trace& operator=(const Trace&) = delete;

  // ---- filling ----
  StringId intern(std::string_view text);
  /// Equal arguments give the same id; the first is 0, where tracks are that are not said to be anywhere.
  ProcessId add_process(int pid, int rank, std::string_view name, Source source = Source::paoding);
  /// The same for all processes.
  void set_rank(int rank);
  /// Process by process, of each in the order of their times.
  void add_anchor(ProcessId process, std::string_view host, const SharedClocks& at);
  TrackId add_track(TrackKind kind, std::string_view name, int device = -1, ProcessId process = 0);
  void rename_track(TrackId track, std::string_view name) { tracks_[track].name = intern(name); }
  /// The same facts give the same id.
  SiteId add_site(const SiteInfo& info);
  /// Room for so many spans in all.
  void reserve(std::size_t spans);
  SpanId add(const Span& span);
  /// Equal arguments give the same id.
  ColumnId add_column(std::string_view name, ArgumentType type);
  /// For a span that was added, with the column's type; the last one of a column counts.
  void add_argument(SpanId span, ColumnId column, std::int64_t value);
  void add_argument(SpanId span, ColumnId column, double value);
  void add_argument(SpanId span, ColumnId column, std::string_view value);
  void add_text_argument(SpanId span, ColumnId column, StringId value);
  /// As ArgumentColumn::bits has it.
  void add_argument_bits(SpanId span, ColumnId column, std::uint64_t bits);
  /// Between spans that were added. The cause of a span need not be said once more.
  void add_flow(SpanId from, SpanId to);
  /// For a span that was cut before it was added.
  void set_cut(SpanId i, Cut cut);
  /// One that says the cost of a span is no note then.
  void add_note(std::string text, std::uint64_t count = 0, Note::Kind kind = Note::Kind::other);
  void add_part(const ReplayPart& part) { parts_.push_back(part); }
  void add_phase(Phase phase) { phases_.push_back(std::move(phase)); }
  void add_limit(const Limit& limit) { limits_.push_back(limit); }
  void add_memory(Memory memory) { memory_.push_back(std::move(memory)); }
  /// Equal arguments give the same id.
  CounterId add_counter(int device, std::string_view name, ProcessId process = 0);
  void add_sample(const Sample& sample);
  /// The stretch that was recorded, in ns of steady_ns(); said before the first add(). Spans are cut to it, and those
  /// outside of it, for which add() returns kNone, are counted in a note. Without one the window is from the first
  /// start to the last end, samples among them.
  void set_window(std::int64_t start_ns, std::int64_t end_ns);
  /// Must be called after the last add() and before anything reads: sorts the spans by track, start and containment
  /// (so ids change, and a parent comes before its children), links parents, causes and runs. Links::known: they are
  /// as they were when another trace was finished, of which these are the spans.
  void finish(Links links = Links::to_find);

  // ---- reading (after finish) ----
  std::size_t size() const { return start_.size(); }
  std::int64_t start(SpanId i) const { return start_[i]; }
  std::int64_t duration(SpanId i) const { return duration_[i]; }
  std::int64_t end(SpanId i) const { return start_[i] + duration_[i]; }
  TrackId track_id(SpanId i) const { return track_[i]; }
  SiteId site_id(SpanId i) const { return site_[i]; }
  const Site& site(SpanId i) const { return sites_[site_[i]]; }
  const Track& track(SpanId i) const { return tracks_[track_[i]]; }
  SpanKind kind(SpanId i) const { return sites_[site_[i]].kind; }
  bool on_gpu(SpanId i) const { return tracks_[track_[i]].kind != TrackKind::thread; }
  SpanId parent(SpanId i) const { return parent_[i]; }
  SpanId cause(SpanId i) const { return cause_[i]; }
  std::uint32_t run(SpanId i) const { return run_[i]; }
  std::int64_t bytes(SpanId i) const;
  double flops(SpanId i) const;
  Cut cut(SpanId i) const { return cut_.empty() ? Cut{} : cut_[i]; }
  /// The site's name, or its op when it has none.
  std::string_view name(SpanId i) const;
  /// Before finish(): whether the spans stand in its order, and parents and causes that were added are such as it
  /// could have found.
  bool has_sound_links() const;
  void forget_links();
  /// As it was added, with all that finish() found.
  Span span(SpanId i) const;
  SiteInfo site_info(SiteId i) const;

  std::string_view text(StringId id) const { return strings_[id]; }
  const std::vector<Track>& tracks() const { return tracks_; }
  const std::vector<Process>& processes() const { return processes_; }
  /// Who recorded the span's process.
  Source source(SpanId i) const {
    const ProcessId process = tracks_[track_[i]].process;
    return process < processes_.size() ? processes_[process].source : Source::paoding;
  }
  /// "rank 1", "process 4711"; "" where there is one process only.
  std::string process_name(ProcessId id) const;
  /// Sorted by process, and in the order of their times.
  const std::vector<ClockAnchor>& anchors() const { return anchors_; }
  /// The part of the window in which a process was recorded: from its first anchor to its last where there are several.
  Window window_of(ProcessId id) const;
  /// "thread0"; "rank 1 thread0" where there are several processes.
  std::string track_name(TrackId id) const;
  const std::vector<ArgumentColumn>& columns() const { return columns_; }
  /// Those that were added, and from feeds to the launch of the run that reads them; each once, in order.
  const std::vector<Flow>& flows() const { return flows_; }
  const std::vector<Site>& sites() const { return sites_; }
  const std::vector<Member>& members() const { return members_; }
  const std::vector<Note>& notes() const { return notes_; }
  const std::vector<ReplayPart>& parts() const { return parts_; }
  const std::vector<Phase>& phases() const { return phases_; }
  const std::vector<Limit>& limits() const { return limits_; }
  const std::vector<Memory>& memory() const { return memory_; }
  const std::vector<Counter>& counters() const { return counters_; }
  /// Sorted by counter, in the order of their times, in the window; none says the same as the one before it.
  const std::vector<Sample>& samples() const { return samples_; }
  /// The cost of a span for the thread that wrote it, in ns; 0 is not known.
  std::uint64_t span_cost_ns() const { return span_cost_ns_; }
  /// The abilities that all GPUs of the trace share; 0 where they differ or it is not known.
  Limit common_limit() const;
  /// Spans of kind run, in order: the executions.
  const std::vector<SpanId>& runs() const { return runs_; }
  /// The window: all spans lie in it.
  std::int64_t window_start() const { return window_start_; }
  std::int64_t window_end() const { return window_end_; }
  std::int64_t wall_ns() const { return window_end_ - window_start_; }
  /// First start and last end of all spans; 0 when there are none.
  std::int64_t first_ns() const { return first_ns_; }
  std::int64_t last_ns() const { return last_ns_; }

 private:
  bool comes_before(SpanId a, SpanId b) const;
  bool is_around(SpanId a, SpanId b) const;
  std::vector<SpanId> by_track() const;
  void sort_spans();
  void link_parents();
  void link_causes();
  void link_feeds();
  void add_bits(SpanId span, ColumnId column, ArgumentType type, std::uint64_t bits);
  void sort_columns();
  void sort_samples();

  std::deque<std::string> strings_;  // a deque: its strings never move
  std::unordered_map<std::string_view, StringId> string_ids_;
  std::unordered_map<std::string, SiteId> site_ids_;
  std::vector<Process> processes_;
  std::vector<ClockAnchor> anchors_;
  std::vector<Track> tracks_;
  std::vector<Site> sites_;
  std::vector<Member> members_;
  std::vector<Note> notes_;
  std::vector<ReplayPart> parts_;
  std::vector<Phase> phases_;
  std::vector<Limit> limits_;
  std::vector<Memory> memory_;
  std::vector<Counter> counters_;
  std::vector<Sample> samples_;
  std::vector<ArgumentColumn> columns_;
  std::vector<Flow> flows_;

  // one entry per span
  std::vector<std::int64_t> start_, duration_;
  std::vector<TrackId> track_;
  std::vector<SiteId> site_;
  std::vector<std::uint32_t> run_, correlation_;
  std::vector<SpanId> parent_, cause_;
  // empty until a span says other than its site
  std::vector<std::int64_t> bytes_;
  std::vector<double> flops_;
  std::vector<Cut> cut_;

  std::uint64_t span_cost_ns_ = 0;
  bool has_window_ = false;
  std::int64_t window_start_ = 0, window_end_ = 0;
  std::uint64_t outside_ = 0;  // spans that are not in the window
  std::vector<SpanId> runs_;
  std::int64_t first_ns_ = 0, last_ns_ = 0;
};

/// The arguments of spans, for who goes through those in their order.
class ArgumentsInOrder {
 public:
  explicit ArgumentsInOrder(const Trace& trace) : trace_(trace), at_(trace.columns().size(), 0) {}
  /// Calls `take` with the column and the place in it of every argument of a span, which is behind the one before.
  template <class Take>
  void for_each(SpanId span, Take&& take) {
    for (std::size_t c = 0; c < at_.size(); ++c) {
      const ArgumentColumn& column = trace_.columns()[c];
      while (at_[c] < column.of.size() && column.of[at_[c]] < span) ++at_[c];
      if (at_[c] < column.of.size() && column.of[at_[c]] == span) take(column, at_[c]);
    }
  }

 private:
  const Trace& trace_;
  std::vector<std::size_t> at_;
};

}  // namespace paoding::profile
