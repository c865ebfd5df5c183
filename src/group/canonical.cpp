// SPDX-License-Identifier: Apache-2.0
// canonical(): the same loop nest with as few axes as it can be written with, and the contiguous one innermost, so that
// back ends and the kernel cache see one form of a group that users can write in many.
#include <algorithm>
#include <cstdlib>

#include "group/group.h"
#include "group/reuse_exponentials.h"

namespace paoding {
namespace {

// One axis of the space with everything that belongs to it, so that axes move, merge and vanish as a whole.
struct Axis {
  std::int64_t extent = 1;
  std::vector<std::int64_t> strides;  // per operand, loads first
  std::vector<std::int64_t> steps;    // per index
  std::vector<bool> reduced;          // per output, then per reduction
};

// How much each operand's layout counts when operands disagree: its bytes. On a tie, as for a copy that transposes a
// matrix, the output wins: caches hold on to data that has been read.
std::vector<std::int64_t> operand_bytes(const Group& group) {
  std::vector<std::int64_t> bytes;
  auto count = [&](DType dtype, const std::vector<std::int64_t>& strides, bool is_written) {
    std::int64_t elements = 1;
    for (std::size_t axis = 0; axis < strides.size(); ++axis) {
      if (strides[axis] != 0) elements *= std::max<std::int64_t>(group.extents[axis], 1);
    }
    bytes.push_back(elements * size_bytes(dtype) + (is_written ? 1 : 0));
  };
  for (const GroupLoad& load : group.loads) count(load.dtype, load.strides, false);
  for (const GroupOutput& output : group.outputs) count(output.dtype, output.strides, true);
  return bytes;
}

// Positive when `a` belongs outside `b`: bytes of operands that step farther along a, less those that step farther
// along b. Operands broadcast along either have no opinion.
std::int64_t outer_votes(const Axis& a, const Axis& b, const std::vector<std::int64_t>& bytes) {
  std::int64_t votes = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::int64_t step_a = std::abs(a.strides[i]), step_b = std::abs(b.strides[i]);
    if (step_a == 0 || step_b == 0 || step_a == step_b) continue;
    votes += step_a > step_b ? bytes[i] : -bytes[i];
  }
  return votes;
}

std::int64_t contiguous_bytes(const Axis& axis, const std::vector<std::int64_t>& bytes) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (std::abs(axis.strides[i]) == 1) sum += bytes[i];
  }
  return sum;
}

void order(std::vector<Axis>& axes, const std::vector<std::int64_t>& bytes) {
  if (axes.empty()) return;
  // The innermost is settled first: it decides whether loads are vectors or gathers. Votes need not be transitive, so
  // among equally contiguous axes each counts its votes against all others: that does not depend on the order given.
  std::size_t innermost = axes.size() - 1;
  const auto votes_to_be_outside = [&](std::size_t i) {
    std::int64_t votes = 0;
    for (const Axis& other : axes) votes += outer_votes(axes[i], other, bytes);
    return votes;
  };
  for (std::size_t i = axes.size() - 1; i-- > 0;) {
    const std::int64_t gain = contiguous_bytes(axes[i], bytes) - contiguous_bytes(axes[innermost], bytes);
    if (gain > 0 || (gain == 0 && votes_to_be_outside(i) < votes_to_be_outside(innermost))) innermost = i;
  }
  const auto chosen = axes.begin() + static_cast<std::ptrdiff_t>(innermost);
  std::rotate(chosen, chosen + 1, axes.end());
  // The rest is an insertion sort: it ends whatever the votes, and keeps the given order on a tie.
  for (std::size_t i = 1; i + 1 < axes.size(); ++i) {
    for (std::size_t j = i; j > 0 && outer_votes(axes[j], axes[j - 1], bytes) > 0; --j) std::swap(axes[j], axes[j - 1]);
  }
}

bool merges(const Axis& outer, const Axis& inner) {
  for (std::size_t i = 0; i < inner.strides.size(); ++i) {
    if (outer.strides[i] != inner.strides[i] * inner.extent) return false;
  }
  for (std::size_t i = 0; i < inner.steps.size(); ++i) {
    if (outer.steps[i] != inner.steps[i] * inner.extent) return false;
  }
  return outer.reduced == inner.reduced;
}

// Reductions over axes of extent 1 only are the values themselves.
void drop_reductions(Group* group) {
  std::vector<std::int32_t> placed;
  Expr expr;
  for (const ExprNode& node : group->expr.nodes()) {
    if (node.prim == Prim::reduced) {
      const GroupReduction& reduction = group->reductions[static_cast<std::size_t>(node.index)];
      placed.push_back(placed[static_cast<std::size_t>(reduction.value)]);
      continue;
    }
    ExprNode copy = node;
    for (std::int32_t& arg : copy.args) arg = arg < 0 ? arg : placed[static_cast<std::size_t>(arg)];
    placed.push_back(expr.add(copy));
  }
  group->expr = std::move(expr);
  group->reductions.clear();
  for (GroupOutput& output : group->outputs) output.value = placed[static_cast<std::size_t>(output.value)];
}

// A store rounds: a value that was rounded to the output's dtype just before needs to be so only once.
void drop_roundings(Group* group) {
  for (GroupOutput& output : group->outputs) {
    if (output.combine != Combine::none) continue;
    const ExprNode& node = group->expr[output.value];
    if (node.prim != Prim::convert || node.dtype != output.dtype) continue;
    if (group->expr.dtype_of(node.args[0]) == compute_dtype(output.dtype)) output.value = node.args[0];
  }
}

}  // namespace

Group canonical(const Group& group) {
  std::vector<Axis> axes;
  for (std::size_t a = 0; a < group.extents.size(); ++a) {
    if (group.extents[a] == 1) continue;
    Axis axis{group.extents[a], {}, {}, {}};
    for (const GroupLoad& load : group.loads) axis.strides.push_back(load.strides[a]);
    for (const GroupOutput& output : group.outputs) {
      const bool reduced = (output.reduce_mask >> a) & 1u;
      axis.strides.push_back(reduced ? 0 : output.strides[a]);
      axis.reduced.push_back(reduced);
    }
    for (const GroupReduction& reduction : group.reductions) axis.reduced.push_back((reduction.reduce_mask >> a) & 1u);
    for (const GroupIndex& index : group.indices) axis.steps.push_back(index.strides[a]);
    axes.push_back(std::move(axis));
  }
  order(axes, operand_bytes(group));

  std::vector<Axis> merged;
  for (Axis& axis : axes) {
    if (!merged.empty() && merges(merged.back(), axis)) {
      axis.extent *= merged.back().extent;
      merged.back() = std::move(axis);
    } else {
      merged.push_back(std::move(axis));
    }
  }

  Group result = group;
  result.extents.clear();
  for (GroupLoad& load : result.loads) load.strides.clear();
  for (GroupOutput& output : result.outputs) output.strides.clear(), output.reduce_mask = 0;
  for (GroupIndex& index : result.indices) index.strides.clear();
  for (GroupReduction& reduction : result.reductions) reduction.reduce_mask = 0;
  for (std::size_t a = 0; a < merged.size(); ++a) {
    const Axis& axis = merged[a];
    result.extents.push_back(axis.extent);
    std::size_t operand = 0, reduced = 0;
    for (GroupLoad& load : result.loads) load.strides.push_back(axis.strides[operand++]);
    for (GroupOutput& output : result.outputs) {
      output.strides.push_back(axis.strides[operand++]);
      if (axis.reduced[reduced++]) output.reduce_mask |= 1u << a;
    }
    for (GroupReduction& reduction : result.reductions) {
      if (axis.reduced[reduced++]) reduction.reduce_mask |= 1u << a;
    }
    for (std::size_t i = 0; i < result.indices.size(); ++i) result.indices[i].strides.push_back(axis.steps[i]);
  }
  // A sum over axes of extent 1 only is no sum.
  for (GroupOutput& output : result.outputs) output.combine = output.reduce_mask ? output.combine : Combine::none;
  if (!result.reductions.empty() && result.reductions[0].reduce_mask == 0) drop_reductions(&result);
  reuse_exponentials(&result);
  drop_roundings(&result);
  return result;
}

}  // namespace paoding
