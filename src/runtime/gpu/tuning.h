// SPDX-License-Identifier: Apache-2.0
// Timing on the device of steps that a program may run by a library or by kernels of our own.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace paoding {

/// A line per call of the plan that was timed, as it was not known yet; from then on planning chooses by it.
std::vector<std::string> time_choices(const Plan& plan, const Device& device);

}  // namespace paoding
