// SPDX-License-Identifier: Apache-2.0
#include "findings/product_time.h"

#include <algorithm>
#include <cmath>

namespace paoding::findings {

// Measured products (us) beside this formula: on an H100 6400 x 2048 x 512 (M x N x K) in TF32 54.2 and 43.4, in bf16
// 21.9 and 23.6; 6400 x 512 x 2048 49.0 and 49.2, 23.7 and 26.5 (benchmarks/results/2026-11-26-products.txt); on an
// H200 in TF32 128 x 2048 x 512 7.2 and 4.7, 128 x 2048 x 1024 9.4 and 5.4 (2026-11-22-products-of-few-rows.txt).
double product_ns(const DeviceLimits& limits, Unit unit, const ProductShape& shape) {
  const double rate = limits.rate(unit);
  if (!limits.has_measured_products || rate <= 0 || limits.bytes_per_ns <= 0 || limits.sms <= 0) return 0;
  constexpr double kTile = 128, kLaunchNs = 4'000;
  const double tiles = std::ceil(static_cast<double>(shape.m) / kTile) *
                       std::ceil(static_cast<double>(shape.n) / kTile) * static_cast<double>(shape.batch);
  const double turns = tiles / limits.sms;
  // Fewer tiles than multiprocessors are split along K.
  const double left_over = turns > 1 ? std::ceil(turns) / turns : 1;
  return std::max(shape.flops() / rate * left_over, shape.bytes() / limits.bytes_per_ns) + kLaunchNs;
}

namespace {

std::int64_t elements_of_16_bytes(const ProductShape& shape) {
  return shape.element_bytes > 0 ? std::max(1, 16 / shape.element_bytes) : 1;
}

}  // namespace

bool is_aligned(const ProductShape& shape) {
  const std::int64_t step = elements_of_16_bytes(shape);
  return shape.n % step == 0 && shape.k % step == 0;
}

ProductShape aligned(const ProductShape& shape) {
  const std::int64_t step = elements_of_16_bytes(shape);
  ProductShape padded = shape;
  for (std::int64_t* extent : {&padded.m, &padded.n, &padded.k}) *extent = (*extent + step - 1) / step * step;
  return padded;
}

}  // namespace paoding::findings
