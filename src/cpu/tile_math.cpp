// SPDX-License-Identifier: Apache-2.0
// Tile routines: exp, log, tanh and sigmoid of f32 and f64, on Highway's polynomials, which are a few ulp from the
// truth but leave NaN, infinities and the ends of the range to the caller.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/tile_math.cpp"
#include "hwy/foreach_target.h"
//
#include <limits>

#include "cpu/tile_vector-inl.h"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();

struct Exp {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    using T = hn::TFromD<D>;
    const V last = hn::Set(d, static_cast<T>(sizeof(T) == 4 ? 88.72283935546875 : 709.782712893384));  // finite
    V y = hn::Exp(d, hn::Min(x, last));
    y = hn::IfThenElse(hn::Gt(x, last), hn::Set(d, kInfinity<T>), y);
    return hn::IfThenElse(hn::Eq(x, x), y, x);
  }
};

struct Log {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    using T = hn::TFromD<D>;
    const V zero = hn::Zero(d), infinity = hn::Set(d, kInfinity<T>);
    V y = hn::Log(d, x);
    y = hn::IfThenElse(hn::Eq(x, infinity), infinity, y);
    y = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), y);
    return hn::IfThenElse(hn::Ge(x, zero), y, hn::Set(d, std::numeric_limits<T>::quiet_NaN()));
  }
};

// -t / (t + 2) with t = e^(-2|x|) - 1: nothing cancels near 0, nothing overflows far from it.
struct Tanh {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    using T = hn::TFromD<D>;
    const V magnitude = hn::Min(hn::Abs(x), hn::Set(d, static_cast<T>(30)));
    const V t = hn::Expm1(d, hn::Mul(hn::Set(d, -2), magnitude));
    const V y = hn::CopySign(hn::Div(hn::Neg(t), hn::Add(t, hn::Set(d, 2))), x);
    return hn::IfThenElse(hn::Eq(x, x), y, x);
  }
};

// With e = e^-|x|: 1 / (1 + e) right of 0 and e / (1 + e) left of it, which keeps all digits of small results.
struct Sigmoid {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    const V one = hn::Set(d, 1);
    const V e = hn::Exp(d, hn::Neg(hn::Abs(x)));
    const V y = hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
    return hn::IfThenElse(hn::Eq(x, x), y, x);
  }
};

template <class T>
TileRoutine find_math(Prim prim) {
  switch (prim) {
    case Prim::exp: return unary<T, Exp>;
    case Prim::log: return unary<T, Log>;
    case Prim::tanh: return unary<T, Tanh>;
    case Prim::sigmoid: return unary<T, Sigmoid>;
    default: return nullptr;
  }
}

TileRoutine find(Prim prim, DType compute) {
  return compute == f32 ? find_math<float>(prim) : compute == f64 ? find_math<double>(prim) : nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace paoding {

HWY_EXPORT(find);

TileRoutine find_math_routine(Prim prim, DType compute) { return HWY_DYNAMIC_DISPATCH(find)(prim, compute); }

}  // namespace paoding
#endif
