// SPDX-License-Identifier: Apache-2.0
// The forward part of a thread: it has units of the hidden state, keeps their columns of u packed, which stay in its
// cache, and computes their gates, cells and states; the threads meet once a step, when all states of it are there.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/recurrence/lstm_forward_cpu.cpp"
#include "hwy/foreach_target.h"
//
#include "cpu/team.h"
#include "ops/recurrence/lstm_work-inl.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {

// Of unit block `block`: panel [H, 4 gates * kUnitBlock], filled up with zeros.
template <class T>
void pack_gates(const LstmWork& w, std::int64_t block, T* panel) {
  const auto* u = static_cast<const T*>(w.u);
  const std::int64_t H = w.hidden, first = block * kUnitBlock, count = std::min(kUnitBlock, H - first);
  for (std::int64_t k = 0; k < H; ++k) {
    for (std::int64_t gate = 0; gate < 4; ++gate, panel += kUnitBlock) {
      std::copy_n(u + k * 4 * H + gate * H + first, count, panel);
      std::fill(panel + count, panel + kUnitBlock, T{});
    }
  }
}

// The gates, cells and states of units of one row, given h u: of each gate's `stride` further.
template <class T>
HWY_INLINE void advance(const LstmWork& w, std::int64_t t, std::int64_t turn, std::int64_t row, std::int64_t first,
                        std::int64_t count, const float* sums, std::int64_t stride) {
  const std::int64_t B = w.rows, H = w.hidden, entry = w.is_reverse ? t : t + 1, at = row * H + first;
  const T* xw = static_cast<const T*>(w.xw) + (t * B + row) * 4 * H + first;
  T* gates = w.gates == nullptr ? nullptr : static_cast<T*>(w.gates) + (t * B + row) * 4 * H + first;
  T* states = w.states == nullptr ? nullptr : static_cast<T*>(w.states) + entry * B * H + at;
  float* cells = w.cells == nullptr ? nullptr : w.cells + entry * B * H + at;
  const float* h = w.h[turn % 2] + at;
  float *next_h = w.h[(turn + 1) % 2] + at, *c = w.c + at;
  const bool is_counted = w.counts(t, row);
  for_units(count, [&](auto d, std::int64_t j) {
    if (is_counted) {
      const auto sum = [&](std::int64_t gate) {
        return hn::Add(load(d, sums + gate * stride + j), load(d, xw + gate * H + j));
      };
      const auto i = sigmoid(d, sum(0)), f = sigmoid(d, sum(1)), g = hn::Tanh(d, sum(2)), o = sigmoid(d, sum(3));
      const auto new_c = hn::MulAdd(f, load(d, c + j), hn::Mul(i, g));
      store(d, new_c, c + j);
      T rounded[kUnitBlock];
      store(d, hn::Mul(o, hn::Tanh(d, new_c)), rounded);
      const auto new_h = load(d, rounded);
      store(d, new_h, next_h + j);
      if (states != nullptr) store(d, new_h, states + j);
      if (gates != nullptr) {
        store(d, i, gates + j), store(d, f, gates + H + j);
        store(d, g, gates + 2 * H + j), store(d, o, gates + 3 * H + j);
      }
    } else {
      store(d, load(d, h + j), next_h + j);
      if (states != nullptr) store(d, hn::Zero(d), states + j);
      for (std::int64_t gate = 0; gates != nullptr && gate < 4; ++gate) store(d, hn::Zero(d), gates + gate * H + j);
    }
    if (cells != nullptr) store(d, load(d, c + j), cells + j);
  });
}

template <class T>
HWY_INLINE void step_of_block(const LstmWork& w, std::int64_t t, std::int64_t turn, std::int64_t block,
                              const T* panel) {
  const std::int64_t H = w.hidden, first = block * kUnitBlock, count = std::min(kUnitBlock, H - first);
  HWY_ALIGN float tile[kTileRows * 4 * kUnitBlock];
  for_rows(w, t, [&](std::int64_t row, std::int64_t end_row, bool is_counted) {
    if (is_counted) multiply<4>(end_row - row, w.h[turn % 2] + row * H, H, H, panel, tile);
    for (std::int64_t r = row; r < end_row; ++r) {
      advance<T>(w, t, turn, r, first, count, tile + (r - row) * 4 * kUnitBlock, kUnitBlock);
    }
  });
}

// Columns begin .. end - 1 of each gate of h u, for rows of u that come by some at a time.
template <std::int64_t kRows, class T>
HWY_INLINE void multiply_in_place(const LstmWork& w, const float* h, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kAtOnce = 8;  // of u: as many streams as the prefetchers follow
  const std::int64_t H = w.hidden;
  for (std::int64_t from = 0; from < H; from += kAtOnce) {
    const std::int64_t together = std::min(kAtOnce, H - from);
    for (std::int64_t gate = 0; gate < 4; ++gate) {
      const T* u = static_cast<const T*>(w.u) + from * 4 * H + gate * H + begin;
      float* sums = w.sums + gate * H + begin;
      const auto add = [&](auto d, std::int64_t j, std::int64_t count) {
        hn::Vec<decltype(d)> totals[kRows];
        for (std::int64_t r = 0; r < kRows; ++r) {
          totals[r] = from == 0 ? hn::Zero(d) : load(d, sums + r * 4 * H + j);
        }
        for (std::int64_t i = 0; i < count; ++i) {
          const auto factor = load(d, u + i * 4 * H + j);
          for (std::int64_t r = 0; r < kRows; ++r) {
            totals[r] = hn::MulAdd(hn::Set(d, h[r * H + from + i]), factor, totals[r]);
          }
        }
        for (std::int64_t r = 0; r < kRows; ++r) store(d, totals[r], sums + r * 4 * H + j);
      };
      if (together == kAtOnce) {
        for_units(end - begin, [&](auto d, std::int64_t j) { add(d, j, kAtOnce); });
      } else {
        for_units(end - begin, [&](auto d, std::int64_t j) { add(d, j, together); });
      }
    }
  }
}

template <class T>
HWY_INLINE void step_of_few_rows(const LstmWork& w, std::int64_t t, std::int64_t turn, std::int64_t begin,
                                 std::int64_t end) {
  const float* h = w.h[turn % 2];
  switch (w.rows) {
    case 1: multiply_in_place<1, T>(w, h, begin, end); break;
    case 2: multiply_in_place<2, T>(w, h, begin, end); break;
    case 3: multiply_in_place<3, T>(w, h, begin, end); break;
    default: multiply_in_place<4, T>(w, h, begin, end); break;
  }
  for (std::int64_t row = 0; row < w.rows; ++row) {
    advance<T>(w, t, turn, row, begin, end - begin, w.sums + row * 4 * w.hidden + begin, w.hidden);
  }
}

template <class T>
void run_forward_part(const LstmWork& w, int thread, int team) {
  const std::int64_t first_block = w.blocks() * thread / team, end_block = w.blocks() * (thread + 1) / team;
  const std::int64_t H = w.hidden, size = w.rows * H, panel = H * 4 * kUnitBlock;
  const std::int64_t begin = std::min(first_block * kUnitBlock, H), end = std::min(end_block * kUnitBlock, H);
  T* packed = static_cast<T*>(w.packed);
  for (std::int64_t block = first_block; packed != nullptr && block < end_block; ++block) {
    pack_gates(w, block, packed + block * panel);
  }
  const std::int64_t start = w.is_reverse ? w.steps : 0;
  copy_columns(w, begin, end, static_cast<const T*>(w.h0), w.h[0]);
  copy_columns(w, begin, end, w.c0, w.c);
  if (w.states != nullptr) copy_columns(w, begin, end, w.h[0], static_cast<T*>(w.states) + start * size);
  if (w.cells != nullptr) copy_columns(w, begin, end, w.c, w.cells + start * size);
  w.barrier->wait(team);
  for (std::int64_t turn = 0; turn < w.steps; ++turn) {
    const std::int64_t t = w.step_of(turn, w.is_reverse);
    if (w.has_few_rows()) {
      step_of_few_rows<T>(w, t, turn, begin, end);
    } else {
      for (std::int64_t block = first_block; block < end_block; ++block) {
        step_of_block(w, t, turn, block, packed + block * panel);
      }
    }
    w.barrier->wait(team);
  }
  if (w.last_h != nullptr) copy_columns(w, begin, end, w.h[w.steps % 2], static_cast<T*>(w.last_h));
  if (w.last_c != nullptr) copy_columns(w, begin, end, w.c, w.last_c);
}

void run_forward(const LstmWork& w, int thread, int team) {
  w.is_half ? run_forward_part<Half>(w, thread, team) : run_forward_part<float>(w, thread, team);
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace paoding {

HWY_EXPORT(run_forward);

void run_lstm_forward(const LstmWork& work, int thread, int team) {
  HWY_DYNAMIC_DISPATCH(run_forward)(work, thread, team);
}

}  // namespace paoding
#endif
