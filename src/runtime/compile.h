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

namespace paoding {

struct CompiledPlan {
  std::unique_ptr<Graph> graph;  // as it was planned
  std::vector<PassRecord> passes;
  Plan plan;
};

/// Plans a copy of `graph`. Error (argument) on an unknown fetch or pass, (unsupported) as make_plan() says.
CompiledPlan compile_plan(const Graph& graph, const CompileOptions& options);

/// The position of `name`. Error (argument) with the names there are; `what` is what they name: "input".
int index_of(const std::vector<std::string>& names, std::string_view name, const char* what);

}  // namespace paoding
