// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/product_text.h"

#include <algorithm>

#include "base/check.h"
#include "base/rounding.h"
#include "cuda_text.h"
#include "gpu/codegen/text_kernel.h"

namespace paoding::gpu {
namespace {

constexpr int kColumnsOfGroup = 64, kBlockK = 32;
constexpr std::int64_t kMostStages = 8, kLowPlaces = 3;

struct Extents {
  std::int64_t columns;         // of a CTA's tile
  std::int64_t blocks, stages;  // along K: of the product, and in shared memory
  std::int64_t tiles_m, tiles_n, ctas;

  Extents(const ProductShape& shape, const ProductTile& tile) {
    columns = kColumnsOfGroup * tile.groups;
    blocks = ceil_div(shape.k, kBlockK);
    stage_bytes_ = (tile.rows + columns) * kBlockK * 4;
    low_bytes_ = shape.is_exact ? tile.parts * kLowPlaces * tile.rows * kBlockK * 4 : 0;
    stages = std::min(kMostStages, (most_stage_bytes(tile) - low_bytes_) / stage_bytes_);
    sum_bytes_ = tile.parts * tile.rows * (columns + 4) * 4;
    tiles_m = ceil_div(shape.m, tile.rows), tiles_n = ceil_div(shape.n, columns);
    ctas = tiles_m * tiles_n * tile.cluster;
  }
  double stage_kilobytes() const { return double(stage_bytes_) / 1e3; }
  std::int64_t shared_bytes() const {
    return 1024 + std::max(stages * stage_bytes_ + low_bytes_, sum_bytes_) + stages * 16;
  }

 private:
  // For few rows it is less than half of an SM's, so that the kernel after the product may begin beside it.
  static std::int64_t most_stage_bytes(const ProductTile& tile) { return (tile.rows == 32 ? 110 : 192) << 10; }
  std::int64_t stage_bytes_, low_bytes_, sum_bytes_;
};

// The functions that add the tensor cores' products to a group's sums; one instruction has all sums as operands.
std::string product_functions(int rows) {
  const int sums = rows / 2;
  std::string places, operands, whole;
  for (int i = 0; i < sums; ++i) {
    places += fmt::format("{}%{}", i == 0 ? "" : ", ", i);
    operands += fmt::format("{}\"+f\"(sum[{}])", i == 0 ? "" : ", ", i);
  }
  return fmt::format(R"(
#ifdef PD_EMULATE
using emulation::add_product;
using emulation::products_wait;
#else
PD_DEVICE void add_product(float (&sum)[{0}], const unsigned (&words)[4], TmaTile tile, int step) {{
  asm volatile("wgmma.mma_async.sync.aligned.m64n{1}k8.f32.tf32.tf32 {{{2}}}, {{%{3}, %{4}, %{5}, %{6}}}, %{7}, 1, 1, 1;"
               : {8}
               : "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "l"(tile_descriptor(tile, step)));
}}
PD_DEVICE void products_wait(float (&sum)[{0}]) {{
  asm volatile("wgmma.wait_group.sync.aligned 0;" : {8} : : "memory");
}}
#endif
)",
                     sums, rows, places, sums, sums + 1, sums + 2, sums + 3, sums + 4, operands);
}

}  // namespace

std::string to_string(const ProductTile& tile) {
  return fmt::format("{} x {}, K over {} CTAs{}", tile.rows, kColumnsOfGroup * tile.groups, tile.cluster,
                     tile.parts == 1 ? "" : fmt::format(" of {} parts", tile.parts));
}

std::vector<ProductTile> product_tiles(bool is_exact) {
  std::vector<ProductTile> tiles;
  for (const int rows : {32, 64, 128}) {
    for (const int groups : {1, 2}) {
      if (is_exact && (rows > 64 || groups > 1)) continue;  // two sums a row; low parts of rows are a group's own
      for (const int cluster : {1, 2, 4, 8}) {
        tiles.push_back({rows, groups, cluster});
        if (groups == 1) tiles.push_back({rows, groups, cluster, 2});
      }
    }
  }
  return tiles;
}

double product_us(const ProductShape& shape, const ProductTile& tile, const Target& target) {
  const Extents e(shape, tile);
  // Clusters lie within a part of the chip, and some of its multiprocessors are left over.
  const double usable = target.sm_count * (tile.cluster > 2 ? 0.91 : 1.0);
  const auto at_once = std::max<std::int64_t>(static_cast<std::int64_t>(usable / tile.cluster), 1);
  const std::int64_t clusters = e.tiles_m * e.tiles_n;
  const double rounds = double(ceil_div(clusters, at_once)), blocks = double(ceil_div(e.blocks, tile.cluster));
  const double share = double(std::min(clusters, at_once) * tile.cluster) / target.sm_count;  // of the chip that works
  const double group_rows = tile.rows * tile.groups / 64.0;
  // Fitted to 336 products on an H200: benchmarks/results/2026-11-22-products-of-few-rows.txt.
  const double exact_us = shape.is_exact ? 0.05 + 0.1 * group_rows : 0;  // not measured apart
  const double alone_us = exact_us + 0.157 + 0.0513 * group_rows + 0.0021 * e.stage_kilobytes() * share;
  const double block_us = tile.parts == 1 ? alone_us : 0.6 * alone_us;  // not measured: one part's work hides another's
  const double start_us = tile.cluster > 1 ? 0.87 : 1.69, end_us = 1.17 + (tile.cluster > 1 ? 0.78 * group_rows : 0);
  return start_us + rounds * (blocks * block_us + end_us);
}

ProductTile choose_product_tile(const ProductShape& shape, const Target& target) {
  const std::vector<ProductTile> tiles = product_tiles(shape.is_exact);
  return *std::min_element(tiles.begin(), tiles.end(), [&](const ProductTile& a, const ProductTile& b) {
    return product_us(shape, a, target) < product_us(shape, b, target);
  });
}

TextLaunch plan_product(const ProductShape& shape, const ProductTile& tile) {
  const Extents e(shape, tile);
  TextParts parts;
  parts.name = "product";
  parts.threads = 128 * tile.groups * tile.parts + 32;
  parts.constants = fmt::format(
      "constexpr int kRows = {}, kGroups = {}, kParts = {}, kCluster = {}, kStages = {};\n"
      "constexpr bool kIsTransposedB = {}, kIsBUnmodifiedByPrevious = {}, kIsExact = {};\n",
      tile.rows, tile.groups, tile.parts, tile.cluster, e.stages, shape.is_transposed_b,
      shape.is_b_unmodified_by_previous, shape.is_exact);
  parts.functions = std::string(k_exchange_cu) + k_tensor_cores_cu + k_tma_stages_cu + k_exact_factors_cu +
                    product_functions(tile.rows) + k_product_cu;
  parts.operands = {"const float* a", "const float* b", "float* out"};
  parts.maps = {"a_map", "b_map"};
  parts.call = "product(a, b, out, a_map, b_map, scratch, size)";
  parts.waits_for_grid_dependency = parts.leaves_stamp = true;
  parts.ctas = e.ctas;
  parts.sizes.number("m", shape.m), parts.sizes.number("n", shape.n);
  parts.sizes.number("blocks", e.blocks);
  parts.sizes.divisor("tiles_m", e.tiles_m);
  parts.sizes.number("k", shape.k);
  parts.sizes.wide_number("a_stride", shape.a_stride), parts.sizes.wide_number("b_stride", shape.b_stride);
  parts.sizes.wide_number("out_stride", shape.out_stride);
  TextLaunch launch = make_text_kernel(parts);
  launch.cluster = static_cast<unsigned>(tile.cluster);
  launch.shared_bytes = static_cast<unsigned>(e.shared_bytes());
  launch.maps = {TensorMap::matrix(0, shape.m, shape.k, shape.a_stride, tile.rows),
                 shape.is_transposed_b
                     ? TensorMap::matrix(1, shape.n, shape.k, shape.b_stride, static_cast<int>(e.columns))
                     : TensorMap::matrix(1, shape.k, shape.n, shape.b_stride, kBlockK)};
  for (TensorMap& map : launch.maps) map.is_rounded = !shape.is_exact;
  launch.why = fmt::format("{} tiles of {}", e.tiles_m * e.tiles_n, to_string(tile));
  return launch;
}

}  // namespace paoding::gpu
