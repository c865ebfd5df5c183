// SPDX-License-Identifier: Apache-2.0
// Compiling for a target that need not be there: the passes and the plan as a Program would make them, to look at.
#pragma once

#include "command.h"
#include "runtime/compile.h"

namespace paoding::cli {

/// The target that --target names, else that of --device; where the device is a GPU and there is none, an H200.
TargetPtr target_of(const std::string& target, const std::string& device);

/// The passes and the plan. `after` is called after each pass.
CompiledPlan plan_of(const Graph& graph, const CompileFlags& flags, const TargetPtr& target,
                     const std::function<void(const std::string& pass, const Graph& graph)>& after = {});

/// "group (sub+exp+mul)", "matmul": a step by name and, for a group, its ops.
std::string step_name(const Step& step);

}  // namespace paoding::cli
