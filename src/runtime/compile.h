// SPDX-License-Identifier: Apache-2.0
// From a graph to the plan of a program: what is fetched, the passes, the planner. Nothing here needs a device.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "paoding/program.h"
#include "passes/pass.h"
#include "plan/plan.h"
#include "runtime/target.h"

namespace paoding {

struct CompiledPlan {
  std::unique_ptr<Graph> graph;  // as it was planned
  std::vector<PassRecord> passes;
  Plan plan;
};

/// Plans a copy of `graph` for the target, which need not be there: the one path for programs, `dump`, benches and
/// tests. `options.device` is not looked at. Error (argument) on an unknown fetch or pass, (unsupported) as make_plan()
/// says.
CompiledPlan compile_plan(const Graph& graph, const CompileOptions& options, TargetPtr target);

/// The position of `name`. Error (argument) with the names there are; `what` is what they name: "input".
int index_of(const std::vector<std::string>& names, std::string_view name, const char* what);

}  // namespace paoding
