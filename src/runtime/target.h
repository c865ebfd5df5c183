// SPDX-License-Identifier: Apache-2.0
// From a device to the target that code is made for, and from a planned step to its text there.
#pragma once

#include "base/target.h"
#include "paoding/program.h"
#include "plan/plan.h"

namespace paoding {

/// The target of programs for the device. Error (device) when there is no such GPU.
TargetPtr target_of(const Device& device);

/// On a GPU: plans the text of a group or of a kernel of our own; returns the step's needs beside its operands.
StepNeeds lower_for_gpu(Step& step, const Target& target);

/// On a GPU: has the kernels of a plan compiled, those of the launches of a captured run that are fused among them.
/// They are found in the kernel cache by a program that is made of it.
void compile_kernels_of(const Plan& plan, const CompileOptions& options);

// ---- gpu/target.cpp, or cuda_missing.cpp ----

TargetPtr target_of_gpu(int index);

}  // namespace paoding
