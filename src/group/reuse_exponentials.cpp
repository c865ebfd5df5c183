// SPDX-License-Identifier: Apache-2.0
#include "group/reuse_exponentials.h"

#include <optional>

namespace paoding {
namespace {

class PowerSearch {
 public:
  explicit PowerSearch(const Group& group) : group_(group) {}

  /// For node = exp(x - (m + log(s))): E and s.
  struct Quotient {
    std::int32_t power, sum;
  };
  std::optional<Quotient> quotient_in(std::int32_t node) const {
    if (!is(node, Prim::exp) || !is(arg(node, 0), Prim::sub)) return std::nullopt;
    const std::int32_t x = arg(arg(node, 0), 0), off = arg(arg(node, 0), 1);
    if (!is(off, Prim::add)) return std::nullopt;
    for (const int first : {0, 1}) {
      const std::int32_t most = arg(off, first), log = arg(off, 1 - first);
      if (!is(log, Prim::log) || reduced_value(most, Combine::max) != x) continue;
      const std::int32_t sum = arg(log, 0), power = reduced_value(sum, Combine::sum);
      if (power < 0 || !is(power, Prim::exp) || !is(arg(power, 0), Prim::sub)) continue;
      if (arg(arg(power, 0), 0) == x && arg(arg(power, 0), 1) == most) return Quotient{power, sum};
    }
    return std::nullopt;
  }

 private:
  bool is(std::int32_t node, Prim prim) const { return group_.expr[node].prim == prim; }
  std::int32_t arg(std::int32_t node, int which) const { return group_.expr[node].args[which]; }
  /// The operand of the reduction that a node reads, if it combines in this way; -1 for other nodes.
  std::int32_t reduced_value(std::int32_t node, Combine combine) const {
    if (!is(node, Prim::reduced)) return -1;
    const GroupReduction& reduction = group_.reductions[static_cast<std::size_t>(group_.expr[node].index)];
    return reduction.combine == combine ? reduction.value : -1;
  }

  const Group& group_;
};

}  // namespace

void reuse_exponentials(Group* group) {
  const PowerSearch search(*group);
  std::vector<std::int32_t> placed;
  Expr expr;
  bool has_reused = false;
  for (std::int32_t i = 0; i < group->expr.size(); ++i) {
    ExprNode node = group->expr[i];
    if (const auto quotient = search.quotient_in(i)) {
      node = {Prim::div, node.dtype, {quotient->power, quotient->sum, -1}};
      has_reused = true;
    }
    for (std::int32_t& arg : node.args) arg = arg < 0 ? arg : placed[static_cast<std::size_t>(arg)];
    placed.push_back(expr.add(node));
  }
  if (!has_reused) return;
  group->expr = std::move(expr);
  for (GroupOutput& output : group->outputs) output.value = placed[static_cast<std::size_t>(output.value)];
  for (GroupReduction& reduction : group->reductions) {
    reduction.value = placed[static_cast<std::size_t>(reduction.value)];
  }
}

}  // namespace paoding
