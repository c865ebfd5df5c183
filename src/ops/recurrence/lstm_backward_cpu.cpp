// SPDX-License-Identifier: Apache-2.0
// The backward part of a thread: of its units it makes the gradients of the gates, and of all gates' gradients, for
// which the threads meet once a step, what goes on to its states.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/recurrence/lstm_backward_cpu.cpp"
#include "hwy/foreach_target.h"
//
#include "cpu/team.h"
#include "ops/recurrence/lstm_work-inl.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {

// Of the units of up to four blocks: panel [4H, kParts * kUnitBlock] of u transposed.
template <std::int64_t kParts, class T>
void pack_transposed(const LstmWork& w, std::int64_t block, T* panel) {
  const auto* u = static_cast<const T*>(w.u);
  constexpr std::int64_t kWidth = kParts * kUnitBlock, kTogether = 16;  // columns: a cache line of u
  const std::int64_t H = w.hidden, first = block * kUnitBlock;
  for (std::int64_t k = 0; k < 4 * H; k += kTogether) {
    for (std::int64_t j = 0; j < kWidth; ++j) {
      for (std::int64_t i = k; i < std::min(k + kTogether, 4 * H); ++i) {
        panel[i * kWidth + j] = first + j < H ? u[(first + j) * 4 * H + i] : T{};
      }
    }
  }
}

// The gradients of the gates of a part of a row, and of the cells in front of the step.
template <class T>
HWY_INLINE void retreat(const LstmWork& w, std::int64_t t, std::int64_t row, std::int64_t begin, std::int64_t end,
                        float* d_gates) {
  const std::int64_t B = w.rows, H = w.hidden, at = row * H + begin, wide_at = (t * B + row) * 4 * H + begin;
  const std::int64_t before = w.is_reverse ? t + 1 : t, behind = w.is_reverse ? t : t + 1;
  T* dxw = w.dxw == nullptr ? nullptr : static_cast<T*>(w.dxw) + wide_at;
  float* made = d_gates + row * 4 * H + begin;
  if (!w.counts(t, row)) {
    for_units(end - begin, [&](auto d, std::int64_t j) {
      for (std::int64_t gate = 0; gate < 4; ++gate) {
        store(d, hn::Zero(d), made + gate * H + j);
        if (dxw != nullptr) store(d, hn::Zero(d), dxw + gate * H + j);
      }
    });
    return;
  }
  const T* gates = static_cast<const T*>(w.saved_gates) + wide_at;
  const T* dstates = w.dstates == nullptr ? nullptr : static_cast<const T*>(w.dstates) + t * B * H + at;
  const float *old_c = w.saved_cells + before * B * H + at, *new_c = w.saved_cells + behind * B * H + at;
  float *d_h = w.d_h + at, *d_c = w.c + at;
  for_units(end - begin, [&](auto d, std::int64_t j) {
    const auto one = hn::Set(d, 1.0F);
    const auto i = load(d, gates + j), f = load(d, gates + H + j), g = load(d, gates + 2 * H + j),
               o = load(d, gates + 3 * H + j);
    const auto bent = hn::Tanh(d, load(d, new_c + j));
    auto dh = load(d, d_h + j);
    if (dstates != nullptr) dh = hn::Add(dh, load(d, dstates + j));
    const auto dc = hn::MulAdd(hn::Mul(dh, o), hn::NegMulAdd(bent, bent, one), load(d, d_c + j));
    store(d, hn::Mul(dc, f), d_c + j);
    const auto put = [&](std::int64_t gate, auto value) {
      T rounded[kUnitBlock];
      store(d, value, rounded);
      store(d, load(d, rounded), made + gate * H + j);
      if (dxw != nullptr) store(d, load(d, rounded), dxw + gate * H + j);
    };
    put(0, hn::Mul(hn::Mul(dc, g), hn::NegMulAdd(i, i, i)));
    put(1, hn::Mul(hn::Mul(dc, load(d, old_c + j)), hn::NegMulAdd(f, f, f)));
    put(2, hn::Mul(hn::Mul(dc, i), hn::NegMulAdd(g, g, one)));
    put(3, hn::Mul(hn::Mul(dh, bent), hn::NegMulAdd(o, o, o)));
  });
}

// d_h of the units of kParts blocks: the gates' gradients of all units times u transposed.
template <std::int64_t kParts, class T>
HWY_INLINE void send_back(const LstmWork& w, std::int64_t t, std::int64_t block, const T* panel, const float* d_gates) {
  constexpr std::int64_t kWidth = kParts * kUnitBlock;
  const std::int64_t H = w.hidden, first = block * kUnitBlock, count = std::min(kWidth, H - first);
  HWY_ALIGN float tile[kTileRows * kWidth];
  for_rows(w, t, [&](std::int64_t row, std::int64_t end_row, bool is_counted) {
    if (!is_counted) return;
    multiply<kParts>(end_row - row, d_gates + row * 4 * H, 4 * H, 4 * H, panel, tile);
    for (std::int64_t r = row; r < end_row; ++r) {
      if (w.counts(t, r)) std::copy_n(tile + (r - row) * kWidth, count, w.d_h + r * H + first);
    }
  });
}

// d_h of units whose rows of u are read where they lie: products of whole rows.
template <std::int64_t kRows, std::int64_t kUnits, class T>
HWY_INLINE void add_up_rows(const LstmWork& w, std::int64_t t, std::int64_t unit, const float* d_gates) {
  const Lanes d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t all = 4 * w.hidden;
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
      if (w.counts(t, r)) w.d_h[r * w.hidden + unit + q] = total;
    }
  }
}

template <std::int64_t kRows, class T>
HWY_INLINE void send_back_rows(const LstmWork& w, std::int64_t t, std::int64_t begin, std::int64_t end,
                               const float* d_gates) {
  std::int64_t unit = begin;
  for (; unit + 4 <= end; unit += 4) add_up_rows<kRows, 4, T>(w, t, unit, d_gates);
  for (; unit < end; ++unit) add_up_rows<kRows, 1, T>(w, t, unit, d_gates);
}

template <class T>
HWY_INLINE void send_back_few_rows(const LstmWork& w, std::int64_t t, std::int64_t begin, std::int64_t end,
                                   const float* d_gates) {
  switch (w.rows) {
    case 1: return send_back_rows<1, T>(w, t, begin, end, d_gates);
    case 2: return send_back_rows<2, T>(w, t, begin, end, d_gates);
    case 3: return send_back_rows<3, T>(w, t, begin, end, d_gates);
    default: return send_back_rows<4, T>(w, t, begin, end, d_gates);
  }
}

// Calls work(block, parts) for blocks first .. end - 1, four, two or one at a time; parts is a constant.
template <class Work>
HWY_INLINE void for_blocks(std::int64_t first, std::int64_t end, const Work& work) {
  for (; first + 4 <= end; first += 4) work(first, std::integral_constant<std::int64_t, 4>());
  if (first + 2 <= end) work(first, std::integral_constant<std::int64_t, 2>()), first += 2;
  if (first < end) work(first, std::integral_constant<std::int64_t, 1>());
}

template <class T>
void run_backward_part(const LstmWork& w, int thread, int team) {
  const std::int64_t first_block = w.blocks() * thread / team, end_block = w.blocks() * (thread + 1) / team;
  const std::int64_t H = w.hidden, panel = 4 * H * kUnitBlock;
  const std::int64_t begin = std::min(first_block * kUnitBlock, H), end = std::min(end_block * kUnitBlock, H);
  T* packed = static_cast<T*>(w.packed);
  if (packed != nullptr) {
    for_blocks(first_block, end_block,
               [&](std::int64_t block, auto parts) { pack_transposed<parts>(w, block, packed + block * panel); });
  }
  const auto start_with = [&](const auto* given, float* to) {
    if (given != nullptr) return copy_columns(w, begin, end, given, to);
    for (std::int64_t row = 0; row < w.rows; ++row) std::fill(to + row * H + begin, to + row * H + end, 0.0F);
  };
  start_with(static_cast<const T*>(w.dlast_h), w.d_h);
  start_with(w.dlast_c, w.c);
  for (std::int64_t turn = 0; turn < w.steps; ++turn) {
    const std::int64_t t = w.step_of(turn, !w.is_reverse);
    float* d_gates = w.h[turn % 2];
    for (std::int64_t row = 0; row < w.rows; ++row) retreat<T>(w, t, row, begin, end, d_gates);
    w.barrier->wait(team);
    if (w.has_few_rows()) {
      send_back_few_rows<T>(w, t, begin, end, d_gates);
      continue;
    }
    for_blocks(first_block, end_block,
               [&](std::int64_t block, auto parts) { send_back<parts>(w, t, block, packed + block * panel, d_gates); });
  }
  if (w.dh0 != nullptr) copy_columns(w, begin, end, w.d_h, static_cast<T*>(w.dh0));
  if (w.dc0 != nullptr) copy_columns(w, begin, end, w.c, w.dc0);
}

void run_backward(const LstmWork& w, int thread, int team) {
  w.is_half ? run_backward_part<Half>(w, thread, team) : run_backward_part<float>(w, thread, team);
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace paoding {

HWY_EXPORT(run_backward);

void run_lstm_backward(const LstmWork& work, int thread, int team) {
  HWY_DYNAMIC_DISPATCH(run_backward)(work, thread, team);
}

}  // namespace paoding
#endif
