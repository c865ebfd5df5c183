// SPDX-License-Identifier: Apache-2.0
// Compiling without a device: the passes and the plan as a Program would make them, to look at.
#pragma once

#include <memory>

#include "command.h"
#include "passes/pass.h"
#include "plan/plan.h"

namespace paoding::cli {

/// A graph after all passes, how they went, and its plan.
struct Staged {
  std::unique_ptr<Graph> graph;
  std::vector<PassRecord> passes;
  Plan plan;  // refers to `graph`
};

/// The passes alone, for a kind of device. `after` is called after each.
Staged run_passes_of(const Graph& graph, const std::vector<std::string>& no_pass, DeviceKind device,
                     const std::function<void(const std::string& pass, const Graph& graph)>& after = {});
/// The passes and the plan for a kind of device, which need not be there.
Staged plan_of(const Graph& graph, const CompileFlags& flags, DeviceKind device);

/// "group (sub+exp+mul)", "matmul": a step by name and, for a group, its ops.
std::string step_name(const Step& step);

}  // namespace paoding::cli
