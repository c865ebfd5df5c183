// SPDX-License-Identifier: Apache-2.0
// Which launches may run at the same time.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace paoding {

/// Stretches [begin, end) of two or more consecutive launches of different steps, groups or kernels whose CTAs stay on
/// few of a chip's SMs, none of which writes memory that another reads or writes (workspaces of kernels on a GPU among
/// it), and to the middle of which no branch leads. `bases`: the address of every slot. A stretch has at most `most`
/// launches.
std::vector<std::pair<std::size_t, std::size_t>> independent_stretches(const std::vector<Launch>& launches,
                                                                       const std::vector<std::byte*>& bases,
                                                                       std::size_t most);

}  // namespace paoding
