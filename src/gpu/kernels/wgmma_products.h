// SPDX-License-Identifier: Apache-2.0
// Products of TMA tiles of 16-bit elements in shared memory (tensor_cores.cu), by Hopper's warpgroups (wgmma).
#pragma once

#include <array>
#include <string>

#include "paoding/types.h"

namespace paoding::gpu {

/// The source of add_product(sum, a, b, step), which adds to a group's sums of 64 rows and `columns` columns (a
/// multiple of 8, up to 256) those of 16 k's of two TMA tiles, and of products_wait(sum), after which the sums may be
/// read. A lane has of every 8 columns those of 2 (lane % 4) and the next, of rows lane / 4 and 8 more of its
/// warp's 16. Rows of a TMA tile lie along K, or, `is_across`, are one for every k, 64 elements, with 64 rows or
/// columns more after each TMA tile. Eight rows of either TMA tile lie so many rows after the eight before: in parts of
/// images more than
/// 8. An instruction has at most `at_once` columns: of 256 it wants 154 registers when a kernel begins, whatever it
/// takes later.
std::string wgmma_products(DType dtype, int columns, std::array<bool, 2> is_across, std::array<int, 2> pitches = {8, 8},
                           int at_once = 256);

/// The source of add_row_product(sum, a, next, b, step): the same products of 16 k's of a TMA tile b, rows along K,
/// with 64 rows of 8 k's each at a and at next, after it, 16 bytes a row.
std::string row_products(DType dtype, int columns);

/// The source of add_rows_product(sum, a, b, step) and rows_wait(sum): products of 16 k's of a TMA tile a that lies
/// across K, and of rows at b, one for every k, of 8 columns in 16 bytes; the next 8 columns are those of the next row.
std::string row_sums(DType dtype, int columns);

}  // namespace paoding::gpu
