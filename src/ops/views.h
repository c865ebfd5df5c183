// SPDX-License-Identifier: Apache-2.0
// Attributes of constants, slice, pad, transpose and concat with their defaults filled in, for passes and the planner.
#pragma once

#include <vector>

#include "paoding/op.h"

namespace paoding {

/// Elements start, start + step, .. before end, per axis.
struct SliceRange {
  std::vector<std::int64_t> start, end, step;
  friend bool operator==(const SliceRange&, const SliceRange&) = default;
  friend auto operator<=>(const SliceRange&, const SliceRange&) = default;

  /// Whether every step is 1.
  bool is_plain() const;
  /// How many elements there are along an axis.
  std::int64_t extent(int axis) const;
};
SliceRange slice_range(const Node& slice);
/// The slice by `inner` and then by `outer`, as one slice of a value of `shape`.
SliceRange slice_of_slice(const SliceRange& inner, const SliceRange& outer, const Shape& shape);
/// Makes `range` take `count` elements of one axis, the first at `start`; steps that nothing is reached with are 1.
void set_axis(SliceRange* range, int axis, std::int64_t start, std::int64_t count, std::int64_t step);
/// `count` elements from `start` on, `step` apart, as slice wants its end.
std::int64_t slice_end(std::int64_t start, std::int64_t count, std::int64_t step);
/// slice(a, start, end, step).
Value slice(const Value& a, const SliceRange& range);

/// Where the elements of a pad's input are in its result: start + i * step, per axis.
struct Padding {
  std::vector<std::int64_t> before, after, interior;
  double value = 0;

  /// Whether nothing stands between two elements.
  bool is_plain() const;
};
Padding padding_of(const Node& pad);
Value pad(const Value& a, const Padding& padding);

/// Axis permutation[i] of the input is axis i of the result; none negative.
std::vector<int> permutation_of(const Node& transpose);
std::vector<int> inverse(const std::vector<int>& permutation);
Value transpose(const Value& a, const std::vector<int>& permutation);

/// The axis of a concat, not negative.
int concat_axis(const Node& concat);

/// Error (argument) where no element of `dtype` is the number that the attribute says.
void check_number(const OpCall& call, const char* attr, DType dtype);
/// full() of a "value" as the attribute has it.
Value full_of(Graph& graph, const Shape& shape, const AttrValue& value, DType dtype);
/// The "values" of a constant, rounded to doubles; and exactly.
std::vector<double> constant_values(const Attrs& attrs);
Tensor constant_tensor(const Node& constant);

}  // namespace paoding
