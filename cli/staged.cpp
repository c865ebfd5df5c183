// SPDX-License-Identifier: Apache-2.0
#include "staged.h"

#include <algorithm>

namespace paoding::cli {

Staged run_passes_of(const Graph& graph, const std::vector<std::string>& no_pass, DeviceKind device,
                     const std::function<void(const std::string& pass, const Graph& graph)>& after) {
  Staged staged;
  staged.graph = graph.clone();
  PassOptions options;
  options.disabled = no_pass;
  options.device = device;
  options.after = after;
  staged.passes = run_passes(*staged.graph, options);
  return staged;
}

Staged plan_of(const Graph& graph, const CompileFlags& flags, DeviceKind device) {
  Staged staged = run_passes_of(graph, flags.no_pass, device);
  PlanOptions options{device, flags.allow_tf32, true};
  options.choose_layouts =
      std::find(flags.no_pass.begin(), flags.no_pass.end(), "choose_layouts") == flags.no_pass.end();
  options.alias_views = std::find(flags.no_pass.begin(), flags.no_pass.end(), "alias_views") == flags.no_pass.end();
  staged.plan = make_plan(*staged.graph, options);
  return staged;
}

std::string step_name(const Step& step) {
  if (step.label.members.empty()) return step.label.op;
  return fmt::format("{} ({})", step.label.op, fmt::join(step.label.members, "+"));
}

}  // namespace paoding::cli
