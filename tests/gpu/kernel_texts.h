// SPDX-License-Identifier: Apache-2.0
// The CUDA sources that a program would have on a GPU; needs no GPU. Only with CUDA's headers.
#pragma once

#include <functional>

#include "gpu/codegen/text_launch.h"
#include "runtime/compile.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {

/// The graph's plan for a GPU after the passes.
inline Plan plan_for_gpu(const Graph& graph, const Target& target, const std::vector<std::string>& disabled = {},
                         bool allow_tf32 = false) {
  CompileOptions options;
  options.allow_tf32 = allow_tf32;
  options.disabled_passes = disabled;
  return std::move(compile_plan(graph, options, std::make_shared<const Target>(target)).plan);
}
/// For an H200 unless another is named.
inline Plan plan_for_gpu(const Graph& graph, const std::vector<std::string>& disabled = {},
                         const std::string& target = "h200", bool allow_tf32 = false) {
  return plan_for_gpu(graph, named_target(target), disabled, allow_tf32);
}

/// Text of every group, and of every other kernel of our own, of the graph's plan for an H200, with a step that uses
/// it.
inline std::map<std::string, std::string> kernel_texts_with_steps(const Graph& graph,
                                                                  const std::vector<std::string>& disabled = {}) {
  const Plan plan = plan_for_gpu(graph, disabled);
  std::map<std::string, std::string> texts;
  const std::function<void(const std::vector<Step>&)> walk = [&](const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      for (const auto* body : step.bodies()) walk(*body);
      if (step.text == nullptr) continue;
      std::string what = step.label.op;
      for (const std::string& member : step.label.members) what += " " + member;
      for (const gpu::TextLaunch& made : step.text->launches) {
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
