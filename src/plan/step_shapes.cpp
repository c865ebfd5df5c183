// SPDX-License-Identifier: Apache-2.0
#include "plan/step_shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace paoding {
namespace {

std::string text_of(const Layout& layout) {
  const Shape& shape = layout.type.shape;
  const auto rank = static_cast<std::size_t>(shape.rank());
  std::vector<std::int64_t> extents(shape.begin(), shape.end());
  std::vector<std::size_t> order(rank);  // from the innermost outwards
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  for (std::size_t axis = 0; axis < rank; ++axis) {
    if (layout.strides[axis] == 0) extents[axis] = std::min<std::int64_t>(extents[axis], 1);
  }
  // Axes of one element may be anywhere, and stay where they are.
  std::vector<std::size_t> real;
  for (const std::size_t axis : order) {
    if (extents[axis] > 1) real.push_back(axis);
  }
  const std::vector<std::size_t> before = real;
  std::ranges::stable_sort(real, {}, [&](std::size_t axis) { return layout.strides[axis]; });
  std::string text = fmt::format("{}[{}", to_string(layout.type.dtype), fmt::join(extents, ","));
  const bool has_rows = real.size() > 1 && layout.strides[real[0]] == 1;
  if (has_rows && layout.strides[real[1]] != extents[real[0]]) text += fmt::format(":{}", layout.strides[real[1]]);
  text += "]";
  if (real == before) return text;
  auto next = real.begin();
  for (std::size_t& axis : order) {
    if (extents[axis] > 1) axis = *next++;
  }
  return text + fmt::format("{{{}}}", fmt::join(order, ","));
}

}  // namespace

std::string shapes_of(const Step& step) {
  constexpr std::size_t kMostOperands = 64;
  const bool is_kernel = step.kind == Step::Kind::group || step.kind == Step::Kind::kernel;
  if (!is_kernel || step.operands.empty() || step.operands.size() > kMostOperands) return "";
  std::string text;
  for (std::size_t i = 0; i < step.operands.size(); ++i) {
    text += i == step.reads ? (i == 0 ? "-> " : " -> ") : i == 0 ? "" : ", ";
    text += text_of(step.operands[i].layout);
  }
  return text;
}

}  // namespace paoding
