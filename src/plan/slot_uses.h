// SPDX-License-Identifier: Apache-2.0
// Where the steps of a list, and those inside them, touch each slot, so that memory is assigned without going over the
// whole plan again.
#pragma once

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace paoding {

class SlotUses {
 public:
  struct Use {
    std::size_t step;  // of the list
    Operand* operand;
    bool is_write;
  };

  /// `steps` must stay as they are while it is used.
  explicit SlotUses(std::vector<Step>& steps) {
    for (std::size_t i = 0; i < steps.size(); ++i) add(steps[i], i);
  }

  /// Uses are in the order of the steps.
  const std::vector<Use>& of(int slot) const {
    static const std::vector<Use> none;
    const auto it = uses_.find(slot);
    return it == uses_.end() ? none : it->second;
  }

  /// Everything that touches `from` touches `to` instead.
  void move(int from, int to) {
    for (const Use& use : uses_[from]) use.operand->slot = to;
    std::vector<Use> both;
    std::ranges::merge(uses_[to], uses_[from], std::back_inserter(both), {}, &Use::step, &Use::step);
    uses_[to] = std::move(both);
    uses_.erase(from);
  }

 private:
  void add(Step& step, std::size_t number) {
    for (std::size_t i = 0; i < step.operands.size(); ++i) {
      uses_[step.operands[i].slot].push_back({number, &step.operands[i], i >= step.reads});
    }
    for (std::vector<Step>* body : step.bodies()) {
      for (Step& inner : *body) add(inner, number);
    }
  }

  std::unordered_map<int, std::vector<Use>> uses_;
};

}  // namespace paoding
