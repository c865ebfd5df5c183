// SPDX-License-Identifier: Apache-2.0
// A step of an LSTM for units of a row, forward and backward.
#if defined(PAODING_CELL_LSTM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAODING_CELL_LSTM_INL_H_
#undef PAODING_CELL_LSTM_INL_H_
#else
#define PAODING_CELL_LSTM_INL_H_
#endif

#include "ops/recurrence/cpu/recurrence_work-inl.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {

struct LstmCell {
  static constexpr std::int64_t kGates = 4;
  static constexpr bool kAddsToState = false;  // a step passes nothing back besides its product

  // The gates, cells and states of `count` units of a row, given h u: of each gate's `stride` further.
  template <class M>
  static HWY_INLINE void advance(const RecurrenceWork& w, std::int64_t t, std::int64_t turn, std::int64_t row,
                                 std::int64_t first, std::int64_t count, const float* sums, std::int64_t stride) {
    using T = typename M::Stored;
    const Places<M> places(w, t, row, first);
    const std::int64_t H = w.hidden;
    const T* xw = places.gates(w.xw);
    const float* bias = w.from_bias + first;
    T *gates = places.gates(w.saved), *states = places.entry(w.states);
    float *cells = places.entry(w.cells), *c = places.state(w.c);
    const auto* h = places.left(w.left[turn % 2]);
    auto* next_h = places.left(w.left[(turn + 1) % 2]);
    const bool is_counted = w.counts(t, row);
    for_units(count, [&](auto d, std::int64_t j) {
      if (is_counted) {
        const auto sum = [&](std::int64_t gate) {
          const auto from_x = hn::Add(load(d, xw + gate * H + j), load(d, bias + gate * H + j));
          return hn::Add(load(d, sums + gate * stride + j), from_x);
        };
        const auto i = sigmoid(d, sum(0)), f = sigmoid(d, sum(1)), g = tanh(d, sum(2)), o = sigmoid(d, sum(3));
        const auto new_c = hn::MulAdd(f, load(d, c + j), hn::Mul(i, g));
        store(d, new_c, c + j);
        const auto new_h = rounded<T>(d, hn::Mul(o, tanh(d, new_c)));
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

  // The gradients of the gates of units of a row, and of the cells in front of the step.
  template <class M>
  static HWY_INLINE void retreat(const RecurrenceWork& w, std::int64_t t, std::int64_t row, std::int64_t first,
                                 std::int64_t count, typename M::Left* made) {
    using T = typename M::Stored;
    const Places<M> places(w, t, row, first);
    const std::int64_t H = w.hidden;
    T* dxw = places.gates(w.dxw);
    if (!w.counts(t, row)) return clear_guards<M>(w, count, made, {dxw});
    const T *gates = places.gates(w.given_saved), *dstates = places.step(w.dstates);
    const float *old_c = places.entry_before(w.given_cells), *new_c = places.entry(w.given_cells);
    float *d_h = places.state(w.d_h), *d_c = places.state(w.c);
    for_units(count, [&](auto d, std::int64_t j) {
      const auto one = hn::Set(d, 1.0F);
      const auto i = load(d, gates + j), f = load(d, gates + H + j), g = load(d, gates + 2 * H + j),
                 o = load(d, gates + 3 * H + j);
      const auto activated = tanh(d, load(d, new_c + j));
      auto dh = load(d, d_h + j);
      if (dstates != nullptr) dh = hn::Add(dh, load(d, dstates + j));
      const auto dc = hn::MulAdd(hn::Mul(dh, o), hn::NegMulAdd(activated, activated, one), load(d, d_c + j));
      store(d, hn::Mul(dc, f), d_c + j);
      const auto put = [&](std::int64_t gate, auto value) {
        const auto kept = rounded<T>(d, value);
        store(d, kept, made + gate * H + j);
        add_up(w, d, gate, first + j, kept);
        if (dxw != nullptr) store(d, kept, dxw + gate * H + j);
      };
      put(0, hn::Mul(hn::Mul(dc, g), hn::NegMulAdd(i, i, i)));
      put(1, hn::Mul(hn::Mul(dc, load(d, old_c + j)), hn::NegMulAdd(f, f, f)));
      put(2, hn::Mul(hn::Mul(dc, i), hn::NegMulAdd(g, g, one)));
      put(3, hn::Mul(hn::Mul(dh, activated), hn::NegMulAdd(o, o, o)));
    });
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#endif  // per target
