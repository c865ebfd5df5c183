// SPDX-License-Identifier: Apache-2.0
// The activations of gates, for each instruction set: sigmoid and tanh in half the time of Highway's, to 3e-7 of
// the value. Cells are a tenth of a recurrence of many rows. Not a number stays one.
#if defined(PAODING_ACTIVATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAODING_ACTIVATIONS_INL_H_
#undef PAODING_ACTIVATIONS_INL_H_
#else
#define PAODING_ACTIVATIONS_INL_H_
#endif

#include "base/clamp-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// e^x of -87 to 87: 2^n e^r with n whole and |r| at most log(2) / 2, and e^r by the polynomial of Cephes' expf. No
/// power of 2 here is too large or too small for one exponent, which makes it short.
template <class D>
HWY_INLINE hn::Vec<D> exp_of_short_range(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> whole;
  const auto n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504F)));
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375F), x);  // log(2) in two parts
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4F), r);
  auto p = hn::Set(d, 1.9875691500e-4F);
  for (const float factor :
       {1.3981999507e-3F, 8.3334519073e-3F, 4.1665795894e-2F, 1.6666665459e-1F, 5.0000001201e-1F}) {
    p = hn::MulAdd(p, r, hn::Set(d, factor));
  }
  p = hn::MulAdd(p, hn::Mul(r, r), hn::Add(r, hn::Set(d, 1.0F)));
  return hn::BitCast(d, hn::Add(hn::BitCast(whole, p), hn::ShiftLeft<23>(hn::ConvertTo(whole, n))));
}

/// 1 / (1 + e^-x); 2e-38 where it is less.
template <class D>
HWY_INLINE hn::Vec<D> sigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0F), most = hn::Set(d, 87.0F);
  const auto power = greatest(hn::Neg(most), least(most, hn::Neg(x)));  // NaN gives the second argument
  return hn::Div(one, hn::Add(one, exp_of_short_range(d, power)));
}

/// A quotient of polynomials, of degree 13 and 6, as Eigen has it; 1 from where it would be less than 3e-7 away.
template <class D>
HWY_INLINE hn::Vec<D> tanh(D d, hn::Vec<D> x) {
  const auto y = hn::Mul(x, x);
  auto p = hn::Set(d, -2.76076847742355e-16F);
  for (const float factor : {2.00018790482477e-13F, -8.60467152213735e-11F, 5.12229709037114e-08F,
                             1.48572235717979e-05F, 6.37261928875436e-04F, 4.89352455891786e-03F}) {
    p = hn::MulAdd(p, y, hn::Set(d, factor));
  }
  auto q = hn::Set(d, 1.19825839466702e-06F);
  for (const float factor : {1.18534705686654e-04F, 2.26843463243900e-03F, 4.89352518554385e-03F}) {
    q = hn::MulAdd(q, y, hn::Set(d, factor));
  }
  const auto is_one = hn::Gt(hn::Abs(x), hn::Set(d, 7.905F));
  return hn::IfThenElse(is_one, hn::CopySign(hn::Set(d, 1.0F), x), hn::Div(hn::Mul(x, p), q));
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#endif  // per target
