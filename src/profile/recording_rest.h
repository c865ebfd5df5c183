// SPDX-License-Identifier: Apache-2.0
// What a recording that was never finished has beside its own spans: those of its program's memory, and the time that
// was lost.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "profile/live_file.h"
#include "profile/trace.h"

namespace paoding::profile {

/// A trace that is being read, none of whose spans are missing but those.
struct UnfinishedTrace {
  Trace& trace;
  Window window;
  bool has_window;  // else it ends with its last span
  std::function<std::int64_t(Ticks)> to_ns;
};

void add_rest(const UnfinishedTrace& to, LiveRest& rest);
/// What a thread did behind the last of its spans that is left is not known, unless `rest` has it: a run of which
/// nothing is known. What GPUs did is not in memory of a file, and was written last at `of_gpus_ns`.
void add_lost(const UnfinishedTrace& to, const std::optional<LiveRest>& rest, std::int64_t of_gpus_ns);

}  // namespace paoding::profile
