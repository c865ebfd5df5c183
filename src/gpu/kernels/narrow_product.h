// SPDX-License-Identifier: Apache-2.0
// Products of few rows of 16 bits: CUDA source of our own (narrow_product.cu). Argument lists are those of
// text_kernel.h: a, b, out.
#pragma once

#include "base/target.h"
#include "gpu/codegen/text_launch.h"
#include "paoding/types.h"

namespace paoding::gpu {

/// out [m, n] = a [m, k] b [k, n], all of `dtype`; strides in elements from row to row. k, n and strides are multiples
/// of 8, rows start at multiples of 16 bytes.
struct NarrowProduct {
  DType dtype = DType::bf16;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t a_stride = 0, b_stride = 0, out_stride = 0;
  bool is_b_unmodified_by_previous = false;  // the launch before does not write b
};

/// Bytes of a CTA's shared memory.
std::int64_t narrow_product_bytes(const NarrowProduct& product);
std::int64_t narrow_product_ctas(const NarrowProduct& product);
TextLaunch plan_narrow_product(const NarrowProduct& product);

}  // namespace paoding::gpu
