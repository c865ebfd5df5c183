// SPDX-License-Identifier: Apache-2.0
// The lesser and the greater of two vectors, for each instruction set: the second argument where either is no number,
// as x86's instructions have it. NEON's give the number, and Highway's fallback either.
#if defined(PAODING_CLAMP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAODING_CLAMP_INL_H_
#undef PAODING_CLAMP_INL_H_
#else
#define PAODING_CLAMP_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {

template <class V>
HWY_INLINE V least(V a, V b) {
#if HWY_TARGET == HWY_SCALAR
  return V(a.raw < b.raw ? a.raw : b.raw);
#elif HWY_TARGET == HWY_NEON
  return hwy::HWY_NAMESPACE::IfThenElse(hwy::HWY_NAMESPACE::Lt(a, b), a, b);
#else
  return hwy::HWY_NAMESPACE::Min(a, b);
#endif
}
template <class V>
HWY_INLINE V greatest(V a, V b) {
#if HWY_TARGET == HWY_SCALAR
  return V(a.raw > b.raw ? a.raw : b.raw);
#elif HWY_TARGET == HWY_NEON
  return hwy::HWY_NAMESPACE::IfThenElse(hwy::HWY_NAMESPACE::Gt(a, b), a, b);
#else
  return hwy::HWY_NAMESPACE::Max(a, b);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#endif  // per target
