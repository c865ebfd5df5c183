// SPDX-License-Identifier: Apache-2.0
#include "plan/epilogues.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/one_line.h"
#include "base/slot_alignment.h"
#include "plan/planner.h"
#include "plan/step_slots.h"

namespace paoding {
namespace {

// Load `first` of the group becomes load 0; the others stay in their order.
Group with_load_in_front(Group group, std::size_t first) {
  std::rotate(group.loads.begin(), group.loads.begin() + static_cast<std::ptrdiff_t>(first),
              group.loads.begin() + static_cast<std::ptrdiff_t>(first) + 1);
  Expr renumbered;
  for (ExprNode node : group.expr.nodes()) {
    if (node.prim == Prim::input) {
      const auto load = static_cast<std::size_t>(node.index);
      node.index = static_cast<std::int32_t>(load == first ? 0 : load < first ? load + 1 : load);
    }
    renumbered.add(node);
  }
  group.expr = std::move(renumbered);
  return group;
}

class KernelFusion {
 public:
  explicit KernelFusion(Plan* plan) : plan_(*plan), steps_(plan->steps) {}

 protected:
  static bool touches(const Step& step, int slot) {
    bool found = false;
    for_each_slot(step, [&](int touched, bool) { found |= touched == slot; });
    return found;
  }
  static bool writes(const Step& step, int slot) {
    bool found = false;
    for_each_slot(step, [&](int touched, bool is_write) { found |= is_write && touched == slot; });
    return found;
  }
  /// Whether anybody but these two steps, or after the run, sees the contents of the slot.
  bool is_seen(int slot, std::size_t maker, std::size_t reader) const {
    const bool is_given_back = std::ranges::any_of(plan_.fetches, [&](const Plan::Fetch& fetch) {
      return fetch.operand.slot == slot ||
             std::ranges::any_of(fetch.alternatives, [&](const Operand& each) { return each.slot == slot; });
    });
    bool is_seen = is_given_back || plan_.slots[static_cast<std::size_t>(slot)].kind != SlotKind::arena;
    for (std::size_t i = 0; i < steps_.size(); ++i) is_seen |= i != maker && i != reader && touches(steps_[i], slot);
    return is_seen;
  }

  /// Whether `moved` may run before or after all steps between `first` and `last`.
  bool may_pass(const Step& moved, std::size_t first, std::size_t last) const {
    for (std::size_t i = first + 1; i < last; ++i) {
      bool is_in_the_way = false;
      for_each_slot(moved, [&](int slot, bool is_write) {
        is_in_the_way |= is_write ? touches(steps_[i], slot) : writes(steps_[i], slot);
      });
      if (is_in_the_way) return false;
    }
    return true;
  }

  Plan& plan_;
  std::vector<Step>& steps_;
};

class EpilogueFusion : private KernelFusion {
 public:
  using KernelFusion::KernelFusion;

  void run() {
    for (const Step& step : steps_) {
      const bool is_kernel = step.kind == Step::Kind::kernel && step.operands.size() == step.reads + 1;
      if (is_kernel && epilogue_kernel(step.call.op->name) != nullptr) made_.insert(step.operands.back().slot);
    }
    for (std::size_t i = 0; i < steps_.size();) {
      const bool is_group = steps_[i].kind == Step::Kind::group && steps_[i].group.reductions.empty();
      if (!is_group || !fuse(i)) ++i;  // where it fuses there is one step less, and the next is here
    }
  }

 private:
  // The last kernel in front whose result the group reads goes first: others may make the group's other operands.
  bool fuse(std::size_t at) {
    std::vector<std::pair<std::size_t, std::size_t>> makers;  // the step, the load
    for (std::size_t load = 0; load < steps_[at].reads; ++load) {
      if (!made_.contains(steps_[at].operands[load].slot)) continue;
      for (std::size_t i = at; i-- > 0;) {
        if (!writes(steps_[i], steps_[at].operands[load].slot)) continue;
        makers.emplace_back(i, load);
        break;
      }
    }
    std::ranges::sort(makers, std::ranges::greater());
    return std::ranges::any_of(makers, [&](const auto& each) { return try_join(each.first, at, each.second); });
  }

  bool try_join(std::size_t maker, std::size_t at, std::size_t load) {
    const Step &kernel = steps_[maker], &group = steps_[at];
    if (kernel.kind != Step::Kind::kernel || has_epilogue(kernel) || kernel.operands.size() != kernel.reads + 1)
      return false;
    const EpilogueKernel* const epilogue = epilogue_kernel(kernel.call.op->name);
    if (epilogue == nullptr || kernel.label.placement != group.label.placement) return false;
    const Operand& result = kernel.operands.back();
    const Operand& read = group.operands[load];
    if (!is_same_place(result, read)) return false;
    for (std::size_t i = 0; i < group.operands.size();
         ++i) {  // another part of a value that is not there yet, or in its place
      if (i != load && group.operands[i].slot == result.slot) return false;
    }
    const bool is_read = is_seen(result.slot, maker, at);  // by others
    const bool is_rematerialized = epilogue->is_rematerialized && is_read, is_kept = is_read && !is_rematerialized;

    Step fused = kernel;
    if (is_rematerialized)
      fused.operands.pop_back();  // to be moved without its outputs, which the step that stays writes
    const bool sinks = may_pass(fused, maker, at);
    if (!sinks && (is_rematerialized || !may_pass(group, maker, at))) return false;
    fused.operands.resize(fused.reads);
    fused.group = with_load_in_front(group.group, load);
    for (std::size_t i = 0; i < group.reads; ++i) {
      if (i != load) fused.operands.push_back(group.operands[i]);
    }
    fused.reads = fused.operands.size();
    if (is_kept) fused.operands.push_back(result);
    fused.operands.insert(fused.operands.end(), group.operands.begin() + static_cast<std::ptrdiff_t>(group.reads),
                          group.operands.end());
    const KernelImplementation* const found = kernel.decision->accepting_kernel(epilogue->name);
    if (found == nullptr) return false;
    if (const std::string why = epilogue->refusal(kernel.call, epilogue_of(fused), *kernel.kernel); !why.empty()) {
      plan_.notes.push_back(fmt::format("{}: {} after it is no epilogue of {}: {}{}", kernel.call.op->name,
                                        group.label.op, epilogue->name, why, in_scope(kernel.label.scope)));
      return false;
    }
    fused.kernel = found;
    fused.label.members = group.label.members;
    fused.label.member_bytes = group.label.member_bytes;
    steps_[sinks ? at : maker] = std::move(fused);
    if (!is_rematerialized) steps_.erase(steps_.begin() + static_cast<std::ptrdiff_t>(sinks ? maker : at));
    return true;
  }

  std::set<int> made_;  // slots of results of kernels that take ends in
};

class PrologueFusion : private KernelFusion {
 public:
  using KernelFusion::KernelFusion;

  void run() {
    for (std::size_t at = 0; at < steps_.size();) {
      if (!fuse(at)) ++at;  // where it fuses there is one step less
    }
  }

 private:
  bool fuse(std::size_t at) {
    const Step& kernel = steps_[at];
    const bool is_kernel = kernel.kind == Step::Kind::kernel && !has_epilogue(kernel) && !kernel.has_prologue;
    if (!is_kernel || kernel.reads != 1) return false;
    const PrologueKernel* const prologue = prologue_kernel(kernel.call.op->name);
    const Operand& read = kernel.operands[0];
    if (prologue == nullptr) return false;
    for (std::size_t maker = at; maker-- > 0;) {
      if (writes(steps_[maker], read.slot)) return try_join(*prologue, maker, at);
    }
    return false;
  }

  bool try_join(const PrologueKernel& prologue, std::size_t maker, std::size_t at) {
    const Step &group = steps_[maker], &kernel = steps_[at];
    const bool is_group = group.kind == Step::Kind::group && group.group.reductions.empty();
    if (!is_group || group.operands.size() != group.reads + 1 || group.label.placement != kernel.label.placement)
      return false;
    const Operand& read = kernel.operands[0];
    if (!is_same_place(group.operands.back(), read) || is_seen(read.slot, maker, at)) return false;
    const auto lies_there = [&](const Operand& load) {
      return load.layout.type == read.layout.type && load.layout.strides == read.layout.strides;
    };
    const auto image = std::ranges::find_if(
        group.operands.begin(), group.operands.begin() + static_cast<std::ptrdiff_t>(group.reads), lies_there);
    const auto load = static_cast<std::size_t>(image - group.operands.begin());
    if (load == group.reads || !may_pass(group, maker, at)) return false;
    Step fused = kernel;
    fused.has_prologue = true, fused.reads = group.reads;
    fused.group = with_load_in_front(group.group, load);
    fused.operands = {*image};
    for (std::size_t i = 0; i < group.reads; ++i) {
      if (i != load) fused.operands.push_back(group.operands[i]);
    }
    fused.operands.insert(fused.operands.end(), kernel.operands.begin() + 1, kernel.operands.end());
    const KernelImplementation* const found = kernel.decision->accepting_kernel(prologue.name);
    if (found == nullptr) return false;
    if (const std::string why = prologue.refusal(kernel.call, prologue_of(fused)); !why.empty()) {
      plan_.notes.push_back(fmt::format("{}: {} in front of it is no start of {}: {}{}", kernel.call.op->name,
                                        group.label.op, prologue.name, why, in_scope(kernel.label.scope)));
      return false;
    }
    fused.kernel = found;
    fused.label.members = group.label.members;
    fused.label.member_bytes = group.label.member_bytes;
    steps_[at] = std::move(fused);
    steps_.erase(steps_.begin() + static_cast<std::ptrdiff_t>(maker));
    return true;
  }
};

}  // namespace

bool has_epilogue(const Step& step) {
  return step.kind == Step::Kind::kernel && !step.group.outputs.empty() && !step.has_prologue;
}

Epilogue epilogue_of(const Step& step) {
  const std::size_t outputs = step.group.outputs.size();
  Epilogue end{step.group, step.operands.size() - step.reads > outputs, {}};
  for (std::size_t i = step.call.inputs.size(); i < step.operands.size(); ++i) {
    if (i == step.reads && end.is_kept) continue;
    end.alignments.push_back(alignment_of(step.operands[i]));
  }
  return end;
}

Epilogue prologue_of(const Step& step) {
  Epilogue start{step.group, false, {}};
  for (std::size_t i = 1; i < step.reads; ++i) start.alignments.push_back(alignment_of(step.operands[i]));
  start.alignments.push_back(kSlotAlignment);  // of a slot that nobody writes
  return start;
}

void fuse_epilogues(Plan* plan) {
  if (!plan->target->is_gpu()) return;
  EpilogueFusion(plan).run();
  PrologueFusion(plan).run();
}

}  // namespace paoding
