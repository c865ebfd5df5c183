// SPDX-License-Identifier: Apache-2.0
// Which memory a step touches.
#pragma once

#include "plan/plan.h"

namespace paoding {

/// Calls visit(slot, is_write) for every operand of the step and of those in it.
template <class Visit>
void for_each_slot(const Step& step, const Visit& visit) {
  for (std::size_t i = 0; i < step.operands.size(); ++i) visit(step.operands[i].slot, i >= step.reads);
  for (const std::vector<Step>* body : step.bodies()) {
    for (const Step& inner : *body) for_each_slot(inner, visit);
  }
}

}  // namespace paoding
