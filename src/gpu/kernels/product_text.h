// SPDX-License-Identifier: Apache-2.0
// Products of few rows in f32, rounded to TF32 or not: CUDA source of our own (product.cu), for GPUs with clusters.
// Argument lists are those of text_kernel.h: a, b, out.
#pragma once

#include <string>
#include <vector>

#include "base/target.h"
#include "gpu/codegen/text_launch.h"

namespace paoding::gpu {

/// out [m, n] = a [m, k] b [k, n], all f32; strides in elements from row to row as stored.
struct ProductShape {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t a_stride = 0, b_stride = 0, out_stride = 0;
  bool is_transposed_b = false;              // b is stored as [n, k]
  bool is_b_unmodified_by_previous = false;  // the launch before does not write b
  bool is_exact = false;                     // exact f32 (no TF32)
};

/// How a product is shared out: a CTA has `rows` rows by 64 `groups` columns of the result, and a part of K, if the
/// CTAs of a cluster share that out; within it, `parts` sets of its groups take blocks along K in turn.
struct ProductTile {
  int rows = 128;
  int groups = 1;  // of four warps
  int cluster = 1;
  int parts = 1;

  friend bool operator==(const ProductTile&, const ProductTile&) = default;
};
std::string to_string(const ProductTile& tile);

/// Every tile that a kernel can be made for.
std::vector<ProductTile> product_tiles(bool is_exact = false);
/// About how long the product takes with that tile, in us.
double product_us(const ProductShape& shape, const ProductTile& tile, const Target& target);
ProductTile choose_product_tile(const ProductShape& shape, const Target& target);

TextLaunch plan_product(const ProductShape& shape, const ProductTile& tile);

}  // namespace paoding::gpu
