// SPDX-License-Identifier: Apache-2.0
// The definitions of ops, in double with naive loops: a function per op that is no formula. reference_evaluator.cpp has
// those of shapes and sums; every family of kernel ops adds its own in a reference_*.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "paoding/graph.h"

namespace paoding::reference {

using Ints = std::vector<std::int64_t>;
using Dense = std::vector<double>;

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Calls visit(index) for every index of `shape`, last axis fastest.
inline void for_each_index(const Ints& shape, const std::function<void(const Ints&)>& visit) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  Ints index(shape.size(), 0);
  while (true) {
    visit(index);
    std::size_t axis = shape.size();
    while (axis > 0 && ++index[axis - 1] == shape[axis - 1]) index[--axis] = 0;
    if (axis == 0) return;
  }
}

inline Ints to_ints(const Shape& shape) { return {shape.begin(), shape.end()}; }

inline std::int64_t offset(const Ints& index, const Ints& shape) {
  std::int64_t result = 0;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) result = result * shape[axis] + index[axis];
  return result;
}

// Where `index` of a broadcast result falls in an operand of `shape`: aligned at the last axis, extents of 1 repeat.
inline std::int64_t broadcast_offset(const Ints& index, const Ints& shape) {
  Ints mine(shape.size());
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    mine[axis] = shape[axis] == 1 ? 0 : index[index.size() - shape.size() + axis];
  }
  return offset(mine, shape);
}

inline std::size_t plain(std::int64_t axis, std::size_t rank) {
  return at(axis < 0 ? axis + static_cast<std::int64_t>(rank) : axis);
}

/// One application of an op: the values and types of its inputs, the node for its attributes and result types.
struct Call {
  const Node& node;
  std::vector<Dense> inputs;
  std::vector<Type> types;  // of the inputs

  Ints shape(std::size_t input) const { return to_ints(types[input].shape); }
  Ints result_shape(std::size_t output = 0) const { return to_ints(node.types[output].shape); }
};

/// Gives an op its meaning, once, from a static initializer: `const bool added = add("conv2d", [](const Call&) {..});`
bool add(const std::string& op, std::function<std::vector<Dense>(const Call&)> meaning);

}  // namespace paoding::reference
