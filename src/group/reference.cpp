// SPDX-License-Identifier: Apache-2.0
// run_reference(): a group in double, one point after the other, with compensated sums. Slow and plain on purpose.
#include <cmath>

#include "base/check.h"
#include "group/group.h"
#include "scalar/primitive.h"

namespace paoding {
namespace {

// Neumaier's sum: the rounding error of every addition is kept apart and added at the end.
struct CompensatedSum {
  double sum = 0, lost = 0;

  void add(double x) {
    const double next = sum + x;
    if (std::isfinite(next)) lost += std::fabs(sum) >= std::fabs(x) ? (sum - next) + x : (x - next) + sum;
    sum = next;
  }
  double total() const { return std::isfinite(sum) ? sum + lost : sum; }
};

}  // namespace

void run_reference(const Group& group, const std::vector<double*>& operands) {
  PD_ASSERT(operands.size() == group.operands(), "one pointer per operand");
  const std::size_t rank = group.extents.size();

  // Results are dense over the axes that remain and written at the end: outputs may share memory with loads.
  std::vector<std::vector<std::int64_t>> places(group.outputs.size(), std::vector<std::int64_t>(rank, 0));
  std::vector<std::vector<CompensatedSum>> results(group.outputs.size());
  for (std::size_t o = 0; o < group.outputs.size(); ++o) {
    std::int64_t elements = 1;
    for (std::size_t axis = rank; axis-- > 0;) {
      if ((group.outputs[o].reduce_mask >> axis) & 1u) continue;
      places[o][axis] = elements;
      elements *= group.extents[axis];
    }
    results[o].resize(static_cast<std::size_t>(elements));
  }

  auto offset = [&](const std::vector<std::int64_t>& index, const std::vector<std::int64_t>& strides) {
    std::int64_t sum = 0;
    for (std::size_t axis = 0; axis < rank; ++axis) sum += index[axis] * strides[axis];
    return sum;
  };
  auto advance = [&](std::vector<std::int64_t>& index, std::uint32_t fixed_axes) {
    for (std::size_t axis = rank; axis-- > 0;) {
      if ((fixed_axes >> axis) & 1u) continue;
      if (++index[axis] < group.extents[axis]) return;
      index[axis] = 0;
    }
  };

  std::vector<double> inputs(group.loads.size());
  std::vector<std::int64_t> index(rank, 0);
  const std::int64_t points = group.points();
  for (std::int64_t point = 0; point < points; ++point, advance(index, 0)) {
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = operands[i][offset(index, group.loads[i].strides)];
    const std::vector<double> values = evaluate(group.expr, inputs);
    for (std::size_t o = 0; o < group.outputs.size(); ++o) {
      const double value = values[static_cast<std::size_t>(group.outputs[o].value)];
      results[o][static_cast<std::size_t>(offset(index, places[o]))].add(value);
    }
  }

  for (std::size_t o = 0; o < group.outputs.size(); ++o) {
    const GroupOutput& output = group.outputs[o];
    double* out = operands[group.loads.size() + o];
    index.assign(rank, 0);
    for (CompensatedSum& result : results[o]) {
      double& element = out[offset(index, output.strides)];
      if (output.accumulate) result.add(element);
      element = result.total();
      advance(index, output.reduce_mask);
    }
  }
}

}  // namespace paoding
