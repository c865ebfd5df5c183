// SPDX-License-Identifier: Apache-2.0
// run_reference(): a group in double, one point after the other, with compensated sums. Slow and plain on purpose.
#include <cmath>
#include <limits>

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

// Elements that are combined one after the other.
struct Combined {
  explicit Combined(Combine combine, DType compute) : combine(combine), value(identity_of(combine, compute)) {}

  void add(double x) {
    switch (combine) {
      case Combine::none: value = x; break;
      case Combine::sum: sum.add(x); break;
      case Combine::max: value = std::isnan(value) || value >= x ? value : x; break;  // a NaN stays, a new one comes in
      case Combine::min: value = std::isnan(value) || value <= x ? value : x; break;
      case Combine::prod: value *= x; break;
    }
  }
  double total() const { return combine == Combine::sum ? sum.total() : value; }

  Combine combine;
  double value;
  CompensatedSum sum;
};

class Reference {
 public:
  Reference(const Group& group, const std::vector<double*>& operands) : group_(group), operands_(operands) {}

  // Results are dense over the axes that remain and written at the end: outputs may share memory with loads.
  void run() {
    for (std::size_t i = 0; i < group_.reductions.size(); ++i) {
      const GroupReduction& reduction = group_.reductions[i];
      reduced_.push_back(walk({{reduction.value, reduction.combine, reduction.reduce_mask}}).front());
    }
    std::vector<Target> targets;
    for (const GroupOutput& output : group_.outputs)
      targets.push_back({output.value, output.combine, output.reduce_mask});
    const std::vector<std::vector<double>> results = walk(targets);
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      const GroupOutput& output = group_.outputs[o];
      double* out = operands_[group_.loads.size() + o];
      std::vector<std::int64_t> index(group_.extents.size(), 0);
      for (const double result : results[o]) {
        out[offset(index, output.strides)] = result;
        advance(index, output.reduce_mask);
      }
    }
  }

 private:
  struct Target {
    std::int32_t value;
    Combine combine;
    std::uint32_t mask;
  };

  static std::int64_t offset(const std::vector<std::int64_t>& index, const std::vector<std::int64_t>& strides) {
    std::int64_t sum = 0;
    for (std::size_t axis = 0; axis < index.size(); ++axis) sum += index[axis] * strides[axis];
    return sum;
  }

  void advance(std::vector<std::int64_t>& index, std::uint32_t fixed_axes) const {
    for (std::size_t axis = index.size(); axis-- > 0;) {
      if ((fixed_axes >> axis) & 1u) continue;
      if (++index[axis] < group_.extents[axis]) return;
      index[axis] = 0;
    }
  }

  // Dense strides over the axes that `mask` leaves; the number of elements.
  std::int64_t places(std::uint32_t mask, std::vector<std::int64_t>* strides) const {
    strides->assign(group_.extents.size(), 0);
    std::int64_t elements = 1;
    for (std::size_t axis = strides->size(); axis-- > 0;) {
      if ((mask >> axis) & 1u) continue;
      (*strides)[axis] = elements;
      elements *= group_.extents[axis];
    }
    return elements;
  }

  // Every target over all points, with the reductions that are known so far.
  std::vector<std::vector<double>> walk(const std::vector<Target>& targets) const {
    std::vector<std::vector<std::int64_t>> strides(targets.size()), known(reduced_.size());
    std::vector<std::vector<Combined>> results;
    for (std::size_t t = 0; t < targets.size(); ++t) {
      const Combined start(targets[t].combine, group_.expr.dtype_of(targets[t].value));
      results.emplace_back(static_cast<std::size_t>(places(targets[t].mask, &strides[t])), start);
    }
    for (std::size_t i = 0; i < known.size(); ++i) places(group_.reductions[i].reduce_mask, &known[i]);
    // Reductions that are not known yet are NaN; no result depends on them.
    std::vector<double> inputs(group_.loads.size()), indices(group_.indices.size()),
        reduced(group_.reductions.size(), std::numeric_limits<double>::quiet_NaN());
    std::vector<std::int64_t> index(group_.extents.size(), 0);
    const std::int64_t points = group_.points();
    for (std::int64_t point = 0; point < points; ++point, advance(index, 0)) {
      for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = operands_[i][offset(index, group_.loads[i].strides)];
      for (std::size_t i = 0; i < indices.size(); ++i) {
        indices[i] = static_cast<double>(group_.indices[i].start + offset(index, group_.indices[i].strides));
      }
      for (std::size_t i = 0; i < known.size(); ++i) {
        reduced[i] = reduced_[i][static_cast<std::size_t>(offset(index, known[i]))];
      }
      const std::vector<double> values = evaluate(group_.expr, inputs, indices, reduced);
      for (std::size_t t = 0; t < targets.size(); ++t) {
        results[t][static_cast<std::size_t>(offset(index, strides[t]))].add(
            values[static_cast<std::size_t>(targets[t].value)]);
      }
    }
    std::vector<std::vector<double>> totals(targets.size());
    for (std::size_t t = 0; t < targets.size(); ++t) {
      for (const Combined& result : results[t]) totals[t].push_back(result.total());
    }
    return totals;
  }

  const Group& group_;
  const std::vector<double*>& operands_;
  std::vector<std::vector<double>> reduced_;  // of every reduction so far, dense over the axes that remain
};

}  // namespace

void run_reference(const Group& group, const std::vector<double*>& operands) {
  PD_ASSERT(operands.size() == group.operands(), "one pointer per operand");
  check(group);
  Reference(group, operands).run();
}

}  // namespace paoding
