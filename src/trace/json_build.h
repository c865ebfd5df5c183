// SPDX-License-Identifier: Apache-2.0
// From the events of a JSON trace to spans: the common part of the readers of its dialects.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "trace/json_events.h"
#include "trace/sink.h"

namespace paoding::trace {

/// The arguments of an event, by key: the last one counts.
class EventArgs {
 public:
  EventArgs(const EventBlock& block, const RawEvent& event) : block_(block), event_(event) {}
  std::optional<std::uint64_t> bits(ArgKey key) const {
    for (std::uint32_t i = event_.args; i-- > 0;) {
      if (block_.arg_keys[event_.args_begin + i] == key) return block_.arg_values[event_.args_begin + i];
    }
    return {};
  }
  std::int64_t integer(ArgKey key, std::int64_t otherwise) const {
    const auto found = bits(key);
    return found ? static_cast<std::int64_t>(*found) : otherwise;
  }
  std::uint32_t text(ArgKey key) const { return static_cast<std::uint32_t>(bits(key).value_or(0)); }

 private:
  const EventBlock& block_;
  const RawEvent& event_;
};

/// Texts and places that all reading threads have met, in numbers of the sink.
class JsonNames {
 public:
  JsonNames(const JsonEvents& events, TraceSink& sink);

  /// A text of a block.
  profile::StringId text(const EventBlock& block, std::uint32_t raw);
  std::string_view raw(const EventBlock& block, std::uint32_t raw) const {
    return events_.names[block.names]->strings[raw];
  }
  /// A number for each place of all blocks.
  std::uint32_t place(const EventBlock& block, std::uint32_t raw) const { return places_[block.names][raw]; }
  struct Place {
    Id pid, tid;                       // text: of the sink
    std::string_view process, thread;  // names, where the file has them
  };
  const std::vector<Place>& places() const { return all_; }
  /// Texts that are no UTF-8.
  std::uint64_t unclean() const { return unclean_; }

 private:
  std::uint32_t number_of(const RawPlace& place);
  void read_metadata();

  const JsonEvents& events_;
  TraceSink& sink_;
  std::vector<std::vector<profile::StringId>> texts_;
  std::vector<std::vector<std::uint32_t>> places_;
  std::unordered_map<RawPlace, std::uint32_t, Names::Hash> numbers_;
  std::vector<Place> all_;
  std::uint64_t unclean_ = 0;
};

/// Something for each text of the blocks, made when it is asked for.
template <class T>
class PerRaw {
 public:
  PerRaw(const JsonEvents& events, T none) : all_(events.names.size()), none_(none) {
    for (std::size_t i = 0; i < all_.size(); ++i) sizes_.push_back(events.names[i]->strings.size());
  }
  T& at(const EventBlock& block, std::uint32_t raw) {
    std::vector<T>& own = all_[block.names];
    if (own.empty()) own.assign(sizes_[block.names], none_);
    return own[raw];
  }

 private:
  std::vector<std::vector<T>> all_;
  std::vector<std::size_t> sizes_;
  T none_;
};

/// "[264, 1, 1]" and "264,1,1" as "264x1x1"; empty where it is no such list.
std::string extents(std::string_view list);

/// The GPUs of Kineto's "deviceProperties", as far as it says something of them.
std::vector<profile::Limit> devices_of(std::string_view properties);

/// Notes of the events' losses.
void note_losses(const JsonEvents& events, const TraceFile& file, TraceSink& sink);

/// Whether a step is meant: "ProfilerStep#12", "train 7"; `*name` is then without its number.
bool is_step_name(std::string_view name, std::string_view* without_number);

// ---- the dialects ----

bool is_kineto(const JsonEvents& events);
profile::Trace build_kineto(JsonEvents& events, const TraceFile& file);
/// For XLA's and TensorFlow's devices, and of anybody's threads.
profile::Trace build_chrome(JsonEvents& events, const TraceFile& file);

}  // namespace paoding::trace
