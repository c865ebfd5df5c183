// SPDX-License-Identifier: Apache-2.0
// Parts of the attention kernels: the items of work of a CTA, the rows that TMA brings, masks, the softmax's powers,
// rows that leave the registers. Stands after tensor_cores.cu, tile_products.cpp's source and the constants of the
// kernel: kWidth columns of a row in shared memory, kHasHigh, kHasLow, kHasLengths, kClears. Query i sees keys from i + size.low
// to i + size.high, if there are such limits, that stand before its batch row's length.

constexpr float kLog2E = 1.4426950408889634f;
constexpr int kNowhere = 1 << 30;  // beyond every row

#ifdef PD_EMULATE
PD_DEVICE float power_of_2(float a) { return std::exp2(a); }
#else
PD_DEVICE float power_of_2(float a) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(a));
  return power;
}
#endif
PD_DEVICE int least(int a, int b) { return a < b ? a : b; }
PD_DEVICE int most(int a, int b) { return a > b ? a : b; }
PD_DEVICE float infinity() { return __uint_as_float(0x7f800000u); }
PD_DEVICE float scale_of(const Sizes& size) { return __uint_as_float((unsigned)size.scale); }

// This warp's group of four, in a way that shows it to be the warp's.
PD_DEVICE int group_of_warp() { return __shfl_sync(~0u, (int)threadIdx.x / 128, 0); }

// The largest value of a row's four lanes; their sum.
PD_DEVICE float most_of_row(float value) {
  value = fmaxf(value, __shfl_xor_sync(~0u, value, 1));
  return fmaxf(value, __shfl_xor_sync(~0u, value, 2));
}
PD_DEVICE float sum_of_row(float value) {
  value += __shfl_xor_sync(~0u, value, 1);
  return value + __shfl_xor_sync(~0u, value, 2);
}

// ---- Items: a block of rows of one head. Blocks with most work come first, and CTAs take items in turns, every second
// turn in the opposite order, so that all have about as much. Some heads are gone through before the others, so that
// L2 keeps the rows that their items share.

struct Item {
  int batch, head;
  int row;     // its first; rows in front of row 0 are nobody's
  bool is_there;
  int length;  // keys of its batch row that some query may see
};
template <class Length> PD_DEVICE void find_head(Item& item, int head, const Length* lengths, const Sizes& size) {
  item.head = next_coordinate(head, size.item_heads);
  item.batch = head;
  item.length = size.seen_keys;
  if constexpr (kHasLengths) {
    const long long length = lengths[item.batch * size.lengths_batch];
    if (length < size.seen_keys) item.length = length < 0 ? 0 : (int)length;
  }
}
// False: there are no more. `is_down`: later blocks have more work.
template <bool kIsDown, class Length>
PD_DEVICE bool find_item(Item& item, int turn, const Length* lengths, const Sizes& size) {
  const int ctas = gridDim.x, first = turn * ctas;
  if (first >= size.items) return false;
  int index = first + (turn % 2 == 0 ? (int)blockIdx.x : ctas - 1 - (int)blockIdx.x);
  item.is_there = index < size.items;
  if (!item.is_there) return true;
  const int of_section = size.section_heads * size.blocks, section = index / of_section;
  const int first_head = section * size.section_heads;
  const int heads = least(size.section_heads, size.all_heads - first_head);
  index -= section * of_section;
  const int level = index / heads;
  item.row = (kIsDown ? size.blocks - 1 - level : level) * size.block_rows - size.rows_ahead;
  find_head(item, first_head + index - level * heads, lengths, size);
  return true;
}

// The keys that queries [first, first + kCount) see, as TMA tiles of kOfTile keys.
struct Span {
  int begin, end;
};
template <int kCount, int kOfTile> PD_DEVICE Span keys_of(int first, int length, const Sizes& size) {
  int begin = 0, end = length;
  if constexpr (kHasHigh) end = least(end, least(first + kCount, size.queries) + size.high);
  if constexpr (kHasLow) begin = most(begin, first + size.low);
  if (begin >= end) return {0, 0};
  return {begin / kOfTile, (end + kOfTile - 1) / kOfTile};
}
// Those that one group's 64 queries see, or whose 64 keys they are; none of rows that are not there.
template <int kOfTile> PD_DEVICE Span keys_of_group(int first, int length, const Sizes& size) {
  return first >= 0 && first < size.queries ? keys_of<64, kOfTile>(first, length, size) : Span{0, 0};
}
// The queries that see one of the keys [first, first + kCount).
template <int kCount, int kOfTile> PD_DEVICE Span queries_of(int first, int length, const Sizes& size) {
  const int last = least(first + kCount, length) - 1;
  int begin = 0, end = size.queries;
  if constexpr (kHasHigh) begin = most(begin, first - size.high);
  if constexpr (kHasLow) end = least(end, last - size.low + 1);
  if (last < first || begin >= end) return {0, 0};
  return {begin / kOfTile, (end + kOfTile - 1) / kOfTile};
}

// ---- Rows in shared memory ----

// Rows [row, row + kRows) of a head, zeros where there are none.
template <int kRows>
PD_DEVICE void bring_rows(Stored* to, const Map& map, int row, int head, int batch, unsigned long long* full) {
#pragma unroll
  for (int i = 0; i < kWidth / 64; ++i) bring_patch(to + i * kRows * 64, map, i * 64, row, head, batch, full);
}
// Called by kThreadsHere threads, of which several groups may be: rows from `first` on become zeros, whatever they are.
template <int kRows, int kThreadsHere> PD_DEVICE void clear_rows(Stored* rows, int first) {
  const uint4 zeros = make_uint4(0, 0, 0, 0);
  for (int i = first * 8 + (int)threadIdx.x % kThreadsHere; i < kRows * 8; i += kThreadsHere) {
#pragma unroll
    for (int block = 0; block < kWidth / 64; ++block) ((uint4*)(rows + block * kRows * 64))[i] = zeros;
  }
  fence_for_copies();
}

// ---- Masks of scores, of which a thread has those of two rows ----

// The columns that a row counts, from the lane's own first one on.
struct Counted {
  int begin[2], end[2];
};
// Rows are queries from `row` on, and columns keys from `column` on.
PD_DEVICE Counted counted_keys(int row, int column, int length, const Sizes& size) {
  const int lane = threadIdx.x % 32, first = column + lane % 4 * 2;
  Counted counted;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = row + lane / 4 + half * 8;
    int end = length;
    if constexpr (kHasHigh) end = least(end, query + size.high + 1);
    counted.begin[half] = kHasLow ? query + size.low - first : -kNowhere;
    counted.end[half] = end - first;
  }
  return counted;
}
PD_DEVICE Counted counted_queries(int row, int column, int length, const Sizes& size) {
  const int lane = threadIdx.x % 32, first = column + lane % 4 * 2;
  Counted counted;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int key = row + lane / 4 + half * 8;
    counted.begin[half] = kHasHigh ? key - size.high - first : -kNowhere;
    counted.end[half] = key >= length ? -kNowhere : kHasLow ? key - size.low + 1 - first : kNowhere;
  }
  return counted;
}
// Whether all of kRows queries from `row` on see all of kColumns keys from `column` on.
template <int kRows, int kColumns> PD_DEVICE bool all_count(int row, int column, int length, const Sizes& size) {
  if (column + kColumns > length) return false;
  if (kHasHigh && column + kColumns - 1 > row + size.high) return false;
  return !kHasLow || column >= row + kRows - 1 + size.low;
}
// The same of keys as rows and queries as columns.
template <int kRows, int kColumns> PD_DEVICE bool all_seen(int row, int column, int length, const Sizes& size) {
  if (row + kRows > length) return false;
  if (kHasHigh && row + kRows - 1 > column + size.high) return false;
  return !kHasLow || row >= column + kColumns - 1 + size.low;
}
template <bool kHasBegin, int kScores> PD_DEVICE void mask(float (&score)[kScores], const Counted& counted, float value) {
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    const int column = i / 4 * 8 + i % 2, half = i / 2 % 2;
    if (column >= counted.end[half] || (kHasBegin && column < counted.begin[half])) score[i] = value;
  }
}

// ---- Sums that become a left factor, and rows of results ----

// The words of a left factor: those of 16 k's are 16 columns of the sums.
template <int kSums> PD_DEVICE void pack_factor(unsigned (&words)[kSums / 8][4], const float (&sum)[kSums]) {
#pragma unroll
  for (int i = 0; i < kSums / 2; ++i) words[i / 4][i % 4] = pair_of<Stored>(sum[i * 2], sum[i * 2 + 1]);
}
PD_DEVICE float sum_of_pair(unsigned word) { return value_of<Stored>(word & 0xffffu) + value_of<Stored>(word >> 16); }

// Four words of one row: a lane has in word b columns 2 (lane % 4) and the next of the b-th 8 columns, and gets all of
// those of its own 8 columns, the (lane % 4)-th.
PD_DEVICE uint4 whole_piece(unsigned (&word)[4]) {
  const int lane = threadIdx.x % 32;
  const bool is_odd = lane % 2 != 0, is_late = lane / 2 % 2 != 0;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const unsigned other = __shfl_xor_sync(~0u, is_odd ? word[i] : word[i + 1], 1);
    if (is_odd) word[i] = other;
    else word[i + 1] = other;
  }
  unsigned low[2], high[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned other = __shfl_xor_sync(~0u, is_late ? word[i] : word[i + 2], 2);
    low[i] = is_late ? other : word[i], high[i] = is_late ? word[i + 2] : other;
  }
  return make_uint4(low[0], low[1], high[0], high[1]);
}
// Stores the rows of a warp, from `row` on, of which a head has `rows` of `width` columns.
template <int kColumns, int kSums>
PD_DEVICE void store_rows(const float (&sum)[kSums], const float (&times)[2], Stored* head, int row, int rows, int width,
                          int row_stride) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int here = row + lane / 4 + half * 8;
#pragma unroll
    for (int first = 0; first < kColumns / 8; first += 4) {
      unsigned word[4];
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        const int at = (first + b) * 4 + half * 2;
        word[b] = pair_of<Stored>(sum[at] * times[half], sum[at + 1] * times[half]);
      }
      const uint4 piece = whole_piece(word);
      const int column = (first + lane % 4) * 8;
      if (here < rows && column < width) *(uint4*)(head + (long long)here * row_stride + column) = piece;
    }
  }
}
