// SPDX-License-Identifier: Apache-2.0
// Which results nobody touches again while they would be in a cache.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "plan/plan.h"

namespace paoding {

/// Per group step, for each of its results: whether more than `cache_bytes` of memory are touched from the step on
/// until somebody writes its slot, or twice as many until somebody reads it, in this run or, the program being run
/// again, in the next one; in every launch of the step. Never so where the step reads the slot too, and in loops whose
/// length a run decides. Steps without such a result are not in it.
std::map<const Step*, std::vector<bool>> far_results(const std::vector<Launch>& launches, std::int64_t cache_bytes);

}  // namespace paoding
