// SPDX-License-Identifier: Apache-2.0
// The process's own environment, for those who compile: see ops/kernel_environment.h.
#pragma once

#include <memory>

#include "ops/kernel_environment.h"

namespace paoding {

/// The variables of the environment as they are now, and all choices that this process, or one before it, has timed.
KernelEnvironmentPtr process_environment();

/// Those choices; nullptr in a build without a GPU back end.
std::shared_ptr<TimedChoices> process_timed_choices();

}  // namespace paoding
