// SPDX-License-Identifier: Apache-2.0
// A step of a GRU for units of a row, forward and backward.
#if defined(PAODING_CELL_GRU_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAODING_CELL_GRU_INL_H_
#undef PAODING_CELL_GRU_INL_H_
#else
#define PAODING_CELL_GRU_INL_H_
#endif

#include "ops/recurrence/cpu/recurrence_work-inl.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {

// Saved are r, z, n and m = h u_n + bm. The state is carried in f32, in place of the others' cell states.
struct GruCell {
  static constexpr std::int64_t kGates = 3;
  static constexpr bool kAddsToState = true;

  template <class M>
  static HWY_INLINE void advance(const RecurrenceWork& w, std::int64_t t, std::int64_t turn, std::int64_t row,
                                 std::int64_t first, std::int64_t count, const float* sums, std::int64_t stride) {
    using T = typename M::Stored;
    const Places<M> places(w, t, row, first);
    const std::int64_t H = w.hidden;
    const T *xw = places.gates(w.xw), *bm = static_cast<const T*>(w.bm) + first;
    const float* bias = w.from_bias + first;
    T *saved = places.saved(w.saved), *states = places.entry(w.states);
    float* h = places.state(w.c);
    auto* next_h = places.left(w.left[(turn + 1) % 2]);
    const bool is_counted = w.counts(t, row);
    for_units(count, [&](auto d, std::int64_t j) {
      if (is_counted) {
        const auto of_x = [&](std::int64_t gate) {
          return hn::Add(load(d, xw + gate * H + j), load(d, bias + gate * H + j));
        };
        const auto of_h = [&](std::int64_t gate) { return load(d, sums + gate * stride + j); };
        const auto r = sigmoid(d, hn::Add(of_x(0), of_h(0))), z = sigmoid(d, hn::Add(of_x(1), of_h(1)));
        const auto m = hn::Add(of_h(2), load(d, bm + j)), n = tanh(d, hn::MulAdd(r, m, of_x(2)));
        const auto new_h = hn::MulAdd(z, hn::Sub(load(d, h + j), n), n), seen = rounded<T>(d, new_h);
        store(d, new_h, h + j);
        store(d, seen, next_h + j);
        if (states != nullptr) store(d, seen, states + j);
        if (saved != nullptr) {
          store(d, r, saved + j), store(d, z, saved + H + j);
          store(d, n, saved + 2 * H + j), store(d, m, saved + 3 * H + j);
        }
      } else {
        store(d, rounded<T>(d, load(d, h + j)), next_h + j);
        if (states != nullptr) store(d, hn::Zero(d), states + j);
        for (std::int64_t part = 0; saved != nullptr && part < 4; ++part) store(d, hn::Zero(d), saved + part * H + j);
      }
    });
  }

  // Made are the gradients of h u; the part of the state's gradient without a product is left in d_h.
  template <class M>
  static HWY_INLINE void retreat(const RecurrenceWork& w, std::int64_t t, std::int64_t row, std::int64_t first,
                                 std::int64_t count, typename M::Left* made) {
    using T = typename M::Stored;
    const Places<M> places(w, t, row, first);
    const std::int64_t H = w.hidden;
    T *dxw = places.gates(w.dxw), *dhu = places.gates(w.dhu);
    if (!w.counts(t, row)) return clear_guards<M>(w, count, made, {dxw, dhu});
    const T *saved = places.saved(w.given_saved), *dstates = places.step(w.dstates);
    // Where the reverse direction begins within a row, the state is the start's; the entry there is 0.
    const bool is_start = w.is_reverse && w.lengths != nullptr && t + 1 == w.lengths[row];
    const T* old_h = is_start ? places.start(w.given_states) : places.entry_before(w.given_states);
    float* d_h = places.state(w.d_h);
    for_units(count, [&](auto d, std::int64_t j) {
      const auto one = hn::Set(d, 1.0F);
      const auto r = load(d, saved + j), z = load(d, saved + H + j), n = load(d, saved + 2 * H + j),
                 m = load(d, saved + 3 * H + j);
      auto dh = load(d, d_h + j);
      if (dstates != nullptr) dh = hn::Add(dh, load(d, dstates + j));
      const auto kept = hn::Mul(dh, z), d_n = hn::Mul(hn::Sub(dh, kept), hn::NegMulAdd(n, n, one));
      store(d, kept, d_h + j);
      const auto put = [&](std::int64_t gate, auto of_x, auto of_h) {
        const auto x = rounded<T>(d, of_x), h = rounded<T>(d, of_h);
        store(d, h, made + gate * H + j);
        add_up(w, d, gate, first + j, x);
        if (gate == 2) add_up(w, d, 3, first + j, h);
        if (dxw != nullptr) store(d, x, dxw + gate * H + j);
        if (dhu != nullptr) store(d, h, dhu + gate * H + j);
      };
      const auto d_r = hn::Mul(hn::Mul(d_n, m), hn::NegMulAdd(r, r, r));
      const auto d_z = hn::Mul(hn::Mul(dh, hn::Sub(load(d, old_h + j), n)), hn::NegMulAdd(z, z, z));
      put(0, d_r, d_r);
      put(1, d_z, d_z);
      put(2, d_n, hn::Mul(d_n, r));
    });
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#endif  // per target
