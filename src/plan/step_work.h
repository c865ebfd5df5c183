// SPDX-License-Identifier: Apache-2.0
// How much a step does, and how long a run on a GPU may take, as far as a plan says.
#pragma once

#include "plan/plan.h"

namespace paoding {

/// The cost that the op of a call declares (OpDef::cost), or a guess for one that declares none.
OpCost cost_of(const KernelCall& call);
/// The least bytes a step moves: those that its op declares, else its inputs and outputs, each element once.
std::int64_t bytes_of(const Step& step);

/// The time of a run of the step on a GPU, with those in it: rather too much than too little.
double expected_us(const Step& step, const Target& target);
/// Runs on a GPU that are expected to take longer can be called off while they are under way.
inline constexpr double kLongRunUs = 250'000;
/// So can those of more launches: the time of a launch is only a rough estimate.
inline constexpr std::int64_t kManyLaunches = 1 << 14;
bool is_long_run(const std::vector<Step>& steps, const Target& target);

}  // namespace paoding
