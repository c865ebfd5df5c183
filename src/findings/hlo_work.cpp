// SPDX-License-Identifier: Apache-2.0
#include "findings/hlo_work.h"

#include <algorithm>
#include <cmath>

namespace paoding::findings {

namespace {

// A call of a library has two factors [.. m k] and [.. k n] with a result [.. m n] say how long the sums are, in any
// the order of their axes: k is the root of |a| |b| / |c| for each of the batch. 0 where that is no extent of both.
double flops_of_two(const HloShapes& all, const OperandShape& result) {
  if (all.inputs.size() != 2) return 0;
  const auto& a = all.inputs[0].extents;
  const auto& b = all.inputs[1].extents;
  std::int64_t batch = 1;
  const std::size_t batched = result.extents.size() > 2 ? result.extents.size() - 2 : 0;
  for (std::size_t i = 0; i < batched; ++i) batch *= std::max<std::int64_t>(result.extents[i], 1);
  const double squared = static_cast<double>(all.inputs[0].elements()) * static_cast<double>(all.inputs[1].elements()) /
                         (static_cast<double>(result.elements()) * static_cast<double>(batch));
  const auto k = static_cast<std::int64_t>(std::llround(std::sqrt(squared)));
  const auto has = [&](const std::vector<std::int64_t>& extents) {
    return std::ranges::find(extents, k) != extents.end();
  };
  if (k <= 0 || static_cast<double>(k) * static_cast<double>(k) != squared || !has(a) || !has(b)) return 0;
  return 2.0 * static_cast<double>(result.elements()) * static_cast<double>(k);
}

}  // namespace

OpWork work_of_hlo(std::string_view shapes, KernelKind kind, double flops) {
  const HloShapes all = operands_of_hlo(shapes);
  OpWork work;
  constexpr std::int64_t kMost = std::int64_t{1} << 60;  // a broken file may have very many
  for (const OperandShape& input : all.inputs) {
    work.read = std::min(work.read + input.bytes(), kMost);
    work.elements = std::max(work.elements, input.elements());
  }
  for (const OperandShape& result : all.results) {
    work.written = std::min(work.written + result.bytes(), kMost);
    work.elements = std::max(work.elements, result.elements());
    work.element_bytes = std::max(work.element_bytes, result.element_bytes);
  }
  work.flops = flops;
  if (!all.inputs.empty()) work.unit = all.inputs.front().unit;
  const bool is_product = kind == KernelKind::product && !all.results.empty() && !all.results.front().extents.empty();
  if (!is_product) return work;
  const OperandShape& result = all.results.front();
  if (flops <= 0) {
    flops = flops_of_two(all, result);
    work.flops = flops;
  }
  if (flops <= 0) return work;
  ProductShape shape;
  shape.n = result.extents.back();
  shape.m = result.extents.size() > 1 ? result.extents[result.extents.size() - 2] : 1;
  if (shape.m <= 0 || shape.n <= 0) return work;
  shape.batch = result.elements() / (shape.m * shape.n);
  shape.element_bytes = all.inputs.empty() ? result.element_bytes : all.inputs.front().element_bytes;
  const double sums = 2.0 * static_cast<double>(result.elements());
  constexpr double kMostSum = 1e15;
  shape.k = static_cast<std::int64_t>(std::min(flops / sums + 0.5, kMostSum));
  if (shape.k > 0) work.product = shape;
  return work;
}

}  // namespace paoding::findings
