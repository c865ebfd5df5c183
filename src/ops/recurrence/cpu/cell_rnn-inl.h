// SPDX-License-Identifier: Apache-2.0
// A step of the plain recurrence for units of a row, forward and backward.
#if defined(PAODING_CELL_RNN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAODING_CELL_RNN_INL_H_
#undef PAODING_CELL_RNN_INL_H_
#else
#define PAODING_CELL_RNN_INL_H_
#endif

#include "ops/recurrence/cpu/recurrence_work-inl.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {

struct RnnCell {
  static constexpr std::int64_t kGates = 1;
  static constexpr bool kAddsToState = false;

  template <class M>
  static HWY_INLINE void advance(const RecurrenceWork& w, std::int64_t t, std::int64_t turn, std::int64_t row,
                                 std::int64_t first, std::int64_t count, const float* sums, std::int64_t /*stride*/) {
    using T = typename M::Stored;
    const Places<M> places(w, t, row, first);
    const T* xw = places.gates(w.xw);
    const float* bias = w.from_bias + first;
    T* states = places.entry(w.states);
    const auto* h = places.left(w.left[turn % 2]);
    auto* next_h = places.left(w.left[(turn + 1) % 2]);
    const bool is_counted = w.counts(t, row);
    for_units(count, [&](auto d, std::int64_t j) {
      if (is_counted) {
        const auto sum = hn::Add(load(d, sums + j), hn::Add(load(d, xw + j), load(d, bias + j)));
        // NaN stays NaN.
        const auto activated = w.is_relu ? hn::IfThenElse(hn::Lt(sum, hn::Zero(d)), hn::Zero(d), sum) : tanh(d, sum);
        const auto new_h = rounded<T>(d, activated);
        store(d, new_h, next_h + j);
        if (states != nullptr) store(d, new_h, states + j);
      } else {
        store(d, load(d, h + j), next_h + j);
        if (states != nullptr) store(d, hn::Zero(d), states + j);
      }
    });
  }

  template <class M>
  static HWY_INLINE void retreat(const RecurrenceWork& w, std::int64_t t, std::int64_t row, std::int64_t first,
                                 std::int64_t count, typename M::Left* made) {
    using T = typename M::Stored;
    const Places<M> places(w, t, row, first);
    T* dxw = places.gates(w.dxw);
    if (!w.counts(t, row)) return clear_guards<M>(w, count, made, {dxw});
    const T *h = places.entry(w.given_states), *dstates = places.step(w.dstates);
    const float* d_h = places.state(w.d_h);
    for_units(count, [&](auto d, std::int64_t j) {
      const auto one = hn::Set(d, 1.0F), y = load(d, h + j);
      auto dh = load(d, d_h + j);
      if (dstates != nullptr) dh = hn::Add(dh, load(d, dstates + j));
      const auto slope = w.is_relu ? hn::IfThenElseZero(hn::Gt(y, hn::Zero(d)), one) : hn::NegMulAdd(y, y, one);
      const auto kept = rounded<T>(d, hn::Mul(dh, slope));
      store(d, kept, made + j);
      add_up(w, d, 0, first + j, kept);
      if (dxw != nullptr) store(d, kept, dxw + j);
    });
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#endif  // per target
