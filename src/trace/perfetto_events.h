// SPDX-License-Identifier: Apache-2.0
// The packets of a Perfetto trace, one after the other as they stand in the file, with names looked up and
// times on one clock. The numbers of fields are those of perfetto's trace_packet.proto and its parts.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "trace/json_strings.h"
#include "trace/trace_file.h"
#include "trace/wire.h"

namespace paoding::trace {

/// A text of the trace: its number in PerfettoTexts. 0 is "".
using PerfettoText = std::uint32_t;
using PerfettoTexts = RawStrings;

/// A track's own description.
struct PerfettoTrack {
  std::uint64_t uuid = 0, parent = 0;
  PerfettoText name = 0, process_name = 0;
  std::int64_t pid = -1, tid = -1;  // -1: it does not say
  bool is_thread = false, is_counter = false;
  std::int64_t unit_multiplier = 1;
  bool is_incremental = false;  // a counter's values are added to those before
  bool operator==(const PerfettoTrack&) const = default;
};

struct PerfettoArgument {
  enum class Type : std::uint8_t { number, real, text };
  PerfettoText name = 0;
  Type type = Type::number;
  std::uint64_t bits = 0;
  std::int64_t number() const { return static_cast<std::int64_t>(bits); }
  PerfettoText text() const { return static_cast<PerfettoText>(bits); }
};

struct PerfettoEvent {
  enum class Type : std::uint8_t { begin, end, instant, counter, whole };
  std::int64_t ns = 0;
  std::int64_t value = 0;  // of a counter; of a whole event how long it lasted
  std::uint64_t track = 0;
  std::uint64_t correlation = 0;
  PerfettoText name = 0, category = 0;
  Type type = Type::instant;
  bool is_real = false;  // the value has the bits of a double
  double real() const { return std::bit_cast<double>(value); }
};

/// A stage of work on a GPU, which has a place of its own.
struct PerfettoGpuStage {
  std::int64_t ns = 0, duration_ns = 0;
  std::int64_t gpu = 0;
  std::uint64_t queue = 0;
  PerfettoText queue_name = 0, name = 0;
  std::int64_t pid = 0;
  std::array<std::int64_t, 3> grid = {}, block = {};  // 0: not known
};

/// Takes tracks and events in the order of their packets.
class PerfettoTaker {
 public:
  virtual ~PerfettoTaker() = default;
  virtual void take(const PerfettoTrack& track) = 0;
  virtual void take(const PerfettoEvent& event, std::span<const PerfettoArgument> arguments,
                    std::span<const std::uint64_t> flows) = 0;
  virtual void take(const PerfettoGpuStage& stage) = 0;
  /// No more is wanted.
  virtual bool is_done() const = 0;
};

struct PerfettoLosses {
  std::uint64_t broken = 0;         // packets that are broken
  std::uint64_t dropped = 0;        // times that the tracing service dropped packets
  std::uint64_t without_names = 0;  // events whose names were in a packet that was dropped
  std::uint64_t without_clock = 0;  // events by a clock that nothing sets beside the others
  std::uint64_t not_unpacked = 0;   // compressed packets that could not be unpacked
  std::uint64_t other_data = 0;     // packets of kinds that are not read
};

/// From where the file is at to its end, some at a time. A second thread reads the packets of a large file ahead.
PerfettoLosses read_perfetto_packets(TraceFile& file, PerfettoTexts& texts, PerfettoTaker& taker);
/// The same on this thread alone.
PerfettoLosses read_perfetto_packets_here(TraceFile& file, PerfettoTexts& texts, PerfettoTaker& taker);

}  // namespace paoding::trace
