// SPDX-License-Identifier: Apache-2.0
// Products by groups of four warps of Hopper whose factors lie in shared memory as squares: 8 rows of 16 bytes along K,
// one after the other. Squares that follow along K are so many bytes apart, and those of the next 8 rows so many
// others.
#pragma once

#include <string>

#include "paoding/types.h"

namespace paoding::gpu {

/// The source of squares_of(at, along, across), where an operand's squares lie, and of add_product, which adds to a
/// group's sums of 64 rows and `columns` columns (a multiple of 8, up to 256) those of 32 bytes along K, of TF32 (dtype
/// f32) or 16-bit elements: of rows that are squares too, or that each warp has its 16 of in registers (as add_tile has
/// them). Of every 8 columns a lane has 2 (lane % 4) and the next, of rows lane / 4 and 8 more. products_wait(sum):
/// after it the sums may be read, while as many groups of products as it is told (products_start) go on. Stands after
/// tensor_cores.cu.
std::string square_products(DType dtype, int columns);

}  // namespace paoding::gpu
