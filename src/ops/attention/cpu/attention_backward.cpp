// SPDX-License-Identifier: Apache-2.0
// Gradients of a tile of keys and values, with all queries of the heads that read them, a tile at a time: weights and
// their gradients are made again from log-sum-exp and stay in the second cache. Each part of the keys adds to a dq of
// its own, and those are summed in order, so that bits do not depend on threads.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention/cpu/attention_backward.cpp"
#include "hwy/foreach_target.h"
//
#include "ops/attention/cpu/tile_scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {

HWY_INLINE std::int64_t columns_of(std::int64_t width) {
  return (width + float_lanes() - 1) / float_lanes() * float_lanes();
}

// A row's scores and gradients of weights, lo .. hi - 1, become weights and gradients of scores; all others are zero.
HWY_INLINE void differentiate_row(const AttentionWork& w, const ScoreRow& row, std::int64_t lo, std::int64_t hi,
                                  std::int64_t columns, float* s, float* ds) {
  const FloatTag d;
  const std::int64_t lanes = float_lanes(), at = row.matrix * w.form.queries + row.t;
  const float given = w.given_logs[at];
  const auto logs = hn::Set(d, given == kUnseen ? 0.0F : given), shared = hn::Set(d, w.shared[row.t]);
  const auto scale = hn::Set(d, static_cast<float>(w.form.scale)), highest = hn::Set(d, 88.0F);
  const std::int64_t begin = lo / lanes * lanes, end = (hi + lanes - 1) / lanes * lanes;
  for (std::int64_t j = begin; j < end; j += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, s + j), scale), d, s + j);
  if (w.slopes.data != nullptr || w.bias.data != nullptr || w.mask.data != nullptr) add_terms(w, row, lo, hi, s);
  std::fill(s + begin, s + lo, kUnseen);
  std::fill(s + hi, s + end, kUnseen);
  if (w.form.dropout > 0) drop_weights(w, row, lo, hi, ds);
  for (float* row_of : {s, ds}) {
    std::fill(row_of, row_of + begin, 0.0F);
    std::fill(row_of + end, row_of + std::max(end, columns), 0.0F);
  }
  for (std::int64_t j = begin; j < end; j += lanes) {
    const auto weight = exp_of_at_most_88(d, least(highest, hn::Sub(hn::LoadU(d, s + j), logs)));
    const auto slope = hn::Mul(weight, hn::Sub(hn::LoadU(d, ds + j), shared));
    // Keys that are not seen may hold anything.
    hn::StoreU(hn::IfThenZeroElse(hn::Eq(weight, hn::Zero(d)), slope), d, ds + j);
    hn::StoreU(weight, d, s + j);
  }
  if (w.form.dropout > 0) drop_weights(w, row, lo, hi, s);
}

// sum(dresult result) of a matrix's rows, less the gradient of log-sum-exp.
template <DType kDType>
void sum_of_rows(const AttentionWork& w, std::int64_t matrix, float* sums_of_rows) {
  using T = typename LiesAs<kDType>::Type;
  const FloatTag d;
  const hn::CappedTag<float, 1> one;
  const std::int64_t lanes = float_lanes(), width = w.form.value_width;
  for (std::int64_t t = 0; t < w.form.queries; ++t) {
    const T* result = w.result.at<T>(matrix) + t * w.result.row;
    const T* dresult = w.dresult.at<T>(matrix) + t * w.dresult.row;
    auto sums = hn::Zero(d);
    float rest = 0;
    std::int64_t j = 0;
    for (; j + lanes <= width; j += lanes) {
      sums = hn::MulAdd(LiesAs<kDType>::load(d, result + j), LiesAs<kDType>::load(d, dresult + j), sums);
    }
    for (; j < width; ++j) {
      rest += hn::GetLane(LiesAs<kDType>::load(one, result + j)) * hn::GetLane(LiesAs<kDType>::load(one, dresult + j));
    }
    const float given = w.dlogs != nullptr ? w.dlogs[matrix * w.form.queries + t] : 0.0F;
    sums_of_rows[t] = hn::GetLane(hn::SumOfLanes(d, sums)) + rest - given;
  }
}

struct KeyTile {
  std::int64_t key, keys;  // first, and how many
  float *k_columns, *v_columns, *dk, *dv;
};

// A tile of queries against a tile of keys.
template <DType kDType>
HWY_INLINE void differentiate_tile(const AttentionWork& w, std::int64_t matrix, std::int64_t first, std::int64_t rows,
                                   const KeyTile& tile, TileOperand key_rows, float* dq, float* room) {
  const AttentionForm& form = w.form;
  const std::int64_t lanes = float_lanes(), width = form.width, value_width = form.value_width;
  const std::int64_t width_row = w.padded_width(), value_row = w.padded_values();
  float *weights = room, *slopes = weights + kTileRow * kTileRow;
  float *q_copy = slopes + kTileRow * kTileRow, *d_copy = q_copy + kTileRow * width_row;
  const TileOperand q = tile_rows<kDType>(w.q, matrix, first, rows, width, q_copy);
  const TileOperand dresult = tile_rows<kDType>(w.dresult, matrix, first, rows, value_width, d_copy);
  const std::int64_t end_key = std::min(w.length_of(matrix) - tile.key, tile.keys);
  for (std::int64_t r = 0; r < rows; r += kProductRows) {
    const std::int64_t count = std::min(kProductRows, rows - r), t = first + r;
    const std::int64_t lo = std::max<std::int64_t>(form.first_key(t) - tile.key, 0);
    const std::int64_t hi = std::min(form.end_key(t + count - 1) - tile.key, end_key);
    float *s = weights + r * kTileRow, *ds = slopes + r * kTileRow;
    if (lo >= hi) {
      for (std::int64_t i = 0; i < count; ++i) {
        for (float* row_of : {s + i * kTileRow, ds + i * kTileRow}) std::fill_n(row_of, tile.keys, 0.0F);
      }
      continue;
    }
    const std::int64_t begin = lo / lanes * lanes, columns = (hi + lanes - 1) / lanes * lanes - begin;
    multiply_few(count, {q.data + r * q.row, q.row}, {tile.k_columns + begin, kTileRow}, columns, width, false,
                 s + begin, kTileRow);
    multiply_few(count, {dresult.data + r * dresult.row, dresult.row}, {tile.v_columns + begin, kTileRow}, columns,
                 value_width, false, ds + begin, kTileRow);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t from = std::clamp<std::int64_t>(form.first_key(t + i) - tile.key, lo, hi);
      const std::int64_t to = std::clamp<std::int64_t>(form.end_key(t + i) - tile.key, from, hi);
      differentiate_row(w, {matrix, t + i, tile.key}, from, to, tile.keys, s + i * kTileRow, ds + i * kTileRow);
    }
    multiply_few(count, {ds + lo, kTileRow}, {key_rows.data + lo * key_rows.row, key_rows.row}, columns_of(width),
                 hi - lo, true, dq + t * width_row, width_row);
  }
  for (std::int64_t j = 0; j < tile.keys; j += kProductRows) {
    // The queries that see one of these keys.
    const std::int64_t count = std::min(kProductRows, tile.keys - j), key = tile.key + j;
    std::int64_t from = 0, to = rows;
    if (form.right >= 0) from = std::clamp<std::int64_t>(key - form.offset - form.right - first, 0, rows);
    if (form.left >= 0) to = std::clamp<std::int64_t>(key + count - form.offset + form.left - first, from, rows);
    if (from == to) continue;
    const auto transposed = [&](const float* matrix_rows) {
      return TileOperand{matrix_rows + from * kTileRow + j, 1, kTileRow};
    };
    multiply_few(count, transposed(weights), {dresult.data + from * dresult.row, dresult.row}, columns_of(value_width),
                 to - from, true, tile.dv + j * value_row, value_row);
    multiply_few(count, transposed(slopes), {q.data + from * q.row, q.row}, columns_of(width), to - from, true,
                 tile.dk + j * width_row, width_row);
  }
}

template <DType kDType>
void differentiate_keys(const AttentionWork& w, std::int64_t key_matrix, std::int64_t part) {
  using T = typename LiesAs<kDType>::Type;
  const AttentionForm& form = w.form;
  const std::int64_t width_row = w.padded_width(), value_row = w.padded_values(), group = form.group();
  const std::int64_t tiles = (form.keys + w.tile - 1) / w.tile;
  const std::int64_t matrix = key_matrix / form.key_heads * form.heads + key_matrix % form.key_heads * group;
  float *k_columns = w.scratch, *v_columns = k_columns + kTileRow * width_row;
  float *k_copy = v_columns + kTileRow * value_row, *v_copy = k_copy + kTileRow * width_row;
  float *dk = v_copy + kTileRow * value_row, *dv = dk + kTileRow * width_row;
  float* room = dv + kTileRow * value_row;
  const auto dq_of = [&](std::int64_t g) {
    return w.parts_of_dq + ((matrix + g) * w.parts + part) * form.queries * width_row;
  };
  const auto sums_of = [&](std::int64_t g) { return w.shared + ((matrix + g) * w.parts + part) * form.queries; };
  for (std::int64_t g = 0; g < group; ++g) {
    std::fill_n(dq_of(g), form.queries * width_row, 0.0F);
    sum_of_rows<kDType>(w, matrix + g, sums_of(g));
  }
  for (std::int64_t number = tiles * part / w.parts; number < tiles * (part + 1) / w.parts; ++number) {
    const std::int64_t key = number * w.tile, keys = std::min(w.tile, form.keys - key);
    tile_columns<kDType>(w.k, key_matrix, key, keys, form.width, k_copy, k_columns);
    tile_columns<kDType>(w.v, key_matrix, key, keys, form.value_width, v_copy, v_columns);
    TileOperand key_rows = tile_rows<kDType>(w.k, key_matrix, key, keys, form.width, k_copy);
    std::fill_n(dk, keys * width_row, 0.0F);
    std::fill_n(dv, keys * value_row, 0.0F);
    std::int64_t first = 0, end = form.queries;  // the queries that see a key of the tile
    if (form.right >= 0) first = std::clamp<std::int64_t>(key - form.offset - form.right, 0, end);
    if (form.left >= 0) end = std::clamp<std::int64_t>(key + keys - form.offset + form.left, first, end);
    for (std::int64_t g = 0; g < group; ++g) {
      if (w.length_of(matrix + g) <= key) continue;
      AttentionWork of_head = w;
      of_head.shared = sums_of(g);
      if (w.mask.data != nullptr) {
        if (g > 0) key_rows = tile_rows<kDType>(w.k, key_matrix, key, keys, form.width, k_copy);
        key_rows = without_hidden(w, matrix + g, 0, form.queries, key, keys, key_rows, form.width, k_copy);
      }
      for (std::int64_t t = first; t < end; t += w.tile) {
        differentiate_tile<kDType>(of_head, matrix + g, t, std::min(w.tile, end - t),
                                   {key, keys, k_columns, v_columns, dk, dv}, key_rows, dq_of(g), room);
      }
    }
    if (w.dk.data != nullptr) {
      write_rows<kDType>(dk, width_row, keys, form.width, static_cast<float>(form.scale),
                         w.dk.mutable_at<T>(key_matrix) + key * w.dk.row, w.dk.row);
    }
    if (w.dv.data != nullptr) {
      write_rows<kDType>(dv, value_row, keys, form.value_width, 1.0F, w.dv.mutable_at<T>(key_matrix) + key * w.dv.row,
                         w.dv.row);
    }
  }
  if (w.parts > 1 || w.dq.data == nullptr) return;
  for (std::int64_t g = 0; g < group; ++g) {
    write_rows<kDType>(dq_of(g), width_row, form.queries, form.width, static_cast<float>(form.scale),
                       w.dq.mutable_at<T>(matrix + g), w.dq.row);
  }
}

template <DType kDType>
void sum_of_parts(const AttentionWork& w, std::int64_t first, std::int64_t end) {
  using T = typename LiesAs<kDType>::Type;
  const FloatTag d;
  const std::int64_t row_size = w.padded_width(), T_rows = w.form.queries;
  float* sums = w.scratch;
  for (std::int64_t row = first; row < end; ++row) {
    const std::int64_t matrix = row / T_rows, t = row % T_rows;
    const float* parts = w.parts_of_dq + (matrix * w.parts * T_rows + t) * row_size;
    for (std::int64_t j = 0; j < row_size; j += float_lanes()) {
      auto sum = hn::LoadU(d, parts + j);
      for (std::int64_t part = 1; part < w.parts; ++part) {
        sum = hn::Add(sum, hn::LoadU(d, parts + part * T_rows * row_size + j));
      }
      hn::StoreU(sum, d, sums + j);
    }
    write_rows<kDType>(sums, 0, 1, w.form.width, static_cast<float>(w.form.scale),
                       w.dq.mutable_at<T>(matrix) + t * w.dq.row, 0);
  }
}

void attend_grad_item(const AttentionWork& w, std::int64_t key_matrix, std::int64_t part) {
  switch (w.form.dtype) {
    case DType::f32: return differentiate_keys<DType::f32>(w, key_matrix, part);
    case DType::bf16: return differentiate_keys<DType::bf16>(w, key_matrix, part);
    default: return differentiate_keys<DType::f16>(w, key_matrix, part);
  }
}
void attend_dq(const AttentionWork& w, std::int64_t first, std::int64_t end) {
  switch (w.form.dtype) {
    case DType::f32: return sum_of_parts<DType::f32>(w, first, end);
    case DType::bf16: return sum_of_parts<DType::bf16>(w, first, end);
    default: return sum_of_parts<DType::f16>(w, first, end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace paoding {

HWY_EXPORT(attend_grad_item);
HWY_EXPORT(attend_dq);

void run_attention_grad_item(const AttentionWork& work, std::int64_t key_matrix, std::int64_t part) {
  HWY_DYNAMIC_DISPATCH(attend_grad_item)(work, key_matrix, part);
}
void run_attention_dq(const AttentionWork& work, std::int64_t first, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(attend_dq)(work, first, end);
}

}  // namespace paoding
#endif
