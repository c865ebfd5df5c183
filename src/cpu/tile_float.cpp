// SPDX-License-Identifier: Apache-2.0
// Tile routines: arithmetic on f32 and f64, and comparison and select on f32.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/tile_float.cpp"
#include "hwy/foreach_target.h"
//
#include <cmath>

#include "cpu/tile_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {

// clang-format off
struct Add { template <class D, class V> HWY_INLINE V operator()(D, V a, V b) const { return hn::Add(a, b); } };
struct Sub { template <class D, class V> HWY_INLINE V operator()(D, V a, V b) const { return hn::Sub(a, b); } };
struct Mul { template <class D, class V> HWY_INLINE V operator()(D, V a, V b) const { return hn::Mul(a, b); } };
struct Div { template <class D, class V> HWY_INLINE V operator()(D, V a, V b) const { return hn::Div(a, b); } };
struct Neg { template <class D, class V> HWY_INLINE V operator()(D, V a) const { return hn::Neg(a); } };
struct Abs { template <class D, class V> HWY_INLINE V operator()(D, V a) const { return hn::Abs(a); } };
#if HWY_TARGET == HWY_SCALAR  // Highway's own give a zero the wrong sign there
struct Floor { template <class D, class V> HWY_INLINE V operator()(D, V a) const { return V(std::floor(a.raw)); } };
struct Ceil { template <class D, class V> HWY_INLINE V operator()(D, V a) const { return V(std::ceil(a.raw)); } };
#else
struct Floor { template <class D, class V> HWY_INLINE V operator()(D, V a) const { return hn::Floor(a); } };
struct Ceil { template <class D, class V> HWY_INLINE V operator()(D, V a) const { return hn::Ceil(a); } };
#endif
struct Round { template <class D, class V> HWY_INLINE V operator()(D, V a) const { return hn::Round(a); } };
struct Trunc { template <class D, class V> HWY_INLINE V operator()(D, V a) const { return hn::Trunc(a); } };
struct Sqrt { template <class D, class V> HWY_INLINE V operator()(D, V a) const { return hn::Sqrt(a); } };
// clang-format on

struct Rsqrt {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a) const {
    return hn::Div(hn::Set(d, 1), hn::Sqrt(a));
  }
};
// The chosen side of Lt is b when either is NaN, so only a NaN in a has to be looked for.
struct Minimum {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
  }
};
struct Maximum {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
  }
};

// clang-format off
struct Less { template <class V> HWY_INLINE auto operator()(V a, V b) const { return hn::Lt(a, b); }
              static bool one(float a, float b) { return a < b; } };
struct LessEqual { template <class V> HWY_INLINE auto operator()(V a, V b) const { return hn::Le(a, b); }
                   static bool one(float a, float b) { return a <= b; } };
struct Equal { template <class V> HWY_INLINE auto operator()(V a, V b) const { return hn::Eq(a, b); }
               static bool one(float a, float b) { return a == b; } };
// clang-format on

template <class Op, unsigned kScalarArgs>
void compare(const Instruction& self, char* const* slots, const TileShape& shape) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<std::uint8_t, decltype(d)> bytes;
  const std::size_t lanes = hn::Lanes(d), n = static_cast<std::size_t>(element_count(self, shape));
  auto* out = reinterpret_cast<std::uint8_t*>(slots[self.out]);
  const auto* a = reinterpret_cast<const float*>(slots[self.a]);
  const auto* b = reinterpret_cast<const float*>(slots[self.b]);
  const auto one_a = hn::Set(d, a[0]), one_b = hn::Set(d, b[0]);
  const auto one = hn::Set(di, 1);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto va = kScalarArgs == 1 ? one_a : hn::LoadU(d, a + i);
    const auto vb = kScalarArgs == 2 ? one_b : hn::LoadU(d, b + i);
    const auto truth = hn::IfThenElseZero(hn::RebindMask(di, Op()(va, vb)), one);
    hn::StoreU(hn::DemoteTo(bytes, truth), bytes, out + i);
  }
  for (; i < n; ++i) out[i] = Op::one(a[kScalarArgs == 1 ? 0 : i], b[kScalarArgs == 2 ? 0 : i]);
}

// kScalarArgs: bit 1 for the value chosen when true, bit 2 for the other.
template <unsigned kScalarArgs>
void select(const Instruction& self, char* const* slots, const TileShape& shape) {
  constexpr bool kOneB = kScalarArgs & 2, kOneC = kScalarArgs & 4;
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<std::uint8_t, decltype(d)> bytes;
  const std::size_t lanes = hn::Lanes(d), n = static_cast<std::size_t>(element_count(self, shape));
  auto* out = reinterpret_cast<float*>(slots[self.out]);
  const auto* a = reinterpret_cast<const std::uint8_t*>(slots[self.a]);
  const auto* b = reinterpret_cast<const float*>(slots[self.b]);
  const auto* c = reinterpret_cast<const float*>(slots[self.c]);
  const auto one_b = hn::Set(d, b[0]), one_c = hn::Set(d, c[0]);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto truth = hn::PromoteTo(di, hn::LoadU(bytes, a + i));
    const auto chosen = hn::RebindMask(d, hn::Gt(truth, hn::Zero(di)));
    const auto vb = kOneB ? one_b : hn::LoadU(d, b + i);
    const auto vc = kOneC ? one_c : hn::LoadU(d, c + i);
    hn::StoreU(hn::IfThenElse(chosen, vb, vc), d, out + i);
  }
  for (; i < n; ++i) out[i] = a[i] ? b[kOneB ? 0 : i] : c[kOneC ? 0 : i];
}

template <class T, class Op>
TileRoutine pick(unsigned scalar_args) {
  return scalar_args == 1 ? binary<T, Op, 1> : scalar_args == 2 ? binary<T, Op, 2> : binary<T, Op, 0>;
}
template <class Op>
TileRoutine pick_compare(unsigned scalar_args) {
  return scalar_args == 1 ? compare<Op, 1> : scalar_args == 2 ? compare<Op, 2> : compare<Op, 0>;
}

template <class T>
TileRoutine find_arithmetic(Prim prim, unsigned scalar_args) {
  switch (prim) {
    case Prim::add: return pick<T, Add>(scalar_args);
    case Prim::sub: return pick<T, Sub>(scalar_args);
    case Prim::mul: return pick<T, Mul>(scalar_args);
    case Prim::div: return pick<T, Div>(scalar_args);
    case Prim::minimum: return pick<T, Minimum>(scalar_args);
    case Prim::maximum: return pick<T, Maximum>(scalar_args);
    case Prim::neg: return unary<T, Neg>;
    case Prim::abs: return unary<T, Abs>;
    case Prim::floor: return unary<T, Floor>;
    case Prim::ceil: return unary<T, Ceil>;
    case Prim::round: return unary<T, Round>;
    case Prim::trunc: return unary<T, Trunc>;
    case Prim::sqrt: return unary<T, Sqrt>;
    case Prim::rsqrt: return unary<T, Rsqrt>;
    default: return nullptr;
  }
}

TileRoutine find(Prim prim, DType compute, unsigned scalar_args) {
  if (scalar_args == 3 && prim != Prim::select) scalar_args = 0;  // one element each: an ordinary tile of one
  if (compute == f64) return find_arithmetic<double>(prim, scalar_args);
  if (compute != f32) return nullptr;
  switch (prim) {
    case Prim::less: return pick_compare<Less>(scalar_args);
    case Prim::less_equal: return pick_compare<LessEqual>(scalar_args);
    case Prim::equal: return pick_compare<Equal>(scalar_args);
    case Prim::select:
      return (scalar_args & 6) == 6 ? select<6> : scalar_args & 4 ? select<4> : scalar_args & 2 ? select<2> : select<0>;
    default: return find_arithmetic<float>(prim, scalar_args);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace paoding {

HWY_EXPORT(find);

TileRoutine find_float_routine(Prim prim, DType compute, unsigned scalar_args) {
  return HWY_DYNAMIC_DISPATCH(find)(prim, compute, scalar_args);
}

TileRoutine find_routine(Prim prim, DType compute, unsigned scalar_args) {
  if (prim == Prim::random_bits) return compute == i64 ? find_random_routine(scalar_args) : nullptr;
  if (const TileRoutine found = find_float_routine(prim, compute, scalar_args)) return found;
  if (const TileRoutine found = find_math_routine(prim, compute)) return found;
  if (const TileRoutine found = find_sleef_routine(prim, compute, scalar_args)) return found;
  return find_plain_routine(prim, compute, scalar_args);
}

}  // namespace paoding
#endif
