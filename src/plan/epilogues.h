// SPDX-License-Identifier: Apache-2.0
// Groups that become the epilogue of the kernel in front of them (ops/epilogue.h), or the prologue of the one after
// (ops/prologue.h).
#pragma once

#include "ops/prologue.h"
#include "plan/plan.h"

namespace paoding {

/// Fuses steps of the plan's outermost list, before slots are placed, where a kernel takes the group.
void fuse_epilogues(Plan* plan);

/// The epilogue that a step's group is for its kernel; the step is a kernel's that has an epilogue.
bool has_epilogue(const Step& step);
Epilogue epilogue_of(const Step& step);
/// The same for the prologue of a step with `has_prologue`.
Epilogue prologue_of(const Step& step);

}  // namespace paoding
