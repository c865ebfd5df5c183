// SPDX-License-Identifier: Apache-2.0
// Whether the kernels of a program were decided once: passes and steps have the same decisions, and a step's is the one
// that its operands, the target and the environment give when everything is asked anew.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/one_line.h"
#include "plan/epilogues.h"
#include "runtime/compile.h"

namespace paoding::testing_program {

/// So many kernel ops of a program were looked at; so many nodes that a pass decided, of which the step has the very
/// decision, another with the same kernel, or another kernel.
struct DecisionCounts {
  int steps = 0, taken_over = 0, alike = 0, otherwise = 0;
};

class DecisionCheck {
 public:
  explicit DecisionCheck(const CompiledPlan& compiled) : compiled_(compiled) { walk(compiled.plan.steps); }

  DecisionCounts counts() {
    DecisionCounts counts;
    for (const Step* step : steps_) check(*step);
    counts.steps = static_cast<int>(steps_.size());
    look_at_nodes(*compiled_.graph, &counts);
    return counts;
  }

 private:
  void walk(const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      if (step.kind == Step::Kind::kernel) steps_.push_back(&step);
      for (const auto* body : step.bodies()) walk(*body);
    }
  }

  static std::vector<std::string> names(const std::vector<const KernelImplementation*>& kernels) {
    std::vector<std::string> names;
    for (const KernelImplementation* kernel : kernels) names.push_back(kernel->name);
    return names;
  }

  // Asks once more, by the step's operands where no group is a part of it.
  static void check(const Step& step) {
    SCOPED_TRACE(step.label.op + in_scope(step.label.scope));
    ASSERT_NE(step.decision, nullptr);
    const Decision& kept = *step.decision;
    EXPECT_TRUE(are_same_question(kept.call, step.call));
    EXPECT_EQ(kept.accepting_kernel(step.kernel->name), step.kernel);
    const bool is_alone = !has_epilogue(step) && !step.has_prologue;
    if (is_alone) {
      EXPECT_EQ(step.kernel, kept.kernel());
    }
    KernelCall anew = kept.call;
    anew.timed = nullptr;
    if (is_alone) {
      anew.inputs.clear(), anew.outputs.clear(), anew.alignments.clear();
      for (std::size_t i = 0; i < step.operands.size(); ++i) {
        (i < step.reads ? anew.inputs : anew.outputs).push_back(step.operands[i].layout);
        anew.alignments.push_back(alignment_of(step.operands[i]));
      }
    }
    const Decision again = decide(anew);
    EXPECT_TRUE(are_same_question(again.call, kept.call)) << "its operands lie otherwise";
    EXPECT_EQ(names(again.accepting), names(kept.accepting));
    EXPECT_EQ(again.refusals, kept.refusals);
    EXPECT_EQ(again.notes(), kept.notes());
    EXPECT_EQ(again.call.timed == nullptr, kept.call.timed == nullptr);
  }

  bool is_of(const Step& step, const Graph& graph, const Node& node) const {
    if (step.call.op != node.op || !(step.call.attrs == node.attrs)) return false;
    if (step.call.inputs.size() != node.inputs.size()) return false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (!(step.call.inputs[i].type == graph.type(node.inputs[i]))) return false;
    }
    return true;
  }

  void look_at_nodes(const Graph& graph, DecisionCounts* counts) const {
    for (NodeId id = 0; id < graph.size(); ++id) {
      const Node& node = graph.node(id);
      for (const auto& body : node.bodies) {
        if (!node.op->is_fusion_group()) look_at_nodes(*body, counts);
      }
      if (node.decision == nullptr) continue;
      bool is_same = false, is_alike = false, is_planned = false;
      for (const Step* step : steps_) {
        is_same |= step->decision == node.decision;
        if (!is_of(*step, graph, node)) continue;
        is_planned = true;
        is_alike |= step->decision->kernel() == node.decision->kernel();
        if (are_same_question(step->decision->call, node.decision->call)) {
          EXPECT_EQ(step->decision->kernel(), node.decision->kernel()) << "the same question has two answers";
        }
      }
      EXPECT_TRUE(is_planned) << node.title() << " has a decision and no step";
      ++(is_same ? counts->taken_over : is_alike ? counts->alike : counts->otherwise);
    }
  }

  const CompiledPlan& compiled_;
  std::vector<const Step*> steps_;
};

}  // namespace paoding::testing_program
