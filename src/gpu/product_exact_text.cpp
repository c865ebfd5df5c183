// SPDX-License-Identifier: Apache-2.0
#include "gpu/product_exact_text.h"

#include <algorithm>

#include "cuda_text.h"
#include "gpu/text_kernel.h"

namespace paoding::gpu {
namespace {

constexpr std::int64_t kTile = 64, kBlockK = 32, kStages = 4;
constexpr int kThreads = 256;

std::int64_t tiles_of(const ProductShape& shape) { return parts_of(shape.m, kTile) * parts_of(shape.n, kTile); }

}  // namespace

int exact_product_cluster(const ProductShape& shape, const Target& target) {
  const std::int64_t tiles = tiles_of(shape), blocks = parts_of(shape.k, kBlockK);
  // Clusters lie within a part of the chip, and some of its multiprocessors are left over.
  const std::int64_t most = target.sm_count * 32 / 33;
  int cluster = 8;
  while (cluster > 1 && (tiles * cluster > most || blocks < 2 * cluster)) cluster /= 2;
  return tiles * cluster > most || 5 * tiles * cluster < 2 * target.sm_count ? 0 : cluster;
}

TextLaunch plan_exact_product(const ProductShape& shape, int cluster) {
  TextParts parts;
  parts.name = "exact_product";
  parts.threads = kThreads;
  parts.constants =
      fmt::format("constexpr int kCluster = {}, kStages = {};\nconstexpr bool kIsTransposedB = {}, kIsSettledB = {};\n",
                  cluster, kStages, shape.is_transposed_b, shape.is_settled_b);
  parts.functions = std::string(k_exchange_cu) + k_warp_products_cu + k_tensor_cores_cu + k_product_exact_cu;
  parts.operands = {"const float* a", "const float* b", "float* out"};
  parts.call = "product(a, b, out, room, size)";
  parts.awaits_launch_before = parts.leaves_stamp = true;
  parts.ctas = tiles_of(shape) * cluster;
  auto& s = parts.sizes;
  s.number("m", shape.m), s.number("n", shape.n), s.number("k", shape.k);
  s.number("blocks", parts_of(shape.k, kBlockK)), s.divisor("tiles_m", parts_of(shape.m, kTile));
  s.number("a_stride", shape.a_stride), s.number("b_stride", shape.b_stride);
  s.wide_number("out_stride", shape.out_stride);
  TextLaunch launch = make_text_kernel(parts);
  launch.cluster = static_cast<unsigned>(cluster);
  const std::int64_t of_b = shape.is_transposed_b ? kTile * (kBlockK + 4) : kBlockK * kTile;
  const std::int64_t stages = kStages * (kTile * (kBlockK + 4) + of_b), sums = 4 * kTile * (kTile + 4);
  launch.shared_bytes = static_cast<unsigned>(std::max(stages, sums) * 4);
  launch.why = fmt::format("{} tiles of 64 x 64, K over {} CTAs", tiles_of(shape), cluster);
  return launch;
}

}  // namespace paoding::gpu
