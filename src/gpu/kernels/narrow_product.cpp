// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/narrow_product.h"

#include <algorithm>

#include "base/rounding.h"
#include "cuda_text.h"
#include "gpu/codegen/text_kernel.h"

namespace paoding::gpu {
namespace {

constexpr std::int64_t kRows = 64, kColumns = 32, kParts = 4;
constexpr std::int64_t kGap = 8;  // elements between rows in shared memory

std::int64_t depth_of(const NarrowProduct& product) { return round_up(product.k, 16 * kParts); }

}  // namespace

std::int64_t narrow_product_bytes(const NarrowProduct& product) {
  const std::int64_t depth = depth_of(product), sums = (kParts - 1) * kRows * kColumns * 4;
  return std::max((kRows * (depth + kGap) + depth * (kColumns + kGap)) * size_bytes(product.dtype), sums);
}
std::int64_t narrow_product_ctas(const NarrowProduct& product) {
  return ceil_div(product.m, kRows) * ceil_div(product.n, kColumns);
}

TextLaunch plan_narrow_product(const NarrowProduct& product) {
  TextParts parts;
  parts.name = "product";
  parts.threads = kRows / 16 * kParts * 32;
  parts.constants = fmt::format(
      "using Stored = {};\nconstexpr int kRows = {}, kColumns = {}, kDepth = {};\nconstexpr bool "
      "kIsBUnmodifiedByPrevious = {};\n",
      stored_type(product.dtype), kRows, kColumns, depth_of(product), product.is_b_unmodified_by_previous);
  parts.functions = std::string(k_warp_products_cu) + k_narrow_product_cu;
  parts.operands = {input_parameter(product.dtype, "a"), input_parameter(product.dtype, "b"),
                    output_parameter(product.dtype, "out")};
  parts.call = "product(a, b, out, scratch, size)";
  parts.waits_for_grid_dependency = parts.leaves_stamp = true;
  parts.ctas = narrow_product_ctas(product);
  parts.sizes.number("m", product.m), parts.sizes.number("n", product.n), parts.sizes.number("k", product.k);
  parts.sizes.divisor("tiles_m", ceil_div(product.m, kRows));
  parts.sizes.number("a_stride", product.a_stride), parts.sizes.number("b_stride", product.b_stride);
  parts.sizes.number("out_stride", product.out_stride);
  parts.is_wide = needs_wide_index(
      std::max({product.m * product.a_stride, product.k * product.b_stride, product.m * product.out_stride}));
  TextLaunch launch = make_text_kernel(parts);
  launch.shared_bytes = static_cast<unsigned>(narrow_product_bytes(product));
  launch.why = fmt::format("{} tiles of {} x {}, K as a whole", parts.ctas, kRows, kColumns);
  return launch;
}

}  // namespace paoding::gpu
