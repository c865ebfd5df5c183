// SPDX-License-Identifier: Apache-2.0
// Readers of other profilers' files put all that they find here: a profile::Trace under construction, that checks each
// number, keeps sites and tracks apart and counts losses.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "profile/trace.h"

namespace paoding::trace {

/// Names of arguments that readers of different formats give by the same name.
namespace argument {
inline constexpr std::string_view kGrid = "grid";              // text "264x1x1"
inline constexpr std::string_view kBlock = "block";            // text "128x1x1"
inline constexpr std::string_view kRegisters = "registers";    // integer, of a thread
inline constexpr std::string_view kShared = "shared memory";   // integer, bytes of a block
inline constexpr std::string_view kOccupancy = "occupancy %";  // real
inline constexpr std::string_view kMemory = "memory";          // text "pageable" or "pinned", of a copy
inline constexpr std::string_view kShapes = "shapes";          // text as the file has it, of an op's inputs
inline constexpr std::string_view kTypes = "types";            // text as the file has it, of an op's inputs
inline constexpr std::string_view kConcrete =
    "concrete inputs";                                         // text as the file has it, of those that are no tensors
inline constexpr std::string_view kSequence = "sequence";      // integer: alike of an op and of its gradient
inline constexpr std::string_view kCollective = "collective";  // text "allreduce"
inline constexpr std::string_view kWait = "wait";              // text "Stream Wait Event", of a call that waits
inline constexpr std::string_view kStream = "stream";          // integer, that waits for an event or is waited for
inline constexpr std::string_view kEventStream = "event stream";  // integer, that recorded the event
inline constexpr std::string_view kSource = "source";             // text "model.py:12", where an op or a frame stands
}  // namespace argument

/// The site of a span, in strings of the sink (`text`).
struct Place {
  profile::SpanKind kind = profile::SpanKind::host;
  profile::StringId name = 0;      // as the file has it: "cudaLaunchKernel", a kernel's name
  profile::StringId op = 0;        // of kind op, and of GPU spans that say of which op they are: "aten::mm"
  profile::StringId scope = 0;     // "encoder/layer1"
  profile::StringId instance = 0;  // which of the ops of this type: "dot.42"
  profile::StringId kernel = 0;    // of a kernel its name again, so that `--kernels` gives it a row
  profile::Copy copy = profile::Copy::none;
  bool async = false;
  bool operator==(const Place&) const = default;
};

class TraceSink {
 public:
  explicit TraceSink(profile::Source source) : source_(source) {}

  // ---- where ----
  profile::StringId text(std::string_view text) { return trace_.intern(text); }
  /// Equal arguments give the same one. A number that is no process's (below 0, or too large) counts as 0.
  profile::ProcessId process(std::int64_t pid, int rank = -1, std::string_view name = "");
  /// Named by its number: "thread 1539" unless a name was given, of which the last one counts.
  profile::TrackId thread(profile::ProcessId process, std::int64_t tid, std::string_view name = "");
  profile::TrackId stream(profile::ProcessId process, std::int64_t device, std::int64_t stream,
                          std::string_view name = "");
  profile::SiteId site(const Place& place);

  // ---- spans and the rest ----
  /// False where the times are none that can be summed up, or the trace is full: then it is counted, and left out.
  bool is_sound(std::int64_t start_ns, std::int64_t duration_ns);
  /// The span, or kNone where it is left out.
  profile::SpanId add(const profile::Span& span);
  /// Beside spans: arguments (add_column, add_argument), counters, samples, anchors, flows, limits.
  profile::Trace& trace() { return trace_; }
  /// Correlations of more than 32 bits; alike ones give the same.
  std::uint32_t correlation(std::uint64_t number);
  /// So many of something that the file lost, or that nothing could be made of: one note of each text.
  void lose(std::string_view what, std::uint64_t count = 1, profile::Note::Kind kind = profile::Note::Kind::other);

  /// The finished trace: with notes of losses, and of work of GPUs that nothing in the file launched.
  profile::Trace finish();

 private:
  std::uint64_t count_too_long() const;
  struct PlaceHash {
    std::size_t operator()(const Place& place) const;
  };

  const profile::Source source_;
  profile::Trace trace_;
  std::map<std::pair<profile::ProcessId, std::int64_t>, profile::TrackId> threads_;
  std::map<std::tuple<profile::ProcessId, std::int64_t, std::int64_t>, profile::TrackId> streams_;
  std::unordered_map<Place, profile::SiteId, PlaceHash> sites_;
  std::unordered_map<std::uint64_t, std::uint32_t> large_correlations_;
  std::map<std::string, std::pair<std::uint64_t, profile::Note::Kind>, std::less<>> lost_;
};

}  // namespace paoding::trace
