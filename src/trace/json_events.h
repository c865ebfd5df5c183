// SPDX-License-Identifier: Apache-2.0
// The events of a JSON trace as they stand in it: Chrome's trace format with the categories and arguments that
// PyTorch's Kineto, XLA and TensorFlow write. Their meaning is for json_build.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "trace/json_strings.h"
#include "trace/trace_file.h"

namespace paoding::trace {

/// From the event's `cat`; a name of one era stands for that of the others.
enum class Category : std::uint8_t {
  none,
  op,              // cpu_op, Operator
  annotation,      // user_annotation
  gpu_annotation,  // gpu_user_annotation: a copy of those on the GPU's rows
  kernel,
  memcpy,
  memset,
  runtime,  // cuda_runtime, cuda_driver, Runtime
  python,   // python_function
  memory,   // cpu_instant_event: "[memory]"
  sync,     // cuda_sync
  overhead,
  trace,  // the profiler's own
  other,
};

/// An argument that is read; text is a number of RawStrings, reals are bits of a double, others integers.
enum class ArgKey : std::uint8_t {
  sequence,
  forward_thread,
  shapes,    // text
  types,     // text
  concrete,  // text, of convolutions and attention: inputs that are no tensors
  grid,      // text
  block,     // text
  details,   // text, of XLA: kernel_details, memcpy_details
  registers,
  shared,
  occupancy,  // real
  bytes,
  device,
  stream,
  sync_kind,     // text, of cuda_sync
  event_stream,  // and the call that recorded the event
  event_record,
  collective,  // text
  name,        // text
  hlo_op,      // text
  hlo_module,  // text
  tf_op,       // text
  op,          // text, of TensorFlow
  step,
  allocated,
  reserved,
  device_type,
  counter,        // text: of ph C, in front of its value
  counter_value,  // integer
};

struct RawEvent {
  std::int64_t start_ns = 0, duration_ns = 0;
  std::uint32_t name = 0;   // of RawStrings
  std::uint32_t place = 0;  // of Places
  std::uint32_t correlation = 0;
  std::uint32_t args_begin = 0;
  std::uint8_t args = 0;  // how many
  Category category = Category::none;
  char phase = 0;
  bool has_start = false;
};

/// A number, or the number of a text.
struct Id {
  std::int64_t value = 0;
  bool is_text = false;
  bool operator==(const Id&) const = default;
};

struct RawPlace {
  Id pid, tid;
  bool operator==(const RawPlace&) const = default;
};

/// Texts and places that one thread has met: their numbers are its own.
struct Names {
  RawStrings strings;
  std::vector<RawPlace> places;
  struct Hash {
    std::size_t operator()(const RawPlace& place) const {
      const auto mix = [](const Id& id) {
        return static_cast<std::uint64_t>(id.value) * 0x9e3779b97f4a7c15ull + (id.is_text ? 1 : 0);
      };
      return static_cast<std::size_t>(mix(place.pid) * 31 + (mix(place.tid) >> 7));
    }
  };
  std::unordered_map<RawPlace, std::uint32_t, Hash> place_numbers;
  std::uint32_t last_place = 0;

  std::uint32_t place(const RawPlace& place);
};

/// Counts of elements that are no event that a trace can hold.
struct Losses {
  std::uint64_t broken = 0;                                 // events that are no JSON
  std::uint64_t no_events = 0;                              // elements that are no objects
  std::uint64_t incomplete = 0;                             // without a phase
  std::uint64_t bad_times = 0;                              // that are no numbers
  std::uint64_t doubled_keys = 0;                           // the last one counts
  std::uint64_t flows = 0;                                  // not needed: work is joined by correlation
  std::uint64_t large_numbers = 0;                          // correlations that do not fit
  std::uint64_t first_broken = 0;                           // its byte in the content
  std::map<std::string, std::uint64_t> phases, categories;  // unknown ones
  void add(const Losses& more);
};

struct EventBlock {
  std::uint32_t names = 0;  // whose
  std::vector<RawEvent> events;
  std::vector<ArgKey> arg_keys;
  std::vector<std::uint64_t> arg_values;
};

/// Around the events.
struct JsonHead {
  std::string distributed_info, device_properties, display_time_unit;  // as they stand
  std::int64_t base_time_ns = 0;
  bool has_schema = false;  // Kineto's
  bool has_jax_metadata = false;
  bool has_events = false;
};

struct JsonEvents {
  JsonHead head;
  std::vector<std::unique_ptr<Names>> names;
  std::vector<EventBlock> blocks;  // in the file's order
  Losses losses;
  bool is_cut = false;  // ends in the middle
};

/// Whether a content that begins so may be a trace in JSON.
bool begins_json_trace(std::string_view head);
/// All of the file's, by two threads where there is enough of it. Error (file) when it is no JSON trace.
JsonEvents read_json_events(TraceFile& file);

}  // namespace paoding::trace
