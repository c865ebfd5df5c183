// SPDX-License-Identifier: Apache-2.0
// e^x of f32, for each instruction set, to one unit in the last place. Not a number stays one.
#if defined(PAODING_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAODING_EXP_INL_H_
#undef PAODING_EXP_INL_H_
#else
#define PAODING_EXP_INL_H_
#endif

#include "base/clamp-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// x = n log(2) + r with |r| <= log(2) / 2. Adding 1.5 * 2^23 leaves the nearest integer n in the low bits, which is all
// that a power of two needs. `power` is e^r - 1, a polynomial (minimax for the relative error, 1.4e-8).
struct Reduced {
  hn::Vec<hn::ScalableTag<float>> power;
  hn::Vec<hn::ScalableTag<std::int32_t>> n;
};

template <class D, class V>
HWY_INLINE Reduced reduce(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V magic = hn::Set(d, 12582912.0f);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.442695041f), magic), whole = hn::Sub(shifted, magic);
  V r = hn::NegMulAdd(whole, hn::Set(d, 0.693145752f), x);  // few bits, so that the product is exact
  r = hn::NegMulAdd(whole, hn::Set(d, 1.42860677e-6f), r);
  V p = hn::MulAdd(hn::Set(d, 1.394756837e-03f), r, hn::Set(d, 8.367246948e-03f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.166626558e-02f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.666653752e-01f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  return {hn::MulAdd(hn::Mul(p, r), r, r), hn::BitCast(di, shifted)};
}

// 2^n of the low bits of n; those above them fall off.
template <class D, class V>
HWY_INLINE hn::Vec<D> power_of_two(D d, V n) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::Add(hn::ShiftLeft<23>(n), hn::Set(di, 0x3f800000)));
}

// In two steps, because neither 2^128 nor 2^-149 is a normal number.
template <class D, class V>
HWY_INLINE V exp_f32(D d, V x) {
  const Reduced reduced = reduce(d, least(hn::Set(d, 89.0f), greatest(hn::Set(d, -104.0f), x)));
  const auto half = hn::ShiftRight<1>(reduced.n);
  const V y = hn::Mul(hn::Add(reduced.power, hn::Set(d, 1.0f)), power_of_two(d, half));
  return hn::Mul(y, power_of_two(d, hn::Sub(reduced.n, half)));
}

// The same of numbers that are at most 88: 0 where it would be less than the least normal number.
template <class D, class V>
HWY_INLINE V exp_of_at_most_88(D d, V x) {
  const V lowest = hn::Set(d, -87.0f);
  const Reduced reduced = reduce(d, greatest(lowest, x));
  const V scale = power_of_two(d, reduced.n);
  return hn::IfThenZeroElse(hn::Lt(x, lowest), hn::MulAdd(reduced.power, scale, scale));
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#endif  // per target
