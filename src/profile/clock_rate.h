// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace paoding::profile {

/// What a tick of the CPU's counter is of steady_ns() since a recording last began; 1 where the counter is not steady.
double steady_ns_per_tick();

}  // namespace paoding::profile
