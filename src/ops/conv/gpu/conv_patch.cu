// SPDX-License-Identifier: Apache-2.0
// Convolutions of few channels: the images' part that a CTA's windows read is brought into shared memory once, as a
// patch, and every tap reads it there. The images are taken as one tall image: the rows that windows read, padding
// included, of one after the other, size.tall_rows each. A patch is some of those rows, whole. A slot is a pixel's
// place in it. Windows come in cells, kPoolRows by kPoolColumns of them that a pool makes one of; else a cell is a
// window.
using Word = unsigned;
constexpr int kInWord = 4 / (int)sizeof(Stored);

// An element that lies anywhere, as a part of a word for the tensor cores.
PD_DEVICE Word bits_at(const Stored* at) {
  return sizeof(Stored) == 4 ? *(const Word*)at : (Word)*(const unsigned short*)at;
}

constexpr int kWarpRows = kRows / 4;                                          // windows of one of 4 warps
constexpr int kWarpCells = kWarpRows / (kPoolRows * kPoolColumns), kCells = 4 * kWarpCells;
constexpr int kNoWindow = 255;                                                // of a cell whose gradient is 0

struct alignas(16) Window { int slot, out, row, index; };  // where it begins in the patch, and where its cell lies

// A warp's windows are g + 8 i, with g below 8: those of one g are below each other, i / kPoolRows cells apart, and
// those of one i side by side, as they are in the patch.
struct Member { int cell, row, column; };
PD_DEVICE Member member_at(int r) {
  const int i = r % kWarpRows / 8, across = i / kPoolRows * 8 + r % 8;
  return {r / kWarpRows * kWarpCells + across / kPoolColumns, i % kPoolRows, across % kPoolColumns};
}
PD_DEVICE int row_of(int cell, int row, int column) {
  const int across = cell % kWarpCells * kPoolColumns + column;
  return cell / kWarpCells * kWarpRows + (across / 8 * kPoolRows + row) * 8 + across % 8;
}

// The first row of the tall image that window r of a tile reads, and the other fields of the window.
PD_DEVICE Window window_at(int first_cell, int r, const Sizes& size) {
  const Member m = member_at(r);
  int cell = first_cell + m.cell;
  if (cell >= size.cells) cell = size.cells - 1;
  const int j = next_coordinate(cell, size.cell_columns), i = next_coordinate(cell, size.cell_rows);
  Window window{(j * kPoolColumns + m.column) * size.step_w,
                cell * size.of_window_n + i * size.of_window_h + j * size.of_window_w,
                cell * (int)size.tall_rows.count + (i * kPoolRows + m.row) * size.step_h, 0};
  if constexpr (kHasIndex) window.index = cell * size.index_n + i * size.index_h + j * size.index_w;
  return window;
}

// The value as the tensor cores are given it.
PD_DEVICE float as_factor(float value) {
  return kSame<Stored, float> ? __uint_as_float(round_to_tf32(__float_as_uint(value))) : value;
}
template <int kCount> PD_DEVICE void round_words(Stored* at) {
  Pack<Stored, kCount> pack;
  load<false>(pack, at);
#pragma unroll
  for (int i = 0; i < kCount; ++i) pack.word[i] = round_to_tf32(pack.word[i]);
  store(at, pack);
}

// Beside other work where there are 4 bytes, of which there are copies.
template <int kCount> PD_DEVICE void bring_piece(Stored* to, const Stored* from, bool is_there) {
  if constexpr (kCount * sizeof(Stored) >= 4) {
    copy_beside<kCount * (int)sizeof(Stored)>(to, from, is_there);
  } else {
    Pack<Stored, kCount> pack{};
    if (is_there) load<true>(pack, from);
    store(to, pack);
  }
}

// Calls visit(where in the patch, n, h, w, c, whether it is there) for this thread's pieces of rows [first, last] of
// the tall image. Warps have rows, lanes have pieces that lie side by side in them.
template <class Visit> PD_DEVICE void for_each_piece(int first, int last, const Sizes& size, Visit visit) {
  constexpr int kInSlot = kChannels / kPiece;
  const int pieces = size.patch_columns * kInSlot, lane = threadIdx.x % 32;
  for (int row = first + threadIdx.x / 32; row <= last; row += kThreads / 32) {
    int n = row;
    const int h = next_coordinate(n, size.tall_rows) + size.first_h;
    const bool is_row = h >= 0 && h < size.image_rows;
    const int to = (row - first) * size.patch_columns * kSlot;
#pragma unroll 4
    for (int at = lane; at < pieces; at += 32) {
      const int q = at / kInSlot, c = at % kInSlot * kPiece, w = q + size.first_w;
      visit(to + q * kSlot + c, n, h, w, c, is_row && w >= 0 && w < size.image_columns);
    }
  }
}

PD_DEVICE void bring_patch(Stored* patch, const Stored* images, int first, int last, const Sizes& size) {
  for_each_piece(first, last, size, [&](int to, int n, int h, int w, int c, bool is_there) {
    const int from = n * size.image_n + h * size.image_h + w * size.image_w + (kPiece == 1 ? c * size.image_c : c);
    bring_piece<kPiece>(patch + to, images + from, is_there);
  });
  copies_end_group();
}

// Rounds this thread's part of the patch, once for all taps.
PD_DEVICE void finish_patch(Stored* patch, int first, int last, const Sizes& size) {
  copies_wait<0>();
  if constexpr (kSame<Stored, float>) {
    for_each_piece(first, last, size,
                   [&](int to, int, int, int, int, bool) { round_words<kPiece>(patch + to); });
  }
}

// Where tap (k, l) of a window at slot 0 is, in elements.
PD_DEVICE int tap_offset(int k, int l, const Sizes& size) { return (k * size.tap_h + l * size.tap_w) * kSlot; }
