// SPDX-License-Identifier: Apache-2.0
// Products of Hopper's warpgroups (wgmma) whose right factor is a TMA tile of 16-bit elements in shared memory, and
// whose left factor is one too or is in registers, as a softmax leaves it there.
#pragma once

#include <string>

#include "paoding/types.h"

namespace paoding::gpu {

/// One form of a product of 64 rows: name(sum, a, b, step, adds) adds to the sums, or sets them, those of 16 k's. A
/// lane has of every 8 columns those of 2 (lane % 4) and the next, of rows lane / 4 and 8 more of its warp's 16.
/// A TMA tile has rows of 64 elements, and the next 64 elements of all its rows lie behind it.
struct TileProduct {
  std::string name;
  DType dtype = DType::bf16;
  int columns = 64;
  int a_rows = 0;            // of the left factor's TMA tile; 0: four words of a lane
  int b_rows = 0;            // of the right factor's; 0: a last argument says how far its next 64 columns are
  bool is_b_across = false;  // its rows are one for every k, else they lie along K
};

/// The source of Tile, a place in shared memory that the tensor cores read, the same for all lanes of a warp:
/// tile_at(pointer), tile_beyond(tile, elements), tile_distance(from, to) in 16 bytes; and work_out(values). Stands
/// after tensor_cores.cu and Stored.
std::string tile_text();
/// The source of a product.
std::string product_text(const TileProduct& product);
/// The source of sums_wait<kLeft>(sum) for so many sums of a thread: they may be read once at most the last kLeft
/// groups of products are under way.
std::string sums_text(int sums);

}  // namespace paoding::gpu
