// SPDX-License-Identifier: Apache-2.0
// The backward part of a thread: it makes the gradients of its units' gates, and from those of all gates, for which the
// threads of its group of rows synchronize once a step, the gradient of its states in the step before.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/recurrence/cpu/recurrence_backward.cpp"
#include "hwy/foreach_target.h"
//
#include "cpu/team.h"
#include "ops/recurrence/cpu/cell_gru-inl.h"
#include "ops/recurrence/cpu/cell_lstm-inl.h"
#include "ops/recurrence/cpu/cell_rnn-inl.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {

// Packs the units of up to four blocks: the group's rows of the panel [gates * H, kParts * kUnitBlock] of u transposed,
// filled up with zeros.
template <class M, std::int64_t kParts>
void pack_transposed(const RecurrenceWork& w, std::int64_t block, typename M::Stored* panel) {
  const auto* u = static_cast<const typename M::Stored*>(w.u);
  constexpr std::int64_t kWidth = kParts * kUnitBlock, kTogether = 16;  // columns: a cache line of u
  const std::int64_t all = w.gates() * w.hidden, padded = RecurrenceWork::padded(M::kNumbers, all);
  const std::int64_t first = block * kUnitBlock, end_packed = first_packed(w, w.group + 1, padded, kTogether);
  for (std::int64_t k = first_packed(w, w.group, padded, kTogether); k < end_packed; k += kTogether) {
    const std::int64_t end = std::min(k + kTogether, all);
    for (std::int64_t j = 0; j < kWidth; ++j) {
      const auto* from = u + (first + j) * all;
      const std::int64_t count = first + j < w.hidden ? end : k;
      for (std::int64_t i = k; i < count; ++i) panel[panel_at<M>(i, j, kWidth)] = from[i];
      for (std::int64_t i = count; i < std::min(k + kTogether, padded); ++i) panel[panel_at<M>(i, j, kWidth)] = {};
    }
  }
}

// d_h of a unit: the product, and for some cells the part that the step has left there.
template <class Cell>
HWY_INLINE void pass_back(float product, float* d_h) {
  *d_h = Cell::kAddsToState ? *d_h + product : product;
}

// d_h of the units of kParts blocks: the gates' gradients of all units times u transposed.
template <class Cell, class M, std::int64_t kParts>
HWY_INLINE void send_back(const RecurrenceWork& w, std::int64_t t, std::int64_t block, const typename M::Stored* panel,
                          const typename M::Left* d_gates) {
  constexpr std::int64_t kWidth = kParts * kUnitBlock;
  const std::int64_t H = w.hidden, first = block * kUnitBlock, count = std::min(kWidth, H - first);
  const std::int64_t all = Cell::kGates * H, stride = RecurrenceWork::stride_of(M::kNumbers, all);
  HWY_ALIGN float tile[tile_rows<M>(kParts) * kWidth];
  for_rows<M>(w, t, tile_rows<M>(kParts), [&](std::int64_t row, std::int64_t end_row, bool is_counted) {
    if (!is_counted) return;
    multiply<M, kParts>(end_row - row, d_gates + row * stride, stride, all, panel, tile);
    for (std::int64_t r = row; r < end_row; ++r) {
      if (!w.counts(t, r)) continue;
      const float* products = tile + (r - row) * kWidth;
      float* d_h = w.d_h + r * H + first;
      for (std::int64_t j = 0; j < count; ++j) pass_back<Cell>(products[j], d_h + j);
    }
  });
}

// d_h of units whose rows of u are read where they lie: products of whole rows.
template <class Cell, std::int64_t kRows, std::int64_t kUnits, class T>
HWY_INLINE void add_up_rows(const RecurrenceWork& w, std::int64_t t, std::int64_t unit, const float* d_gates) {
  const Lanes d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t all = Cell::kGates * w.hidden;
  const T* u = static_cast<const T*>(w.u) + unit * all;
  hn::Vec<Lanes> sums[kRows][kUnits];
  for (auto& row : sums) {
    for (auto& sum : row) sum = hn::Zero(d);
  }
  std::int64_t i = 0;
  for (; i + lanes <= all; i += lanes) {
    for (std::int64_t q = 0; q < kUnits; ++q) {
      const auto factor = load(d, u + q * all + i);
      for (std::int64_t r = 0; r < kRows; ++r) {
        sums[r][q] = hn::MulAdd(load(d, d_gates + r * all + i), factor, sums[r][q]);
      }
    }
  }
  const OneLane one;
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t q = 0; q < kUnits; ++q) {
      float total = hn::GetLane(hn::SumOfLanes(d, sums[r][q]));
      for (std::int64_t k = i; k < all; ++k) total += d_gates[r * all + k] * hn::GetLane(load(one, u + q * all + k));
      if (w.counts(t, r)) pass_back<Cell>(total, w.d_h + r * w.hidden + unit + q);
    }
  }
}

template <class Cell, std::int64_t kRows, class T>
HWY_INLINE void send_back_rows(const RecurrenceWork& w, std::int64_t t, std::int64_t begin, std::int64_t end,
                               const float* d_gates) {
  std::int64_t unit = begin;
  for (; unit + 4 <= end; unit += 4) add_up_rows<Cell, kRows, 4, T>(w, t, unit, d_gates);
  for (; unit < end; ++unit) add_up_rows<Cell, kRows, 1, T>(w, t, unit, d_gates);
}

template <class Cell, class T>
HWY_INLINE void send_back_few_rows(const RecurrenceWork& w, std::int64_t t, std::int64_t begin, std::int64_t end,
                                   const float* d_gates) {
  switch (w.rows) {
    case 1: return send_back_rows<Cell, 1, T>(w, t, begin, end, d_gates);
    case 2: return send_back_rows<Cell, 2, T>(w, t, begin, end, d_gates);
    case 3: return send_back_rows<Cell, 3, T>(w, t, begin, end, d_gates);
    default: return send_back_rows<Cell, 4, T>(w, t, begin, end, d_gates);
  }
}

// Adds the sums of the latest steps to those of the steps before them: added to sums of thousands of numbers one by
// one, the last ones would lose most of their digits.
HWY_INLINE void carry_totals(const RecurrenceWork& w, std::int64_t first, std::int64_t count) {
  for (std::int64_t gate = 0; gate < w.biases(); ++gate) {
    float* latest = w.totals + gate * w.hidden + first;
    float* before = latest + w.biases() * w.hidden;
    for_units(count, [&](auto d, std::int64_t j) {
      store(d, hn::Add(load(d, before + j), load(d, latest + j)), before + j);
      store(d, hn::Zero(d), latest + j);
    });
  }
}

// Gives the first group units begin .. end - 1 of the sums of all groups.
template <class M>
void give_totals(const RecurrenceWork& w, std::int64_t begin, std::int64_t end) {
  const std::int64_t H = w.hidden, all = w.biases() * H;
  const auto put = [&](auto* to) {
    for (std::int64_t gate = 0; gate < w.biases(); ++gate) {
      for_units(end - begin, [&](auto d, std::int64_t j) {
        const std::int64_t at = gate * H + begin + j;
        auto total = load(d, w.totals + at);
        for (int part = 1; part < 2 * w.row_groups; ++part) total = hn::Add(total, load(d, w.totals + part * all + at));
        store(d, total, to + at);
      });
    }
  };
  if (w.is_dbias_wide) return put(static_cast<float*>(w.dbias));
  put(static_cast<typename M::Stored*>(w.dbias));
}

template <class Cell, class M>
void run_backward_part(const RecurrenceWork& work, int thread, int team) {
  using T = typename M::Stored;
  RecurrenceWork w = work_of(work, thread, team);
  const std::int64_t H = w.hidden, all = Cell::kGates * H, stride = RecurrenceWork::stride_of(M::kNumbers, all);
  const std::int64_t panel = RecurrenceWork::padded(M::kNumbers, all) * kUnitBlock;
  const std::int64_t begin = std::min(w.first_own * kUnitBlock, H), end = std::min(w.end_own * kUnitBlock, H);
  T* packed = static_cast<T*>(w.packed);
  const TileScope tiles(has_tiles<M>);
  if (packed != nullptr) {
    for_blocks<4>(w.first_own, w.end_own, false,
                  [&](std::int64_t block, auto parts) { pack_transposed<M, parts>(w, block, packed + block * panel); });
  }
  const auto start_with = [&](const auto* given, float* to) {
    if (given != nullptr) return copy_columns(w, begin, end, given, to);
    for (std::int64_t row = w.first_row; row < w.end_row; ++row) std::fill_n(to + row * H + begin, end - begin, 0.0F);
  };
  start_with(static_cast<const T*>(w.dlast_h), w.d_h);
  start_with(w.dlast_c, w.c);
  if (thread == 0) fill_rows_up<M>(w, all);
  for (std::int64_t gate = 0; w.totals != nullptr && gate < 2 * w.biases(); ++gate) {
    std::fill(w.totals + gate * H + begin, w.totals + gate * H + end, 0.0F);
  }
  if (w.row_groups > 1) wait_for_all(w);  // until they have packed
  // A GRU's gradients of h u differ from those of xw.
  void*& made = w.cell == CellKind::gru ? w.dhu : w.dxw;
  const bool are_made_multiplied = are_multiplied_there<M>(w, made, all);
  auto* const all_made = static_cast<typename M::Left*>(made);
  if (are_made_multiplied) made = nullptr;  // written once
  for (std::int64_t turn = 0; turn < w.steps; ++turn) {
    const std::int64_t t = w.step_of(turn, !w.is_reverse);
    auto* d_gates =
        are_made_multiplied ? all_made + t * w.rows * all : static_cast<typename M::Left*>(w.left[turn % 2]);
    for (std::int64_t row = w.first_row; row < w.end_row; ++row) {
      Cell::template retreat<M>(w, t, row, begin, end - begin, d_gates + row * stride + begin);
    }
    constexpr std::int64_t kStepsTogether = 16;
    if (w.totals != nullptr && turn % kStepsTogether == kStepsTogether - 1) carry_totals(w, begin, end - begin);
    wait_for_group(w);
    if constexpr (!has_pairs<M>) {
      if (!w.is_packed) {
        send_back_few_rows<Cell, T>(w, t, begin, end, d_gates);
        continue;
      }
    }
    for_multiplied<4>(w, turn, [&](std::int64_t block, auto parts) {
      send_back<Cell, M, parts>(w, t, block, packed + block * panel, d_gates);
    });
  }
  if (w.dh0 != nullptr) copy_columns(w, begin, end, w.d_h, static_cast<T*>(w.dh0));
  if (w.dc0 != nullptr) copy_columns(w, begin, end, w.c, w.dc0);
  if (w.totals == nullptr) return;
  if (w.row_groups > 1) wait_for_all(w);
  if (w.group == 0) give_totals<M>(w, begin, end);
}

template <class Cell>
void run_backward_cell(const RecurrenceWork& w, int thread, int team) {
  switch (w.numbers) {
    case Numbers::f32: return run_backward_part<Cell, Singles>(w, thread, team);
    case Numbers::bf16_as_f32: return run_backward_part<Cell, Halves>(w, thread, team);
    case Numbers::bf16_in_pairs: return run_backward_part<Cell, Pairs>(w, thread, team);
    case Numbers::bf16_in_tiles: return run_backward_part<Cell, Tiles>(w, thread, team);
  }
}

void run_backward(const RecurrenceWork& w, int thread, int team) {
  switch (w.cell) {
    case CellKind::lstm: return run_backward_cell<LstmCell>(w, thread, team);
    case CellKind::gru: return run_backward_cell<GruCell>(w, thread, team);
    case CellKind::rnn: return run_backward_cell<RnnCell>(w, thread, team);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace paoding {

HWY_EXPORT(run_backward);

void run_recurrence_backward(const RecurrenceWork& work, int thread, int team) {
  HWY_DYNAMIC_DISPATCH(run_backward)(work, thread, team);
}

}  // namespace paoding
#endif
