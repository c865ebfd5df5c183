// SPDX-License-Identifier: Apache-2.0
// Some rows of a head's queries against all its keys, a tile of keys at a time: scores and weights of a few rows stay
// in the first cache, and a row's sum and result are corrected where a later tile has a larger score (Milakov,
// Gimelshein 2018; Dao et al. 2022). Keys that a few rows do not see are left out to the vector.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention/cpu/attention_forward.cpp"
#include "hwy/foreach_target.h"
//
#include "ops/attention/cpu/tile_scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {

// The state of a few rows of queries: results and sums so far, and their largest score.
struct RowState {
  float *result, *most, *total;
  std::int64_t result_row;
};

// Scores [rows, lo .. hi) of the tile become weights with regard to the largest score so far; sums and results that
// belong to a smaller one are corrected.
HWY_INLINE void weigh_rows(const AttentionWork& w, ScoreRow row, std::int64_t rows, std::int64_t lo, std::int64_t hi,
                           std::int64_t begin, std::int64_t end, bool is_edge, float* scores, const RowState& state) {
  const FloatTag d;
  const std::int64_t lanes = float_lanes();
  HWY_ALIGN float before[kMostLanes] = {}, now[kMostLanes] = {}, corrections[kMostLanes];
  const bool has_terms = w.slopes.data != nullptr || w.bias.data != nullptr || w.mask.data != nullptr;
  for (std::int64_t r = 0; r < rows; ++r) {
    float* s = scores + r * kTileRow;
    std::int64_t first = lo, last = hi;
    if (is_edge) {
      first = std::max(lo, w.form.first_key(row.t + r) - row.first_key);
      last = std::clamp(w.form.end_key(row.t + r) - row.first_key, first, std::max(first, hi));
      first = std::min(first, end), last = std::min(last, end);
    }
    if (has_terms) add_terms(w, {row.matrix, row.t + r, row.first_key}, first, last, s);
    std::fill(s + begin, s + first, kUnseen);
    std::fill(s + last, s + end, kUnseen);
    auto most = hn::Set(d, kUnseen);
    for (std::int64_t j = begin; j < end; j += lanes) most = greatest(hn::LoadU(d, s + j), most);
    before[r] = state.most[r];
    state.most[r] = std::max(before[r], hn::GetLane(hn::MaxOfLanes(d, most)));
    now[r] = state.most[r] == kUnseen ? 0.0F : state.most[r];
  }
  for (std::int64_t r = 0; r < rows; r += lanes) {
    hn::Store(exp_of_at_most_88(d, hn::Sub(hn::Load(d, before + r), hn::Load(d, now + r))), d, corrections + r);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    float* s = scores + r * kTileRow;
    const auto subtracted = hn::Set(d, now[r]);
    auto sum = hn::Zero(d);
    for (std::int64_t j = begin; j < end; j += lanes) {
      const auto weight = exp_of_at_most_88(d, hn::Sub(hn::LoadU(d, s + j), subtracted));
      sum = hn::Add(sum, weight);
      hn::StoreU(weight, d, s + j);
    }
    state.total[r] = state.total[r] * corrections[r] + hn::GetLane(hn::SumOfLanes(d, sum));
    if (w.form.dropout > 0) drop_weights(w, {row.matrix, row.t + r, row.first_key}, lo, hi, s);
    if (corrections[r] == 1.0F) continue;
    float* result = state.result + r * state.result_row;
    const auto factor = hn::Set(d, corrections[r]);
    for (std::int64_t j = 0; j < state.result_row; j += lanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, result + j), factor), d, result + j);
    }
  }
}

template <DType kDType>
void attend_rows(const AttentionWork& w, std::int64_t matrix, std::int64_t item) {
  using T = typename LiesAs<kDType>::Type;
  const AttentionForm& form = w.form;
  const std::int64_t first = item * w.item_rows, rows = std::min(w.item_rows, form.queries - first);
  const std::int64_t width = form.width, value_row = w.padded_values(), lanes = float_lanes();
  const std::int64_t value_columns = (form.value_width + lanes - 1) / lanes * lanes;
  const std::int64_t key_matrix = w.key_matrix(matrix);
  float *columns = w.scratch, *copy = columns + kTileRow * w.padded_width();
  float *value_copy = copy + kTileRow * w.padded_width(), *scores = value_copy + kTileRow * value_row;
  float *queries = scores + kProductRows * kTileRow, *result = queries + rows * width;
  float *most = result + rows * value_row, *total = most + rows;
  copy_rows<kDType>(w.q.at<T>(matrix) + first * w.q.row, w.q.row, rows, width, static_cast<float>(form.scale), queries,
                    width);
  std::fill(result, result + rows * value_row, 0.0F);
  std::fill(most, most + rows, kUnseen);
  std::fill(total, total + rows, 0.0F);
  const std::int64_t end = std::min(w.length_of(matrix), form.end_key(first + rows - 1));
  const bool is_banded = form.is_banded();
  for (std::int64_t key = form.first_key(first) / w.tile * w.tile; key < end; key += w.tile) {
    const std::int64_t keys = std::min(w.tile, end - key);
    tile_columns<kDType>(w.k, key_matrix, key, keys, width, copy, columns);
    TileOperand values = tile_rows<kDType>(w.v, key_matrix, key, keys, form.value_width, value_copy);
    if (w.mask.data != nullptr) {
      values = without_hidden(w, matrix, first, first + rows, key, keys, values, form.value_width, value_copy);
    }
    for (std::int64_t r = 0; r < rows; r += kProductRows) {
      const std::int64_t count = std::min(kProductRows, rows - r), t = first + r;
      const std::int64_t lo = std::max<std::int64_t>(form.first_key(t) - key, 0);
      const std::int64_t hi = std::min(form.end_key(t + count - 1) - key, keys);
      if (lo >= hi) continue;
      const std::int64_t begin = lo / lanes * lanes, stop = (hi + lanes - 1) / lanes * lanes;
      multiply_few(count, {queries + r * width, width}, {columns + begin, kTileRow}, stop - begin, width, false,
                   scores + begin, kTileRow);
      weigh_rows(w, {matrix, t, key}, count, lo, hi, begin, stop, is_banded, scores,
                 {result + r * value_row, most + r, total + r, value_row});
      multiply_few(count, {scores + lo, kTileRow}, {values.data + lo * values.row, values.row}, value_columns, hi - lo,
                   true, result + r * value_row, value_row);
    }
  }
  T* to = w.result.mutable_at<T>(matrix) + first * w.result.row;
  for (std::int64_t r = 0; r < rows; ++r) {
    const bool is_blind = total[r] == 0;
    write_rows<kDType>(result + r * value_row, value_row, 1, form.value_width, is_blind ? 0.0F : 1 / total[r],
                       to + r * w.result.row, 0);
    if (w.logs != nullptr) {
      w.logs[matrix * form.queries + first + r] = is_blind ? kUnseen : most[r] + std::log(total[r]);
    }
  }
}

void attend_item(const AttentionWork& w, std::int64_t matrix, std::int64_t item) {
  switch (w.form.dtype) {
    case DType::f32: return attend_rows<DType::f32>(w, matrix, item);
    case DType::bf16: return attend_rows<DType::bf16>(w, matrix, item);
    default: return attend_rows<DType::f16>(w, matrix, item);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace paoding {

HWY_EXPORT(attend_item);

void run_attention_item(const AttentionWork& work, std::int64_t matrix, std::int64_t item) {
  HWY_DYNAMIC_DISPATCH(attend_item)(work, matrix, item);
}

}  // namespace paoding
#endif
