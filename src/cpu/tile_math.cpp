// SPDX-License-Identifier: Apache-2.0
// Tile routines of the functions that models spend their time in: exp, expm1, tanh, sigmoid and erf of f32, on one
// reduction that needs no conversions and no branches, about 1 to 2 ulp from the truth; log of both and the rest of f64
// on Highway's polynomials, a few ulp from it, which leave NaN, infinities and the ends of the range to the caller.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/tile_math.cpp"
#include "hwy/foreach_target.h"
//
#include <limits>

#include "base/clamp-inl.h"
#include "cpu/exp-inl.h"
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
    if constexpr (sizeof(hn::TFromD<D>) == 4) {
      return exp_f32(d, x);
    } else {
      const V last = hn::Set(d, 709.782712893384);  // finite
      V y = hn::Exp(d, hn::Min(x, last));
      y = hn::IfThenElse(hn::Gt(x, last), hn::Set(d, kInfinity<double>), y);
      return hn::IfThenElse(hn::Eq(x, x), y, x);
    }
  }
};

// 2^n (e^r - 1) + (2^n - 1), with half of each so that 2^128 is met.
struct Expm1 {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    const hn::RebindToSigned<D> di;
    const Reduced reduced = reduce(d, least(hn::Set(d, 89.0f), greatest(hn::Set(d, -30.0f), x)));
    const V scale = power_of_two(d, hn::Sub(reduced.n, hn::Set(di, 1)));
    const V y = hn::MulAdd(scale, reduced.power, hn::Sub(scale, hn::Set(d, 0.5f)));
    return hn::CopySign(hn::Add(y, y), x);  // -0 stays
  }
};

// Near 0 an odd polynomial, farther 1 - e^(-x q(x)); both fitted for the relative error of the result, below 2e-8.
struct Erf {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    const V a = least(hn::Set(d, 4.0f), hn::Abs(x)), s = hn::Mul(x, x);
    V p = hn::MulAdd(hn::Set(d, -5.976896500e-04f), s, hn::Set(d, 4.990980495e-03f));
    p = hn::MulAdd(p, s, hn::Set(d, -2.676556632e-02f));
    p = hn::MulAdd(p, s, hn::Set(d, 1.128180251e-01f));
    p = hn::MulAdd(p, s, hn::Set(d, -3.761249483e-01f));
    p = hn::MulAdd(p, s, hn::Set(d, 1.283791512e-01f));
    const V near = hn::MulAdd(p, x, x);
    V q = hn::MulAdd(hn::Set(d, -1.123647417e-05f), a, hn::Set(d, 3.228509740e-04f));
    q = hn::MulAdd(q, a, hn::Set(d, -3.642633557e-03f));
    q = hn::MulAdd(q, a, hn::Set(d, 2.376239933e-02f));
    q = hn::MulAdd(q, a, hn::Set(d, -1.062372327e-01f));
    q = hn::MulAdd(q, a, hn::Set(d, -6.351511478e-01f));
    q = hn::MulAdd(q, a, hn::Set(d, -1.286485344e-01f));
    const Reduced reduced = reduce(d, hn::MulAdd(q, a, hn::Neg(a)));
    const V scale = power_of_two(d, reduced.n);
    const V far = hn::Sub(hn::Sub(hn::Set(d, 1.0f), scale), hn::Mul(scale, reduced.power));
    return hn::IfThenElse(hn::Gt(a, hn::Set(d, 0.92f)), hn::CopySign(far, x), near);
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
    if constexpr (sizeof(hn::TFromD<D>) == 4) {
      const V minus_two = hn::Set(d, -2.0f);
      const Reduced reduced = reduce(d, hn::Mul(minus_two, least(hn::Set(d, 10.0f), hn::Abs(x))));
      const V scale = power_of_two(d, reduced.n), one = hn::Set(d, 1.0f);
      const V t = hn::NegMulAdd(scale, reduced.power, hn::Sub(one, scale));  // 1 - e^(-2|x|)
      return hn::CopySign(hn::Div(t, hn::Sub(hn::Neg(minus_two), t)), x);
    } else {
      const V magnitude = hn::Min(hn::Abs(x), hn::Set(d, 30.0));
      const V t = hn::Expm1(d, hn::Mul(hn::Set(d, -2.0), magnitude));
      const V y = hn::CopySign(hn::Div(hn::Neg(t), hn::Add(t, hn::Set(d, 2.0))), x);
      return hn::IfThenElse(hn::Eq(x, x), y, x);
    }
  }
};

// With e = e^-|x|: 1 / (1 + e) right of 0 and e / (1 + e) left of it, which keeps all digits of small results.
struct Sigmoid {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    const V one = hn::Set(d, 1), negative = hn::Neg(hn::Abs(x));
    V e;
    if constexpr (sizeof(hn::TFromD<D>) == 4) {
      e = exp_f32(d, negative);
    } else {
      e = hn::Exp(d, negative);
    }
    const V y = hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
    return hn::IfThenElse(hn::Eq(x, x), y, x);
  }
};

template <class T>
TileRoutine find_math(Prim prim) {
  if constexpr (sizeof(T) == 4) {
    if (prim == Prim::expm1) return unary<T, Expm1>;
    if (prim == Prim::erf) return unary<T, Erf>;
  }
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
