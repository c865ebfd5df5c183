// SPDX-License-Identifier: Apache-2.0
#include "ops/axes.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace paoding {

using Ints = std::vector<std::int64_t>;

int plain_axis(const OpCall& call, std::int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    call.fail(ErrorKind::shape, fmt::format("axis {} of a value of rank {}", axis, rank));
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::vector<int> plain_axes(const OpCall& call, const Ints& axes, int rank) {
  for (std::int64_t axis : axes) plain_axis(call, axis, rank);
  std::vector<int> plain = plain_axes(axes, rank);
  if (std::adjacent_find(plain.begin(), plain.end()) != plain.end()) {
    call.fail(ErrorKind::shape, fmt::format("axes [{}] name one axis twice", fmt::join(axes, ", ")));
  }
  return plain;
}

std::vector<int> plain_axes(const Ints& axes, int rank) {
  std::vector<int> plain;
  for (std::int64_t axis : axes) plain.push_back(static_cast<int>(axis < 0 ? axis + rank : axis));
  if (axes.empty()) {
    plain.resize(static_cast<std::size_t>(rank));
    std::iota(plain.begin(), plain.end(), 0);
  }
  std::sort(plain.begin(), plain.end());
  return plain;
}

int plain_axis(const Value& a, std::int64_t axis, std::string_view op) {
  return plain_axis(OpCall{*find_op(op), {}, {}, {}, a.graph().scope}, axis, a.shape().rank());
}

Ints to_ints(const Shape& shape) { return {shape.begin(), shape.end()}; }

Shape to_shape(const Ints& dims) { return Shape{std::span<const std::int64_t>(dims)}; }

Ints with_front(const Ints& ints, std::int64_t first) {
  Ints longer{first};
  longer.insert(longer.end(), ints.begin(), ints.end());
  return longer;
}

}  // namespace paoding
