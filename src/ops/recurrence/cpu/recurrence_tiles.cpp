// SPDX-License-Identifier: Apache-2.0
// Products of tiles of bf16, added up in f32, by AMX. Its eight tiles are registers of a thread that are shaped before
// they are used; assembly, since compilers take a tile's number as text only.
#include "base/check.h"
#include "ops/recurrence/recurrence_work.h"

#if defined(__x86_64__)
#include <algorithm>
#endif

namespace paoding {

#if defined(__x86_64__)
namespace {

// The operand of ldtilecfg: all tiles have kTileRows rows of 64 bytes.
struct TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  TileShapes() {
    std::fill_n(row_bytes, 8, 64);
    std::fill_n(rows, 8, kTileRows);
  }
};
static_assert(sizeof(TileShapes) == 64);

template <int kTile>
void clear() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
template <int kTile>
void load(const void* from, std::int64_t row_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row_bytes), "i"(kTile) : "memory");
}
template <int kTile>
void keep(void* to, std::int64_t row_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(row_bytes), "i"(kTile) : "memory");
}
template <int kSum, int kRows, int kColumns>
void multiply_add() {
  asm volatile("tdpbf16ps %%tmm%c0, %%tmm%c1, %%tmm%c2" ::"i"(kColumns), "i"(kRows), "i"(kSum));
}

// Sums are in tiles 0 .. 3, rows in 4 and 5, columns in 6 and 7.
template <int kRowTiles, int kColumnTiles>
void multiply_columns(const std::uint16_t* a, std::int64_t stride, std::int64_t depth, const std::uint16_t* panel,
                      std::int64_t width, float* tile) {
  clear<0>();
  if (kColumnTiles == 2) clear<1>();
  if (kRowTiles == 2) clear<2>();
  if (kRowTiles == 2 && kColumnTiles == 2) clear<3>();
  const std::int64_t row_bytes = stride * 2, pair_bytes = width * 4;
  for (std::int64_t k = 0; k < depth; k += kTileDepth, panel += kTileDepth * width) {
    load<4>(a + k, row_bytes);
    load<6>(panel, pair_bytes);
    multiply_add<0, 4, 6>();
    if constexpr (kColumnTiles == 2) {
      load<7>(panel + 2 * kUnitBlock, pair_bytes);
      multiply_add<1, 4, 7>();
    }
    if constexpr (kRowTiles == 2) {
      load<5>(a + kTileRows * stride + k, row_bytes);
      multiply_add<2, 5, 6>();
      if constexpr (kColumnTiles == 2) multiply_add<3, 5, 7>();
    }
  }
  float* second = tile + kTileRows * width;
  keep<0>(tile, pair_bytes);
  if (kColumnTiles == 2) keep<1>(tile + kUnitBlock, pair_bytes);
  if (kRowTiles == 2) keep<2>(second, pair_bytes);
  if (kRowTiles == 2 && kColumnTiles == 2) keep<3>(second + kUnitBlock, pair_bytes);
}

template <int kRowTiles>
void multiply_rows(std::int64_t parts, const std::uint16_t* a, std::int64_t stride, std::int64_t depth,
                   const std::uint16_t* panel, float* tile) {
  const std::int64_t width = parts * kUnitBlock;
  std::int64_t part = 0;
  for (; part + 2 <= parts; part += 2) {
    const std::int64_t column = part * kUnitBlock;
    multiply_columns<kRowTiles, 2>(a, stride, depth, panel + 2 * column, width, tile + column);
  }
  if (part == parts) return;
  const std::int64_t column = part * kUnitBlock;
  multiply_columns<kRowTiles, 1>(a, stride, depth, panel + 2 * column, width, tile + column);
}

}  // namespace

void multiply_tiles(std::int64_t rows, std::int64_t parts, const std::uint16_t* a, std::int64_t stride,
                    std::int64_t depth, const std::uint16_t* panel, float* tile) {
  if (rows > kTileRows) return multiply_rows<2>(parts, a, stride, depth, panel, tile);
  multiply_rows<1>(parts, a, stride, depth, panel, tile);
}

TileScope::TileScope(bool is_used) : is_used_(is_used) {
  if (!is_used) return;
  asm volatile("sttilecfg %0" : "=m"(before_));
  static const TileShapes shapes;
  asm volatile("ldtilecfg %0" ::"m"(shapes));
}

TileScope::~TileScope() {
  if (!is_used_) return;
  if (before_[0] == 0) {  // no palette: none was in use
    asm volatile("tilerelease");
  } else {
    asm volatile("ldtilecfg %0" ::"m"(before_));
  }
}

#else

void multiply_tiles(std::int64_t, std::int64_t, const std::uint16_t*, std::int64_t, std::int64_t, const std::uint16_t*,
                    float*) {
  PD_ASSERT(false, "no CPU but x86 multiplies tiles of bf16");
}

TileScope::TileScope(bool is_used) : is_used_(is_used) {}
TileScope::~TileScope() = default;

#endif

}  // namespace paoding
