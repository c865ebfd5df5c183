// SPDX-License-Identifier: Apache-2.0
// The CUDA texts that a program would have on a GPU; needs no GPU. Only with CUDA's headers.
#pragma once

#include <functional>

#include "gpu/text_kernel.h"
#include "tests/program_check.h"

namespace paoding::testing_program {

/// The graph's plan for a GPU, after the passes.
inline Plan plan_for_gpu(const Graph& graph, const std::vector<std::string>& disabled = {}) {
  const auto copy = graph.clone();
  PassOptions options;
  options.disabled = disabled;
  options.device = DeviceKind::cuda;
  run_passes(*copy, options);
  PlanOptions plan_options;
  plan_options.device = DeviceKind::cuda;
  return make_plan(*copy, plan_options);
}

/// Text of every group, and of every other kernel of our own, of the graph's plan for an H200, with a step that uses
/// it.
inline std::map<std::string, std::string> kernel_texts_with_steps(const Graph& graph,
                                                                  const std::vector<std::string>& disabled = {}) {
  const Plan plan = plan_for_gpu(graph, disabled);
  std::map<std::string, std::string> texts;
  const std::function<void(const std::vector<Step>&)> walk = [&](const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      if (step.kind == Step::Kind::loop) walk(step.body);
      std::string what = step.label.op;
      for (const std::string& member : step.label.members) what += " " + member;
      for (const gpu::GroupKernelPlan& made : gpu::kernels_of(step)) {
        texts.emplace(made.source, what + " (" + made.why + ")");
      }
    }
  };
  walk(plan.steps);
  return texts;
}

inline std::set<std::string> kernel_texts(const Graph& graph) {
  std::set<std::string> texts;
  for (const auto& [text, step] : kernel_texts_with_steps(graph)) texts.insert(text);
  return texts;
}

}  // namespace paoding::testing_program
