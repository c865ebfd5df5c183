// SPDX-License-Identifier: Apache-2.0
// PAODING_RUN changes how every program of a process is fed and read, whichever language made it, as PAODING_COMPILE
// changes how it is compiled: one build can be measured with a switch on and off, which `paoding verify` does.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace paoding {

/// Without a value a program decides.
struct RunSwitches {
  std::optional<std::int64_t> read_ahead;  // batches that data::Prefetch makes in advance; 0: each when it is asked for
  std::optional<bool> fetch_later;         // a training reads the loss of a step when the next has been started
  std::optional<bool> pinned_feeds;        // feeds of a GPU come from pinned memory: all of them, or none
  std::optional<bool> overlapped_collectives;  // on a GPU they have a stream of their own, beside which others launch
  std::optional<bool> double_buffered_feeds;   // they are copied beside the run that is under way: all, or none
};

/// "read_ahead=8;pinned_feeds=1": of a word that comes twice the last counts. Error (argument) for any other word.
RunSwitches run_switches(std::string_view words);
/// Those of PAODING_RUN.
RunSwitches run_switches();

}  // namespace paoding
