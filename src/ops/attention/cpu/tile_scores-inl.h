// SPDX-License-Identifier: Apache-2.0
// A row of a tile of scores: the terms that are added to it, keys that it does not see, weights that dropout takes.
// For each instruction set.
#if defined(PAODING_TILE_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAODING_TILE_SCORES_INL_H_
#undef PAODING_TILE_SCORES_INL_H_
#else
#define PAODING_TILE_SCORES_INL_H_
#endif

#include <cmath>
#include <limits>

#include "ops/attention/cpu/tile_products-inl.h"
#include "scalar/philox.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {

constexpr float kUnseen = -std::numeric_limits<float>::infinity();

/// Where a row of a tile stands: query t of a matrix, against keys from first_key on.
struct ScoreRow {
  std::int64_t matrix, t, first_key;
};

/// Calls work(d, j) for numbers begin .. end - 1 from j on, as many as d has lanes.
template <class Work>
HWY_INLINE void for_numbers(std::int64_t begin, std::int64_t end, const Work& work) {
  const FloatTag d;
  const hn::CappedTag<float, 1> one;
  const std::int64_t lanes = float_lanes();
  std::int64_t j = begin;
  for (; j + lanes <= end; j += lanes) work(d, j);
  for (; j < end; ++j) work(one, j);
}

template <DType kDType>
HWY_INLINE void add_bias(const AttentionOperand& bias, const ScoreRow& row, std::int64_t lo, std::int64_t hi,
                         float* s) {
  using T = typename LiesAs<kDType>::Type;
  const T* from = bias.at<T>(row.matrix) + row.t * bias.row + row.first_key * bias.column;
  const hn::CappedTag<float, 1> one;
  const float first = hn::GetLane(LiesAs<kDType>::load(one, from));
  for_numbers(lo, hi, [&](auto d, std::int64_t j) {
    const auto added = bias.column == 0 ? hn::Set(d, first) : LiesAs<kDType>::load(d, from + j);
    hn::StoreU(hn::Add(hn::LoadU(d, s + j), added), d, s + j);
  });
}

/// Slopes, bias and mask of keys lo .. hi - 1 of the tile.
HWY_INLINE void add_terms(const AttentionWork& w, const ScoreRow& row, std::int64_t lo, std::int64_t hi, float* s) {
  if (w.slopes.data != nullptr) {
    const float slope = number_of(w.slopes, row.matrix);
    for (std::int64_t j = lo; j < hi; ++j) {
      s[j] -= slope * static_cast<float>(std::abs(row.t + w.form.offset - row.first_key - j));
    }
  }
  if (w.bias.data != nullptr) {
    switch (w.bias.dtype) {
      case DType::f32: add_bias<DType::f32>(w.bias, row, lo, hi, s); break;
      case DType::bf16: add_bias<DType::bf16>(w.bias, row, lo, hi, s); break;
      default: add_bias<DType::f16>(w.bias, row, lo, hi, s); break;
    }
  }
  if (w.mask.data == nullptr) return;
  const auto* mask = w.mask.at<std::uint8_t>(row.matrix) + row.t * w.mask.row + row.first_key * w.mask.column;
  for (std::int64_t j = lo; j < hi; ++j) s[j] = mask[j * w.mask.column] != 0 ? s[j] : kUnseen;
}

/// Copies rows of keys or values, with zeros in those that the mask hides from all queries first .. end - 1.
HWY_INLINE TileOperand without_hidden(const AttentionWork& w, std::int64_t matrix, std::int64_t first, std::int64_t end,
                                      std::int64_t first_key, std::int64_t keys, TileOperand rows, std::int64_t width,
                                      float* copy) {
  std::uint8_t seen[kKeysOfTile] = {};
  const auto* mask = w.mask.at<std::uint8_t>(matrix) + first_key * w.mask.column;
  if (w.mask.row == 0) end = std::min(end, first + 1);
  for (std::int64_t t = first; t < end; ++t) {
    for (std::int64_t j = 0; j < keys; ++j) seen[j] |= mask[t * w.mask.row + j * w.mask.column];
  }
  const std::int64_t row = AttentionWork::padded(width);
  for (std::int64_t j = 0; j < keys; ++j) {
    float* to = copy + j * row;
    if (seen[j] == 0) {
      std::fill(to, to + row, 0.0F);
    } else if (rows.data + j * rows.row != to) {
      std::copy_n(rows.data + j * rows.row, width, to);
      std::fill(to + width, to + row, 0.0F);
    }
  }
  return {copy, row};
}

/// Weights lo .. hi - 1 of a row: 0 with the probability of dropout, else larger.
HWY_INLINE void drop_weights(const AttentionWork& w, const ScoreRow& row, std::int64_t lo, std::int64_t hi, float* s) {
  const float probability = static_cast<float>(w.form.dropout), factor = static_cast<float>(1 / (1 - w.form.dropout));
  const std::int64_t start = (row.matrix * w.form.queries + row.t) * w.form.keys + row.first_key;
  const auto stream = static_cast<std::uint64_t>(w.random_run + (w.form.stream << 32));
  const auto seed = static_cast<std::uint64_t>(w.random_seed);
  const auto low = [](std::uint64_t a) { return static_cast<std::uint32_t>(a); };
  const auto high = [](std::uint64_t a) { return static_cast<std::uint32_t>(a >> 32); };
  Philox::Words words{};
  bool is_known = false;
  for (std::int64_t j = lo; j < hi; ++j) {
    const auto index = static_cast<std::uint64_t>(w.random_first + start + j);
    if (!is_known || (index & 3) == 0) {
      words = Philox::block({low(index >> 2), high(index >> 2), low(stream), high(stream)}, {low(seed), high(seed)});
      is_known = true;
    }
    const float uniform = static_cast<float>((words[index & 3] ^ 0x80000000U) >> 8) * 0x1p-24F;  // as random_uniform()
    s[j] = uniform < probability ? 0.0F : s[j] * factor;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#endif  // per target
