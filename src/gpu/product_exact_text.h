// SPDX-License-Identifier: Apache-2.0
// Products of few rows in f32 that is not rounded: CUDA text of our own (product_exact.cu), for GPUs with clusters.
// Argument lists are those of text_kernel.h: a, b, out.
#pragma once

#include "gpu/product_text.h"

namespace paoding::gpu {

/// CTAs that share out K: as many as one wave has room for; 0 where tiles alone are more than that, or would leave
/// most of the chip empty.
int exact_product_cluster(const ProductShape& shape, const Target& target);

/// Strides, k and n are multiples of 4, addresses of 16 bytes.
TextLaunch plan_exact_product(const ProductShape& shape, int cluster);

}  // namespace paoding::gpu
