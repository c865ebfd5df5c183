// SPDX-License-Identifier: Apache-2.0
// Loops over a tile with Highway vectors; included once per instruction set by the tile_*.cpp files that use it.

// SSSE3, SSE4 and AVX3_DL add compile time and, for these routines, nothing over their neighbours.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif

#include "cpu/tile.h"
#include "hwy/highway.h"

#if defined(PAODING_TILE_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAODING_TILE_VECTOR_INL_H_
#undef PAODING_TILE_VECTOR_INL_H_
#else
#define PAODING_TILE_VECTOR_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The first n < Lanes(d) elements, without touching the ones after them, which may be no memory of ours.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_first(D d, const T* from, std::size_t n) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  return hn::MaskedLoad(hn::FirstN(d, n), d, from);
#else
  HWY_ALIGN T lanes[hn::MaxLanes(d)] = {};
  for (std::size_t i = 0; i < n; ++i) lanes[i] = from[i];
  return hn::Load(d, lanes);
#endif
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void store_first(hn::Vec<D> v, D d, T* to, std::size_t n) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  hn::BlendedStore(v, hn::FirstN(d, n), d, to);
#else
  HWY_ALIGN T lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  for (std::size_t i = 0; i < n; ++i) to[i] = lanes[i];
#endif
}

template <class T, class Op>
void unary(const Instruction& self, char* const* slots, const TileShape& shape) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d), n = static_cast<std::size_t>(element_count(self, shape));
  T* out = reinterpret_cast<T*>(slots[self.out]);
  const T* a = reinterpret_cast<const T*>(slots[self.a]);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(Op()(d, hn::LoadU(d, a + i)), d, out + i);
  if (i < n) store_first(Op()(d, load_first(d, a + i, n - i)), d, out + i, n - i);
}

// kScalarArgs: 0 both are tiles, 1 the first is one element, 2 the second is.
template <class T, class Op, unsigned kScalarArgs>
void binary(const Instruction& self, char* const* slots, const TileShape& shape) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d), n = static_cast<std::size_t>(element_count(self, shape));
  T* out = reinterpret_cast<T*>(slots[self.out]);
  const T* a = reinterpret_cast<const T*>(slots[self.a]);
  const T* b = reinterpret_cast<const T*>(slots[self.b]);
  const auto one_a = hn::Set(d, a[0]), one_b = hn::Set(d, b[0]);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto va = kScalarArgs == 1 ? one_a : hn::LoadU(d, a + i);
    const auto vb = kScalarArgs == 2 ? one_b : hn::LoadU(d, b + i);
    hn::StoreU(Op()(d, va, vb), d, out + i);
  }
  if (i < n) {
    const auto va = kScalarArgs == 1 ? one_a : load_first(d, a + i, n - i);
    const auto vb = kScalarArgs == 2 ? one_b : load_first(d, b + i, n - i);
    store_first(Op()(d, va, vb), d, out + i, n - i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#endif
