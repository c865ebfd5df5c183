// SPDX-License-Identifier: Apache-2.0
#include "passes/axis_runs.h"

namespace paoding {

std::vector<AxisRun> axis_runs(const Shape& from, const Shape& to) {
  std::vector<AxisRun> runs;
  int a = 0, b = 0;
  const auto skip_ones = [&] {
    while (a < from.rank() && from[a] == 1) ++a;
    while (b < to.rank() && to[b] == 1) ++b;
  };
  for (skip_ones(); a < from.rank() && b < to.rank(); skip_ones()) {
    AxisRun run{{a}, {b}};
    std::int64_t in = from[a++], out = to[b++];
    while (in != out) {
      skip_ones();
      if (in < out) {
        run.from.push_back(a), in *= from[a++];
      } else {
        run.to.push_back(b), out *= to[b++];
      }
    }
    runs.push_back(std::move(run));
  }
  return runs;
}

std::optional<Shape> reshaped_operand(const Shape& operand, const Shape& from, const Shape& to) {
  const int absent = from.rank() - operand.rank();
  std::vector<std::int64_t> dims(static_cast<std::size_t>(to.rank()), 1);
  for (const AxisRun& run : axis_runs(from, to)) {
    std::size_t varies = 0;
    for (const int axis : run.from) varies += axis >= absent && operand[axis - absent] != 1;
    if (varies != 0 && varies != run.from.size()) return std::nullopt;
    for (const int axis : run.to) dims[static_cast<std::size_t>(axis)] = varies != 0 ? to[axis] : 1;
  }
  std::size_t first = 0;
  while (first < dims.size() && dims[first] == 1) ++first;
  return Shape(std::span<const std::int64_t>(dims).subspan(first));
}

}  // namespace paoding
