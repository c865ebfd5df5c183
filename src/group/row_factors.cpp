// SPDX-License-Identifier: Apache-2.0
#include "group/row_factors.h"

#include <algorithm>
#include <vector>

#include "group/staged.h"

namespace paoding {
namespace {

// What a reduction's value is a product of.
class Factors {
 public:
  explicit Factors(const Group& group)
      : expr_(group.expr), varies_(varies_along(group, row_mask(group))), stages_(stages(group)) {}

  /// Leaves of the product `node`: those that can be pulled, and the others.
  struct Split {
    std::vector<std::int32_t> pulled, kept;
  };
  Split split(std::int32_t node) const {
    Split found;
    add(node, &found);
    return found;
  }
  int stage(std::int32_t node) const { return stages_[static_cast<std::size_t>(node)]; }
  int stage(const std::vector<std::int32_t>& nodes) const {
    int last = 0;
    for (const std::int32_t node : nodes) last = std::max(last, stage(node));
    return last;
  }

 private:
  void add(std::int32_t node, Split* found) const {
    const bool varies = varies_[static_cast<std::size_t>(node)];
    if (varies && expr_[node].prim == Prim::mul) {
      add(expr_[node].args[0], found);
      add(expr_[node].args[1], found);
    } else {
      (!varies && stage(node) > 0 ? found->pulled : found->kept).push_back(node);
    }
  }

  const Expr& expr_;
  const std::vector<bool> varies_;
  const std::vector<int> stages_;
};

}  // namespace

void pull_row_factors(Group* group) {
  if (group->reductions.empty()) return;
  const Factors factors(*group);
  std::vector<Factors::Split> splits;  // per reduction; nothing is pulled where that saves no stage
  for (const GroupReduction& reduction : group->reductions) {
    splits.emplace_back();
    if (reduction.combine != Combine::sum || !is_float(group->expr.dtype_of(reduction.value))) continue;
    Factors::Split split = factors.split(reduction.value);
    if (split.kept.empty()) continue;  // one number for the row, as often as that is long
    if (factors.stage(split.kept) < factors.stage(reduction.value)) splits.back() = std::move(split);
  }
  if (std::ranges::all_of(splits, [](const auto& split) { return split.pulled.empty(); })) return;

  std::vector<std::int32_t> placed;
  std::vector<std::int32_t> values(splits.size(), -1);  // of reductions that were changed
  Expr expr;
  const auto now = [&](std::int32_t node) { return placed[static_cast<std::size_t>(node)]; };
  const auto product = [&](std::int32_t first, std::span<const std::int32_t> others) {
    for (const std::int32_t other : others) {
      first = expr.add({Prim::mul, expr.dtype_of(first), {first, now(other), -1}});
    }
    return first;
  };
  for (std::int32_t i = 0; i < group->expr.size(); ++i) {
    ExprNode node = group->expr[i];
    for (std::int32_t& arg : node.args) arg = arg < 0 ? arg : now(arg);
    const auto r = static_cast<std::size_t>(node.index);
    if (node.prim != Prim::reduced || splits[r].pulled.empty()) {
      placed.push_back(expr.add(node));
      continue;
    }
    const std::vector<std::int32_t>& kept = splits[r].kept;
    if (values[r] < 0) values[r] = product(now(kept[0]), std::span(kept).subspan(1));
    placed.push_back(product(expr.add(node), splits[r].pulled));
  }
  group->expr = std::move(expr);
  for (GroupOutput& output : group->outputs) output.value = now(output.value);
  for (std::size_t r = 0; r < splits.size(); ++r) {
    GroupReduction& reduction = group->reductions[r];
    reduction.value = values[r] < 0 ? now(reduction.value) : values[r];
  }
}

}  // namespace paoding
