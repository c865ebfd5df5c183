// SPDX-License-Identifier: Apache-2.0
// Recordings in files (recording_format.h): written whole from a Trace, or piece by piece while something is recorded.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "profile/recording_format.h"
#include "profile/trace.h"

namespace paoding::profile {

/// A span in a file: ids are the file's own.
struct StoredSpan {
  SiteId site = 0;
  std::uint32_t run = 0, correlation = 0;
  SpanId parent = kNone, cause = kNone;
  std::uint64_t start = 0, end = 0;  // ns of steady_ns() or, of a host's track, ticks of the recorder's clock
  Cut cut = {};
  std::int64_t bytes = -1;  // see Span
  double flops = -1;
  std::uint32_t arguments_begin = 0, arguments_end = 0;  // of those that are given with the spans
};

/// Text that an argument's bits stand for.
using TextOfId = std::function<std::string_view(StringId)>;

/// Which clock the times of a chunk of spans are of.
enum class StoredClock : std::uint8_t { nanoseconds, ticks };

/// Makes chunks and hands each to `write`. Where that gives it to the operating system, a process that dies loses
/// nothing that was handed over. Exceptions of `write` are passed on.
class RecordingWriter {
 public:
  using Write = std::function<void(std::string_view)>;
  explicit RecordingWriter(Write write);

  void window(std::int64_t start_ns, std::int64_t end_ns);
  void clock(std::uint64_t ticks, std::int64_t ns);
  void anchor(ProcessId process, std::string_view host, const SharedClocks& at);
  /// The file's ids; the same facts give the same id.
  ProcessId process(int pid, int rank, std::string_view name, Source source = Source::paoding);
  TrackId track(TrackKind kind, std::string_view name, int device, ProcessId process = 0);
  ColumnId column(std::string_view name, ArgumentType type);
  SiteId site(const SiteInfo& info);
  /// `first`: the number of the first of them, in a file of a finished trace, whose links are kept; kNone in others.
  /// `arguments`: of all of them, of the file's columns; `text_of` gives the text of an id.
  void spans(TrackId track, StoredClock clock, std::span<const StoredSpan> spans, SpanId first = kNone,
             std::span<const Argument> arguments = {}, const TextOfId& text_of = {});
  /// Between spans that were written, by their numbers among all of the file.
  void flows(std::span<const Flow> flows);
  void note(const Note& note);
  void memory(const Memory& memory);
  /// The file's id; equal arguments give the same.
  CounterId counter(int device, std::string_view name, ProcessId process = 0);
  /// Samples of the file's counters.
  void samples(std::span<const Sample> samples);
  void part(const ReplayPart& part);
  void phase(const Phase& phase);
  void limit(const Limit& limit);
  /// The last chunk, without which a reader says that something is missing.
  void finish();

 private:
  void put(ChunkType type, const BodyWriter& body);
  void put_names();

  const Write write_;
  BodyWriter processes_, tracks_, sites_, counters_, columns_;  // not yet written
  std::map<std::tuple<int, int, std::string, Source>, ProcessId> process_ids_;
  std::map<std::tuple<TrackKind, std::string, int, ProcessId>, TrackId> track_ids_;
  std::vector<ArgumentType> column_types_;
  std::map<std::pair<std::string, ArgumentType>, ColumnId> column_ids_;
  std::unordered_map<std::string, SiteId> site_ids_;
  std::map<std::tuple<int, std::string, ProcessId>, CounterId> counter_ids_;
};

/// Everything that the finished trace holds. Error (file).
void write_recording(const Trace& trace, const std::string& path);

/// A finished Trace. A note says how much is missing or broken at the end. Error (file) when the file is no recording.
Trace read_recording(const std::string& path);
/// The same for a program that was killed, with the spans that it still had in memory (live_file.h).
Trace read_recording_of_killed(const std::string& path);
/// The same for a file's content in memory; `name` is for errors.
Trace read_recording_text(std::string_view file, const std::string& name);

}  // namespace paoding::profile
