// SPDX-License-Identifier: Apache-2.0
// What was held of every device while something was recorded: at the start, at the end, and when it was the most.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "paoding/profile.h"
#include "profile/trace.h"

namespace paoding::profile {

struct HeldOverTime {
  std::string process = {};                         // where there are several
  std::int32_t device = -1;                         // -1: the host
  std::string what;                                 // "arenas"; empty: all that is held of the device
  std::int64_t at_start = 0, most = 0, at_end = 0;  // bytes
  std::int64_t most_ns = 0;                         // from the start of the recording to the first moment of the most
  std::uint64_t changes = 0;                        // while it went on

  bool is_all() const { return what.empty(); }
};

/// Of every device, in their order, first all and then each counter; nothing of those that held nothing.
std::vector<HeldOverTime> held_over_time(const Trace& trace, State state);

}  // namespace paoding::profile
