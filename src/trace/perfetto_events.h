// SPDX-License-Identifier: Apache-2.0
// What the packets of a Perfetto trace say, with names looked up and times on one clock: tracks and what happened on
// them, in the order of the file. The numbers of fields are those of perfetto's trace_packet.proto and its parts.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/wire.h"

namespace paoding::trace {

/// A track's own description.
struct PerfettoTrack {
  std::uint64_t uuid = 0, parent = 0;
  std::string_view name;
  std::int64_t pid = -1, tid = -1;  // -1: it does not say
  std::string_view process_name;
  bool is_thread = false, is_counter = false;
  std::int64_t unit_multiplier = 1;
  bool is_incremental = false;  // a counter's values are added to those before
};

struct PerfettoArgument {
  enum class Type : std::uint8_t { number, real, text };
  std::string_view name;
  std::string_view text;
  std::int64_t number = 0;
  Type type = Type::number;
  double real() const { return std::bit_cast<double>(number); }
};

struct PerfettoEvent {
  enum class Type : std::uint8_t { begin, end, instant, counter, whole };
  std::int64_t ns = 0;
  std::int64_t value = 0;  // of a counter; of a whole event how long it lasted
  std::uint64_t track = 0;
  std::string_view name, category;
  std::uint32_t arguments_begin = 0, arguments_end = 0;  // into PerfettoEvents::arguments
  std::uint32_t flows_begin = 0, flows_end = 0;          // into PerfettoEvents::flows
  std::uint64_t correlation = 0;
  Type type = Type::instant;
  bool is_real = false;  // the value has the bits of a double
  double real() const { return std::bit_cast<double>(value); }
};

/// A stage of work on a GPU, which has a place of its own.
struct PerfettoGpuStage {
  std::int64_t ns = 0, duration_ns = 0;
  std::int64_t gpu = 0;
  std::uint64_t queue = 0;
  std::string_view queue_name, name;
  std::int64_t pid = 0;
  std::array<std::int64_t, 3> grid = {}, block = {};  // 0: not known
};

struct PerfettoEvents {
  std::unordered_map<std::uint64_t, PerfettoTrack> tracks;
  std::vector<PerfettoEvent> events;
  std::vector<PerfettoArgument> arguments;
  std::vector<std::uint64_t> flows;
  std::vector<PerfettoGpuStage> stages;
  std::deque<std::string> unpacked;  // what lay compressed

  // What was lost.
  std::uint64_t broken = 0;         // packets that are broken
  std::uint64_t dropped = 0;        // times that the tracing service dropped packets
  std::uint64_t without_names = 0;  // events whose names were in a packet that was dropped
  std::uint64_t without_clock = 0;  // events by a clock that nothing sets beside the others
  std::uint64_t not_unpacked = 0;   // compressed packets that could not be unpacked
  std::uint64_t other_data = 0;     // packets of kinds that are not read
};

/// Views in it are into `file` and its own `unpacked`.
PerfettoEvents read_perfetto_packets(std::string_view file);

}  // namespace paoding::trace
