// SPDX-License-Identifier: Apache-2.0
// canonical(): the same loop nest with as few axes as it can be written with, and the contiguous one innermost, so
// that back ends and the kernel cache see one form of what users can write in many.
#include <algorithm>
#include <cstdlib>

#include "group/group.h"

namespace paoding {
namespace {

// One axis of the space with everything that belongs to it, so that axes move, merge and vanish as a whole.
struct Axis {
  std::int64_t extent = 1;
  std::vector<std::int64_t> strides;  // per operand, loads first
  std::vector<bool> reduced;          // per output
};

// How much each operand's layout counts when operands disagree: its bytes.
std::vector<std::int64_t> operand_bytes(const Group& group) {
  std::vector<std::int64_t> bytes;
  auto count = [&](DType dtype, const std::vector<std::int64_t>& strides) {
    std::int64_t elements = 1;
    for (std::size_t axis = 0; axis < strides.size(); ++axis) {
      if (strides[axis] != 0) elements *= std::max<std::int64_t>(group.extents[axis], 1);
    }
    bytes.push_back(elements * size_bytes(dtype));
  };
  for (const GroupLoad& load : group.loads) count(load.dtype, load.strides);
  for (const GroupOutput& output : group.outputs) count(output.dtype, output.strides);
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
  // The innermost is settled first: it decides whether loads are vectors or gathers.
  std::size_t innermost = axes.size() - 1;
  for (std::size_t i = axes.size() - 1; i-- > 0;) {
    const std::int64_t gain = contiguous_bytes(axes[i], bytes) - contiguous_bytes(axes[innermost], bytes);
    if (gain > 0 || (gain == 0 && outer_votes(axes[innermost], axes[i], bytes) > 0)) innermost = i;
  }
  const auto chosen = axes.begin() + static_cast<std::ptrdiff_t>(innermost);
  std::rotate(chosen, chosen + 1, axes.end());
  // Votes need not be transitive, so the rest is an insertion sort: it ends, and keeps the given order on a tie.
  for (std::size_t i = 1; i + 1 < axes.size(); ++i) {
    for (std::size_t j = i; j > 0 && outer_votes(axes[j], axes[j - 1], bytes) > 0; --j) std::swap(axes[j], axes[j - 1]);
  }
}

bool merges(const Axis& outer, const Axis& inner) {
  for (std::size_t i = 0; i < inner.strides.size(); ++i) {
    if (outer.strides[i] != inner.strides[i] * inner.extent) return false;
  }
  return outer.reduced == inner.reduced;
}

}  // namespace

Group canonical(const Group& group) {
  std::vector<Axis> axes;
  for (std::size_t a = 0; a < group.extents.size(); ++a) {
    if (group.extents[a] == 1) continue;
    Axis axis{group.extents[a], {}, {}};
    for (const GroupLoad& load : group.loads) axis.strides.push_back(load.strides[a]);
    for (const GroupOutput& output : group.outputs) {
      const bool reduced = (output.reduce_mask >> a) & 1u;
      axis.strides.push_back(reduced ? 0 : output.strides[a]);
      axis.reduced.push_back(reduced);
    }
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

  Group result;
  result.loads = group.loads;
  result.outputs = group.outputs;
  result.expr = group.expr;
  for (GroupLoad& load : result.loads) load.strides.clear();
  for (GroupOutput& output : result.outputs) output.strides.clear(), output.reduce_mask = 0;
  for (std::size_t a = 0; a < merged.size(); ++a) {
    result.extents.push_back(merged[a].extent);
    std::size_t operand = 0;
    for (GroupLoad& load : result.loads) load.strides.push_back(merged[a].strides[operand++]);
    for (std::size_t o = 0; o < result.outputs.size(); ++o) {
      result.outputs[o].strides.push_back(merged[a].strides[operand++]);
      if (merged[a].reduced[o]) result.outputs[o].reduce_mask |= 1u << a;
    }
  }
  // A sum over axes of extent 1 only is no sum.
  for (GroupOutput& output : result.outputs) output.combine = output.reduce_mask ? Combine::sum : Combine::none;
  return result;
}

}  // namespace paoding
