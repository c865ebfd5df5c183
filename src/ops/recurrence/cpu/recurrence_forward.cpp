// SPDX-License-Identifier: Apache-2.0
// The forward part of a thread: it has units of the hidden state, keeps their columns of u packed, which stay in its
// cache, and computes their gates and states; the threads synchronize once a step, when all states of it are there.
// Where there are rows enough, threads form groups, which have rows of their own and wait for no other.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/recurrence/cpu/recurrence_forward.cpp"
#include "hwy/foreach_target.h"
//
#include "cpu/team.h"
#include "hwy/cache_control.h"
#include "ops/recurrence/cpu/cell_gru-inl.h"
#include "ops/recurrence/cpu/cell_lstm-inl.h"
#include "ops/recurrence/cpu/cell_rnn-inl.h"
#include "ops/recurrence/cpu/weights_by_columns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {

template <class Cell>
constexpr std::int64_t kBlocksTogether = blocks_together(Cell::kGates);

// Packs, for so many unit blocks, rows first_row .. end_row - 1 of the panel [H, blocks * gates * kUnitBlock], filled
// up with zeros.
template <class Cell, class M, std::int64_t kBlocks>
void pack_gates(const RecurrenceWork& w, std::int64_t block, std::int64_t first_row, std::int64_t end_row,
                typename M::Stored* panel) {
  using T = typename M::Stored;
  const auto* u = static_cast<const T*>(w.u);
  constexpr std::int64_t G = Cell::kGates;
  constexpr std::int64_t kDeep = has_pairs<M> ? 2 : 1;
  const std::int64_t H = w.hidden;
  const hn::CappedTag<T, kUnitBlock> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  panel += first_row * kBlocks * G * kUnitBlock;
  for (std::int64_t k = first_row; k < end_row; k += kDeep) {
    for (std::int64_t part = 0; part < kBlocks * G; ++part, panel += kDeep * kUnitBlock) {
      const std::int64_t first = (block + part / G) * kUnitBlock, gate = part % G;
      const T* from = u + k * G * H + gate * H + first;
      const std::int64_t count = std::clamp<std::int64_t>(H - first, 0, kUnitBlock);
      const std::int64_t depth = std::clamp<std::int64_t>(H - k, 0, kDeep);
      if (count == kUnitBlock && depth == kDeep) {
        for (std::int64_t j = 0; j < kUnitBlock; j += lanes) {
          const auto above = hn::LoadU(d, from + j);
          if constexpr (kDeep == 1) {
            hn::StoreU(above, d, panel + j);
          } else {
            hn::StoreInterleaved2(above, hn::LoadU(d, from + G * H + j), d, panel + 2 * j);
          }
        }
        continue;
      }
      std::fill_n(panel, kDeep * kUnitBlock, T{});
      for (std::int64_t i = 0; i < depth; ++i) {
        for (std::int64_t j = 0; j < count; ++j) panel[j * kDeep + i] = from[i * G * H + j];
      }
    }
  }
}

// A row's units are a line of each gate in the input's product, and a line each in the states and cells of a step, all
// far apart, which nothing fetches ahead by itself: they are on their way while h is multiplied.
template <class Cell, class M, std::int64_t kBlocks>
HWY_INLINE void ask_for_lines(const RecurrenceWork& w, std::int64_t t, std::int64_t turn, std::int64_t row,
                              std::int64_t block) {
  const Places<M> places(w, t, row, block * kUnitBlock);
  const auto* xw = places.gates(w.xw);
  const auto* next_h = places.left(w.left[(turn + 1) % 2]);
  const float* cells = places.entry(w.cells);
  for (std::int64_t b = 0; b < kBlocks; ++b) {
    for (std::int64_t gate = 0; gate < Cell::kGates; ++gate) hwy::Prefetch(xw + gate * w.hidden + b * kUnitBlock);
    hwy::Prefetch(next_h + b * kUnitBlock);
    if (cells != nullptr) hwy::Prefetch(cells + b * kUnitBlock);
  }
}

template <class Cell, class M, std::int64_t kBlocks>
HWY_INLINE void step_of_blocks(const RecurrenceWork& w, std::int64_t t, std::int64_t turn, std::int64_t block,
                               const typename M::Stored* panel) {
  constexpr std::int64_t kParts = kBlocks * Cell::kGates, kWidth = kParts * kUnitBlock;
  const std::int64_t stride = RecurrenceWork::stride_of(M::kNumbers, w.hidden);
  const auto* h = static_cast<const typename M::Left*>(w.left[turn % 2]);
  HWY_ALIGN float tile[tile_rows<M>(kParts) * kWidth];
  for_rows<M>(w, t, tile_rows<M>(kParts), [&](std::int64_t row, std::int64_t end_row, bool is_counted) {
    for (std::int64_t r = row; r < end_row; ++r) ask_for_lines<Cell, M, kBlocks>(w, t, turn, r, block);
    if (is_counted) multiply<M, kParts>(end_row - row, h + row * stride, stride, w.hidden, panel, tile);
    for (std::int64_t r = row; r < end_row; ++r) {
      for (std::int64_t b = 0; b < kBlocks; ++b) {
        const std::int64_t first = (block + b) * kUnitBlock, count = std::min(kUnitBlock, w.hidden - first);
        const float* sums = tile + (r - row) * kWidth + b * Cell::kGates * kUnitBlock;
        Cell::template advance<M>(w, t, turn, r, first, count, sums, kUnitBlock);
      }
    }
  });
}

// Columns begin .. end - 1 of each gate of h u, for rows of u that come by some at a time.
template <class Cell, std::int64_t kRows, class T>
HWY_INLINE void multiply_in_place(const RecurrenceWork& w, const float* h, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kAtOnce = 8;  // of u: as many streams as the prefetchers follow
  constexpr std::int64_t G = Cell::kGates;
  const std::int64_t H = w.hidden;
  for (std::int64_t from = 0; from < H; from += kAtOnce) {
    const std::int64_t together = std::min(kAtOnce, H - from);
    for (std::int64_t gate = 0; gate < G; ++gate) {
      const T* u = static_cast<const T*>(w.u) + from * G * H + gate * H + begin;
      float* sums = w.sums + gate * H + begin;
      const auto add = [&](auto d, std::int64_t j, std::int64_t count) {
        hn::Vec<decltype(d)> totals[kRows];
        for (std::int64_t r = 0; r < kRows; ++r) {
          totals[r] = from == 0 ? hn::Zero(d) : load(d, sums + r * G * H + j);
        }
        for (std::int64_t i = 0; i < count; ++i) {
          const auto factor = load(d, u + i * G * H + j);
          for (std::int64_t r = 0; r < kRows; ++r) {
            totals[r] = hn::MulAdd(hn::Set(d, h[r * H + from + i]), factor, totals[r]);
          }
        }
        for (std::int64_t r = 0; r < kRows; ++r) store(d, totals[r], sums + r * G * H + j);
      };
      if (together == kAtOnce) {
        for_units(end - begin, [&](auto d, std::int64_t j) { add(d, j, kAtOnce); });
      } else {
        for_units(end - begin, [&](auto d, std::int64_t j) { add(d, j, together); });
      }
    }
  }
}

template <class Cell, std::int64_t kRows, class T>
HWY_INLINE void multiply_few_rows(const RecurrenceWork& w, const float* h, std::int64_t begin, std::int64_t end) {
  if (w.is_by_columns) return multiply_in_columns<Cell, kRows, T>(w, h, begin, end);
  multiply_in_place<Cell, kRows, T>(w, h, begin, end);
}

template <class Cell, class M>
HWY_INLINE void step_of_few_rows(const RecurrenceWork& w, std::int64_t t, std::int64_t turn, std::int64_t begin,
                                 std::int64_t end) {
  using T = typename M::Stored;
  const auto* h = static_cast<const float*>(w.left[turn % 2]);
  switch (w.rows) {
    case 1: multiply_few_rows<Cell, 1, T>(w, h, begin, end); break;
    case 2: multiply_few_rows<Cell, 2, T>(w, h, begin, end); break;
    case 3: multiply_few_rows<Cell, 3, T>(w, h, begin, end); break;
    default: multiply_few_rows<Cell, 4, T>(w, h, begin, end); break;
  }
  for (std::int64_t row = 0; row < w.rows; ++row) {
    const float* sums = w.sums + row * Cell::kGates * w.hidden + begin;
    Cell::template advance<M>(w, t, turn, row, begin, end - begin, sums, w.hidden);
  }
}

// Takes the bias of its units, for all groups.
template <class Cell, class M>
void take_bias(const RecurrenceWork& w, std::int64_t begin, std::int64_t end) {
  for (std::int64_t gate = 0; gate < Cell::kGates; ++gate) {
    float* to = w.from_bias + gate * w.hidden;
    const auto take = [&](const auto* from) {
      for_units(end - begin,
                [&](auto d, std::int64_t j) { store(d, load(d, from + gate * w.hidden + begin + j), to + begin + j); });
    };
    if (w.bias == nullptr) {
      std::fill(to + begin, to + end, 0.0F);
    } else if (w.is_bias_wide) {
      take(static_cast<const float*>(w.bias));
    } else {
      take(static_cast<const typename M::Stored*>(w.bias));
    }
  }
}

// The panels of a thread's units, of which the groups pack some rows each.
template <class Cell, class M>
void pack_own(const RecurrenceWork& w, typename M::Stored* packed) {
  const std::int64_t depth = RecurrenceWork::padded(M::kNumbers, w.hidden), panel = depth * Cell::kGates * kUnitBlock;
  const std::int64_t unit = w.is_by_columns ? kUnitBlock : 4;
  const std::int64_t first = first_packed(w, w.group, depth, unit), end = first_packed(w, w.group + 1, depth, unit);
  // Where u lies by rows, a few rows at a time, from end to end: columns block by block are a cache line of each page.
  const std::int64_t together = w.is_by_columns ? end - first : unit;
  for (std::int64_t k = first; k < end; k += together) {
    for_blocks<kBlocksTogether<Cell>>(w.first_own, w.end_own, false, [&](std::int64_t block, auto count) {
      const std::int64_t end_row = std::min(k + together, end);
      if (w.is_by_columns) return pack_columns<Cell, M, count>(w, block, k, end_row, packed + block * panel);
      pack_gates<Cell, M, count>(w, block, k, end_row, packed + block * panel);
    });
  }
}

template <class Cell, class M>
void run_forward_part(const RecurrenceWork& work, int thread, int team) {
  using T = typename M::Stored;
  RecurrenceWork w = work_of(work, thread, team);
  const std::int64_t H = w.hidden, size = w.rows * H, stride = RecurrenceWork::stride_of(M::kNumbers, H);
  const std::int64_t depth = RecurrenceWork::padded(M::kNumbers, H), panel = depth * Cell::kGates * kUnitBlock;
  const std::int64_t begin = std::min(w.first_own * kUnitBlock, H), end = std::min(w.end_own * kUnitBlock, H);
  T* packed = static_cast<T*>(w.packed);
  const T* panels = static_cast<const T*>(w.panels);
  const TileScope tiles(has_tiles<M>);
  if (packed != nullptr) pack_own<Cell, M>(w, packed);
  if (w.group == 0) take_bias<Cell, M>(w, begin, end);
  auto* h = static_cast<typename M::Left*>(w.left[0]);
  copy_columns(w, begin, end, static_cast<const T*>(w.h0), H, h, stride);
  if (thread == 0) fill_rows_up<M>(w, H);
  if (w.c0 != nullptr) copy_columns(w, begin, end, w.c0, w.c);
  if (w.cell == CellKind::gru) copy_columns(w, begin, end, static_cast<const T*>(w.h0), w.c);
  const std::int64_t start = (w.is_reverse ? w.steps : 0) * size;
  if (w.states != nullptr) copy_columns(w, begin, end, h, stride, static_cast<T*>(w.states) + start, H);
  if (w.cells != nullptr) copy_columns(w, begin, end, w.c, w.cells + start);
  wait_for_all(w);
  const bool are_states_multiplied = are_multiplied_there<M>(w, w.states, H);
  for (std::int64_t turn = 0; turn < w.steps; ++turn) {
    const std::int64_t t = w.step_of(turn, w.is_reverse);
    if (are_states_multiplied) {
      auto* states = static_cast<typename M::Left*>(work.states);
      w.left[turn % 2] = states + (w.is_reverse ? t + 1 : t) * size;
      w.left[(turn + 1) % 2] = states + (w.is_reverse ? t : t + 1) * size;
      w.states = nullptr;  // written once
    }
    if constexpr (!has_pairs<M>) {
      if (!w.is_packed) {
        step_of_few_rows<Cell, M>(w, t, turn, begin, end);
        wait_for_group(w);
        continue;
      }
    }
    for_multiplied<kBlocksTogether<Cell>>(w, turn, [&](std::int64_t block, auto count) {
      step_of_blocks<Cell, M, count>(w, t, turn, block, panels + block * panel);
    });
    wait_for_group(w);
  }
  h = static_cast<typename M::Left*>(w.left[w.steps % 2]);
  if (w.last_h != nullptr) copy_columns(w, begin, end, h, stride, static_cast<T*>(w.last_h), H);
  if (w.last_c != nullptr) copy_columns(w, begin, end, w.c, w.last_c);
}

template <class Cell>
void run_forward_cell(const RecurrenceWork& w, int thread, int team) {
  switch (w.numbers) {
    case Numbers::f32: return run_forward_part<Cell, Singles>(w, thread, team);
    case Numbers::bf16_as_f32: return run_forward_part<Cell, Halves>(w, thread, team);
    case Numbers::bf16_in_pairs: return run_forward_part<Cell, Pairs>(w, thread, team);
    case Numbers::bf16_in_tiles: return run_forward_part<Cell, Tiles>(w, thread, team);
  }
}

void run_forward(const RecurrenceWork& w, int thread, int team) {
  switch (w.cell) {
    case CellKind::lstm: return run_forward_cell<LstmCell>(w, thread, team);
    case CellKind::gru: return run_forward_cell<GruCell>(w, thread, team);
    case CellKind::rnn: return run_forward_cell<RnnCell>(w, thread, team);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace paoding {

HWY_EXPORT(run_forward);

void run_recurrence_forward(const RecurrenceWork& work, int thread, int team) {
  HWY_DYNAMIC_DISPATCH(run_forward)(work, thread, team);
}

}  // namespace paoding
#endif
