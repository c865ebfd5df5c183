// SPDX-License-Identifier: Apache-2.0
// The memory of its device that a program holds, for reports.
#pragma once

#include <string>

#include "paoding/types.h"
#include "plan/plan.h"

namespace paoding {

/// Told to the recording that is under way.
void record_memory(const Plan& plan, const std::string& program, const Device& device);

}  // namespace paoding
