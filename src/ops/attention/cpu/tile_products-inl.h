// SPDX-License-Identifier: Apache-2.0
// Products of tiles that lie in the first or second cache, and copies of operands into such tiles, for each
// instruction set.
#if defined(PAODING_TILE_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAODING_TILE_PRODUCTS_INL_H_
#undef PAODING_TILE_PRODUCTS_INL_H_
#else
#define PAODING_TILE_PRODUCTS_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "cpu/exp-inl.h"
#include "hwy/highway.h"
#include "ops/attention/cpu/attention_work.h"
#include "ops/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, kMostLanes>;

// Rows of sums that registers hold beside two vectors of b.
constexpr std::int64_t kProductRows = 6;

HWY_INLINE std::int64_t float_lanes() { return static_cast<std::int64_t>(hn::Lanes(FloatTag())); }

/// A tile: element (i, j) is at data[i * row + j * column].
struct TileOperand {
  const float* data;
  std::int64_t row, column = 1;
};

// c [kRows, kVectors vectors] = a b, or that is added to it. Rows of b and c are contiguous.
template <std::int64_t kRows, std::int64_t kVectors>
HWY_INLINE void multiply_block(TileOperand a, TileOperand b, std::int64_t depth, bool is_added, float* HWY_RESTRICT c,
                               std::int64_t c_row) {
  const FloatTag d;
  using V = hn::Vec<FloatTag>;
  const std::int64_t lanes = float_lanes();
  V sums[kRows][kVectors];
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  const float *left = a.data, *right = b.data;
  for (std::int64_t i = 0; i < depth; ++i, left += a.column, right += b.row) {
    V factors[kVectors];
    for (std::int64_t v = 0; v < kVectors; ++v) factors[v] = hn::LoadU(d, right + v * lanes);
    for (std::int64_t r = 0; r < kRows; ++r) {
      const V element = hn::Set(d, left[r * a.row]);
      for (std::int64_t v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(element, factors[v], sums[r][v]);
    }
  }
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t v = 0; v < kVectors; ++v) {
      float* to = c + r * c_row + v * lanes;
      hn::StoreU(is_added ? hn::Add(hn::LoadU(d, to), sums[r][v]) : sums[r][v], d, to);
    }
  }
}

// c [kRows, columns], whole vectors.
template <std::int64_t kRows>
HWY_INLINE void multiply_rows(TileOperand a, TileOperand b, std::int64_t columns, std::int64_t depth, bool is_added,
                              float* c, std::int64_t c_row) {
  const std::int64_t lanes = float_lanes();
  std::int64_t j = 0;
  if constexpr (HWY_MAX_BYTES >= 64) {
    for (; j + 4 * lanes <= columns; j += 4 * lanes) {
      multiply_block<kRows, 4>(a, {b.data + j, b.row}, depth, is_added, c + j, c_row);
    }
  }
  for (; j + 2 * lanes <= columns; j += 2 * lanes) {
    multiply_block<kRows, 2>(a, {b.data + j, b.row}, depth, is_added, c + j, c_row);
  }
  for (; j < columns; j += lanes) multiply_block<kRows, 1>(a, {b.data + j, b.row}, depth, is_added, c + j, c_row);
}

/// c [rows, columns] = a [rows, depth] b [depth, columns], or that is added to it; at most kProductRows rows, and
/// columns fill whole vectors.
inline HWY_NOINLINE void multiply_few(std::int64_t rows, TileOperand a, TileOperand b, std::int64_t columns,
                                      std::int64_t depth, bool is_added, float* c, std::int64_t c_row) {
  switch (rows) {
    case 1: return multiply_rows<1>(a, b, columns, depth, is_added, c, c_row);
    case 2: return multiply_rows<2>(a, b, columns, depth, is_added, c, c_row);
    case 3: return multiply_rows<3>(a, b, columns, depth, is_added, c, c_row);
    case 4: return multiply_rows<4>(a, b, columns, depth, is_added, c, c_row);
    case 5: return multiply_rows<5>(a, b, columns, depth, is_added, c, c_row);
    case 6: return multiply_rows<6>(a, b, columns, depth, is_added, c, c_row);
    case 7: return multiply_rows<std::min<std::int64_t>(7, kProductRows)>(a, b, columns, depth, is_added, c, c_row);
    default: return multiply_rows<kProductRows>(a, b, columns, depth, is_added, c, c_row);
  }
}

/// Rows of `width` numbers as f32, each times `factor`, rows of the copy `to_row` apart and padded with zeros.
template <DType kDType>
HWY_INLINE void copy_rows(const typename LiesAs<kDType>::Type* from, std::int64_t from_row, std::int64_t rows,
                          std::int64_t width, float factor, float* to, std::int64_t to_row) {
  const FloatTag d;
  const std::int64_t lanes = float_lanes();
  const auto factors = hn::Set(d, factor);
  for (std::int64_t r = 0; r < rows; ++r, from += from_row, to += to_row) {
    std::int64_t j = 0;
    for (; j + lanes <= width; j += lanes) {
      hn::StoreU(hn::Mul(LiesAs<kDType>::load(d, from + j), factors), d, to + j);
    }
    const hn::CappedTag<float, 1> one;
    for (; j < width; ++j) to[j] = hn::GetLane(LiesAs<kDType>::load(one, from + j)) * factor;
    std::fill(to + width, to + std::max(width, to_row), 0.0F);
  }
}

/// The first `width` numbers of rows, each times `factor`, in the operand's dtype.
template <DType kDType>
HWY_INLINE void write_rows(const float* from, std::int64_t from_row, std::int64_t rows, std::int64_t width,
                           float factor, typename LiesAs<kDType>::Type* to, std::int64_t to_row) {
  const FloatTag d;
  const std::int64_t lanes = float_lanes();
  const auto factors = hn::Set(d, factor);
  const hn::CappedTag<float, 1> one;
  for (std::int64_t r = 0; r < rows; ++r, from += from_row, to += to_row) {
    std::int64_t j = 0;
    for (; j + lanes <= width; j += lanes) {
      LiesAs<kDType>::store(d, hn::Mul(hn::LoadU(d, from + j), factors), to + j);
    }
    for (; j < width; ++j) LiesAs<kDType>::store(one, hn::Set(one, from[j] * factor), to + j);
  }
}

/// to [width, rows], rows of it kTileRow apart, = the transposed of rows x width numbers, and zeros up to a whole
/// vector.
HWY_INLINE void transpose_tile(const float* from, std::int64_t from_row, std::int64_t rows, std::int64_t width,
                               float* to) {
  std::int64_t r = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d;
  for (; r + 4 <= rows; r += 4) {
    const float* row = from + r * from_row;
    std::int64_t e = 0;
    for (; e + 4 <= width; e += 4) {
      const hn::RepartitionToWide<decltype(d)> pairs;
      const auto a = hn::LoadU(d, row + e), b = hn::LoadU(d, row + from_row + e);
      const auto c = hn::LoadU(d, row + 2 * from_row + e), f = hn::LoadU(d, row + 3 * from_row + e);
      const auto ab = hn::BitCast(pairs, hn::InterleaveLower(d, a, b));
      const auto cf = hn::BitCast(pairs, hn::InterleaveLower(d, c, f));
      const auto high_ab = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b));
      const auto high_cf = hn::BitCast(pairs, hn::InterleaveUpper(d, c, f));
      float* column = to + e * kTileRow + r;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, ab, cf)), d, column);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, ab, cf)), d, column + kTileRow);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, high_ab, high_cf)), d, column + 2 * kTileRow);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, high_ab, high_cf)), d, column + 3 * kTileRow);
    }
    for (; e < width; ++e) {
      for (std::int64_t i = 0; i < 4; ++i) to[e * kTileRow + r + i] = row[i * from_row + e];
    }
  }
#endif
  for (; r < rows; ++r) {
    for (std::int64_t e = 0; e < width; ++e) to[e * kTileRow + r] = from[r * from_row + e];
  }
  const std::int64_t end = (rows + kMostLanes - 1) / kMostLanes * kMostLanes;
  if (rows == end) return;
  for (std::int64_t e = 0; e < width; ++e) std::fill(to + e * kTileRow + rows, to + e * kTileRow + end, 0.0F);
}

/// Rows of an operand as f32 that are padded to whole vectors: where they lie, or a copy.
template <DType kDType>
HWY_INLINE TileOperand tile_rows(const AttentionOperand& operand, std::int64_t matrix, std::int64_t first,
                                 std::int64_t rows, std::int64_t width, float* copy) {
  const auto* from = operand.at<typename LiesAs<kDType>::Type>(matrix) + first * operand.row;
  if constexpr (kDType == DType::f32) {
    if (width % float_lanes() == 0) return {from, operand.row};
  }
  const std::int64_t row = AttentionWork::padded(width);
  copy_rows<kDType>(from, operand.row, rows, width, 1.0F, copy, row);
  return {copy, row};
}

/// Rows of an operand, transposed. `rows_copy` has room for the rows.
template <DType kDType>
HWY_INLINE void tile_columns(const AttentionOperand& operand, std::int64_t matrix, std::int64_t first,
                             std::int64_t rows, std::int64_t width, float* rows_copy, float* to) {
  const auto* from = operand.at<typename LiesAs<kDType>::Type>(matrix) + first * operand.row;
  if constexpr (kDType == DType::f32) {
    transpose_tile(from, operand.row, rows, width, to);
  } else {
    const std::int64_t row = AttentionWork::padded(width);
    copy_rows<kDType>(from, operand.row, rows, width, 1.0F, rows_copy, row);
    transpose_tile(rows_copy, row, rows, width, to);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#endif  // per target
