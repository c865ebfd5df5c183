// SPDX-License-Identifier: Apache-2.0
// Vectors of f32 that lie in memory as f32 or as bf16, for each instruction set.
#if defined(PAODING_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAODING_ELEMENTS_INL_H_
#undef PAODING_ELEMENTS_INL_H_
#else
#define PAODING_ELEMENTS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Half = std::uint16_t;  // the bits of a bf16

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const Half* from) {
  const hn::RebindToUnsigned<D> bits;
  const hn::Rebind<Half, D> halves;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(bits, hn::LoadU(halves, from))));
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> value, float* to) {
  hn::StoreU(value, d, to);
}
// To the nearest, of two to the even one.
template <class D>
HWY_INLINE void store(D /*d*/, hn::Vec<D> value, Half* to) {
  const hn::RebindToUnsigned<D> bits;
  const hn::RebindToSigned<D> whole;
  const hn::Rebind<Half, D> halves;
  const auto raw = hn::BitCast(bits, value);
  const auto odd = hn::And(hn::ShiftRight<16>(raw), hn::Set(bits, 1));
  const auto rounded = hn::Add(raw, hn::Add(odd, hn::Set(bits, 0x7fff)));
  const auto kept =
      hn::IfThenElse(hn::RebindMask(bits, hn::IsNaN(value)), hn::Or(raw, hn::Set(bits, 0x400000)), rounded);
  hn::StoreU(hn::DemoteTo(halves, hn::BitCast(whole, hn::ShiftRight<16>(kept))), halves, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#endif  // per target
