// SPDX-License-Identifier: Apache-2.0
// Vectors of f32 that lie in memory as f32, bf16 or f16, for each instruction set; rounded as base/half.h rounds.
#if defined(PAODING_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAODING_ELEMENTS_INL_H_
#undef PAODING_ELEMENTS_INL_H_
#else
#define PAODING_ELEMENTS_INL_H_
#endif

#include <cstdint>

#include "base/half.h"
#include "hwy/highway.h"
#include "paoding/types.h"

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

// Lane by lane where Highway would truncate, or where the CPU may have no such conversion.
template <class D>
HWY_INLINE hn::Vec<D> load_f16(D d, const std::uint16_t* from) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  const hn::Rebind<hwy::float16_t, D> halves;
  return hn::PromoteTo(d, hn::LoadU(halves, reinterpret_cast<const hwy::float16_t*>(from)));
#else
  HWY_ALIGN float lanes[hn::MaxLanes(D())];
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = f16_to_float(from[i]);
  return hn::Load(d, lanes);
#endif
}
template <class D>
HWY_INLINE void store_f16(D d, hn::Vec<D> value, std::uint16_t* to) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  const hn::Rebind<hwy::float16_t, D> halves;
  hn::StoreU(hn::DemoteTo(halves, value), halves, reinterpret_cast<hwy::float16_t*>(to));
#else
  HWY_ALIGN float lanes[hn::MaxLanes(D())];
  hn::Store(value, d, lanes);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) to[i] = float_to_f16(lanes[i]);
#endif
}

/// The same by dtype: f32, bf16 or f16.
template <DType>
struct LiesAs {
  using Type = Half;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Half* from) {
    return HWY_NAMESPACE::load(d, from);
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> value, Half* to) {
    HWY_NAMESPACE::store(d, value, to);
  }
};
template <>
struct LiesAs<DType::f32> {
  using Type = float;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const float* from) {
    return hn::LoadU(d, from);
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> value, float* to) {
    hn::StoreU(value, d, to);
  }
};
template <>
struct LiesAs<DType::f16> {
  using Type = std::uint16_t;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::uint16_t* from) {
    return load_f16(d, from);
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> value, std::uint16_t* to) {
    store_f16(d, value, to);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#endif  // per target
