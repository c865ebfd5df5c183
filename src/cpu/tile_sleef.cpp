// SPDX-License-Identifier: Apache-2.0
// Tile routines on SLEEF's vector functions, whose errors are below 1 ulp, 1.5 for erfc, 3.5 for sin, cos and tan of
// f32. Without AVX2 and NEON the C library's functions serve, one element at a time.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/tile_sleef.cpp"
#include "hwy/foreach_target.h"
//
#include <cmath>
#include <limits>

#include "cpu/sleef_vectors.h"
#include "cpu/tile_vector-inl.h"

#undef PD_SLEEF
#if HWY_TARGET == HWY_AVX3
#define PD_SLEEF sleef_avx512
#elif HWY_TARGET == HWY_AVX2
#define PD_SLEEF sleef_avx2
#elif HWY_TARGET == HWY_NEON
#define PD_SLEEF sleef_neon
#elif HWY_TARGET != HWY_SCALAR
#error "SLEEF's functions for this instruction set are not listed here"
#endif

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {
namespace sleef {  // its Expm1 and Erf are not those of tile_math.cpp

#undef PD_UNARY
#undef PD_BINARY
#if HWY_TARGET == HWY_SCALAR
#define PD_UNARY(Name, function)            \
  struct Name {                             \
    template <class D, class V>             \
    HWY_INLINE V operator()(D, V a) const { \
      return V(std::function(a.raw));       \
    }                                       \
  };
#define PD_BINARY(Name, function)                \
  struct Name {                                  \
    template <class D, class V>                  \
    HWY_INLINE V operator()(D, V a, V b) const { \
      return V(std::function(a.raw, b.raw));     \
    }                                            \
  };
#else
#define PD_UNARY(Name, function)                       \
  struct Name {                                        \
    template <class D, class V>                        \
    HWY_INLINE V operator()(D d, V a) const {          \
      HWY_ALIGN hn::TFromD<D> as[hn::MaxLanes(d)];     \
      hn::Store(a, d, as), PD_SLEEF::function(as, as); \
      return hn::Load(d, as);                          \
    }                                                  \
  };
#define PD_BINARY(Name, function)                                               \
  struct Name {                                                                 \
    template <class D, class V>                                                 \
    HWY_INLINE V operator()(D d, V a, V b) const {                              \
      HWY_ALIGN hn::TFromD<D> as[hn::MaxLanes(d)], bs[hn::MaxLanes(d)];         \
      hn::Store(a, d, as), hn::Store(b, d, bs), PD_SLEEF::function(as, bs, as); \
      return hn::Load(d, as);                                                   \
    }                                                                           \
  };
#endif
PD_UNARY(Expm1, expm1)
PD_UNARY(SleefLog1p, log1p)
PD_UNARY(Log2, log2)
PD_UNARY(Log10, log10)
PD_UNARY(Sin, sin)
PD_UNARY(Cos, cos)
PD_UNARY(Tan, tan)
PD_UNARY(Erf, erf)
PD_UNARY(Erfc, erfc)
PD_UNARY(Asin, asin)
PD_UNARY(Acos, acos)
PD_UNARY(Atan, atan)
PD_UNARY(SleefSinh, sinh)
PD_UNARY(SleefCosh, cosh)
PD_UNARY(SleefAsinh, asinh)
PD_UNARY(SleefAcosh, acosh)
PD_UNARY(Atanh, atanh)
PD_BINARY(Atan2, atan2)
PD_BINARY(SleefPow, pow)
PD_BINARY(SleefFmod, fmod)

// The C library's function where `wrong` is set: SLEEF's result is not right there, which is rare.
template <class D, class V, class M, class T>
HWY_NOINLINE V repaired(D d, V a, V b, V y, M wrong, T (*function)(T, T)) {
  HWY_ALIGN T as[hn::MaxLanes(d)], bs[hn::MaxLanes(d)], ys[hn::MaxLanes(d)], marks[hn::MaxLanes(d)];
  hn::Store(a, d, as), hn::Store(b, d, bs), hn::Store(y, d, ys);
  hn::Store(hn::IfThenElseZero(wrong, hn::Set(d, T(1))), d, marks);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) {
    if (marks[i] != 0) ys[i] = function(as[i], bs[i]);
  }
  return hn::Load(d, ys);
}

// SLEEF's is one unit off among denormal numbers, where the result is the argument, and infinite near the largest
// number, where log(1 + a) is log(a).
struct Log1p {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a) const {
    using T = hn::TFromD<D>;
    const auto tiny = hn::Lt(hn::Abs(a), hn::Set(d, std::numeric_limits<T>::epsilon() / 4));
    const auto large = hn::Gt(a, hn::Set(d, std::numeric_limits<T>::max() * T(0x1p-24)));
    const V y = SleefLog1p()(d, hn::IfThenElse(large, hn::Mul(a, hn::Set(d, T(0x1p-64))), a));
    const V back = hn::IfThenElseZero(large, hn::Set(d, T(64 * 0.693147180559945309)));
    return hn::IfThenElse(tiny, a, hn::Add(y, back));
  }
};

// SLEEF's hyperbolic functions and their inverses are infinite where e^a or a^2 is.
template <class Sleef, auto kFunction32, auto kFunction64>
struct FarToo {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a) const {
    using T = hn::TFromD<D>;
    const V y = Sleef()(d, a);
    const auto infinite = hn::IsInf(y);
    if (HWY_LIKELY(hn::AllFalse(d, infinite))) return y;
    const auto function = [](T x, T) {
      if constexpr (sizeof(T) == 4)
        return kFunction32(x);
      else
        return kFunction64(x);
    };
    return repaired<D, V, decltype(infinite), T>(d, a, a, y, infinite, function);
  }
};
using Sinh = FarToo<SleefSinh, &::sinhf, static_cast<double (*)(double)>(&::sinh)>;
using Cosh = FarToo<SleefCosh, &::coshf, static_cast<double (*)(double)>(&::cosh)>;
using Asinh = FarToo<SleefAsinh, &::asinhf, static_cast<double (*)(double)>(&::asinh)>;
using Acosh = FarToo<SleefAcosh, &::acoshf, static_cast<double (*)(double)>(&::acosh)>;

// SLEEF's power of doubles is infinite from e^709.78271114955 on; the largest double is e^709.78271289338.
struct Pow {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    const V y = SleefPow()(d, a, b);
    if constexpr (sizeof(hn::TFromD<D>) == 8) {
      const auto infinite = hn::IsInf(y);
      if (HWY_UNLIKELY(!hn::AllFalse(d, infinite))) {
        return repaired<D, V, decltype(infinite), double>(d, a, b, y, infinite, std::pow);
      }
    }
    return y;
  }
};

// SLEEF's is NaN for denormal divisors, and wrong for quotients beyond 1e38 in f32 and 1e300 in f64.
struct Fmod {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    using T = hn::TFromD<D>;
    const V y = SleefFmod()(d, a, b), divisor = hn::Abs(b);
    const V most = hn::Mul(divisor, hn::Set(d, sizeof(T) == 4 ? T(1e37) : T(1e299)));
    const auto wrong = hn::Or(hn::Lt(divisor, hn::Set(d, std::numeric_limits<T>::min())), hn::Gt(hn::Abs(a), most));
    if (HWY_LIKELY(hn::AllFalse(d, wrong))) return y;
    return repaired<D, V, decltype(wrong), T>(d, a, b, y, wrong, std::fmod);
  }
};

struct Remainder {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    const V zero = hn::Zero(d), rest = Fmod()(d, a, b);
    const V same_sign =
        hn::IfThenElse(hn::Lt(hn::Mul(rest, hn::CopySign(hn::Set(d, 1), b)), zero), hn::Add(rest, b), rest);
    return hn::IfThenElse(hn::Eq(rest, zero), hn::CopySign(zero, b), same_sign);
  }
};

struct FloorDivide {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    const V zero = hn::Zero(d), one = hn::Set(d, 1), rest = Fmod()(d, a, b);
    const V whole = hn::Round(hn::Div(hn::Sub(a, rest), b));
    const V below = hn::IfThenElse(hn::Lt(hn::Mul(rest, hn::CopySign(one, b)), zero), hn::Sub(whole, one), whole);
    return hn::IfThenElse(hn::Eq(b, zero), hn::Div(a, b), below);
  }
};

template <class T, class Op>
TileRoutine pick(unsigned scalar_args) {
  return scalar_args == 1 ? binary<T, Op, 1> : scalar_args == 2 ? binary<T, Op, 2> : binary<T, Op, 0>;
}

template <class T>
TileRoutine find_for(Prim prim, unsigned scalar_args) {
  switch (prim) {
    case Prim::expm1: return unary<T, Expm1>;
    case Prim::log1p: return unary<T, Log1p>;
    case Prim::log2: return unary<T, Log2>;
    case Prim::log10: return unary<T, Log10>;
    case Prim::sin: return unary<T, Sin>;
    case Prim::cos: return unary<T, Cos>;
    case Prim::tan: return unary<T, Tan>;
    case Prim::erf: return unary<T, Erf>;
    case Prim::erfc: return unary<T, Erfc>;
    case Prim::asin: return unary<T, Asin>;
    case Prim::acos: return unary<T, Acos>;
    case Prim::atan: return unary<T, Atan>;
    case Prim::sinh: return unary<T, Sinh>;
    case Prim::cosh: return unary<T, Cosh>;
    case Prim::asinh: return unary<T, Asinh>;
    case Prim::acosh: return unary<T, Acosh>;
    case Prim::atanh: return unary<T, Atanh>;
    case Prim::atan2: return pick<T, Atan2>(scalar_args);
    case Prim::pow: return pick<T, Pow>(scalar_args);
    case Prim::remainder: return pick<T, Remainder>(scalar_args);
    case Prim::floor_divide: return pick<T, FloorDivide>(scalar_args);
    default: return nullptr;
  }
}

}  // namespace sleef

TileRoutine find_sleef(Prim prim, DType compute, unsigned scalar_args) {
  return compute == f32   ? sleef::find_for<float>(prim, scalar_args)
         : compute == f64 ? sleef::find_for<double>(prim, scalar_args)
                          : nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace paoding {

HWY_EXPORT(find_sleef);

TileRoutine find_sleef_routine(Prim prim, DType compute, unsigned scalar_args) {
  return HWY_DYNAMIC_DISPATCH(find_sleef)(prim, compute, scalar_args == 3 ? 0 : scalar_args);
}

}  // namespace paoding
#endif
