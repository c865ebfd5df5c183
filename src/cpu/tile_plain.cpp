// SPDX-License-Identifier: Apache-2.0
// Tile routines as plain loops: integers, bools, conversions, and the part of f64 that is not arithmetic. Never the hot
// part.
#include <bit>

#include "base/half.h"
#include "base/to_odd.h"
#include "cpu/tile.h"

namespace paoding {
namespace {

using Byte = std::uint8_t;  // a bool: 0 or 1

// Integers wrap around, as they do in CUDA; divided by 0 they give 0.
template <class T>
using Wrapping = std::conditional_t<std::is_same_v<T, std::int32_t>, std::uint32_t, std::uint64_t>;

template <class Out, class In, class F, bool kOneA, bool kOneB>
void loop(const Instruction& self, char* const* slots, const TileShape& shape) {
  Out* out = reinterpret_cast<Out*>(slots[self.out]);
  const In* a = reinterpret_cast<const In*>(slots[self.a]);
  const In* b = reinterpret_cast<const In*>(slots[self.b]);
  const std::int64_t n = element_count(self, shape);
  for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(F()(a[kOneA ? 0 : i], b[kOneB ? 0 : i]));
}

template <class Out, class In, class F>
TileRoutine pick(unsigned scalar_args) {
  return scalar_args == 1   ? loop<Out, In, F, true, false>
         : scalar_args == 2 ? loop<Out, In, F, false, true>
                            : loop<Out, In, F, false, false>;
}

// Unary routines ignore b, whose slot is any valid pointer.
template <class T, class F>
TileRoutine pick_unary() {
  return loop<T, T, F, false, true>;
}

// The quotient is rounded down and the remainder has b's sign. -1 apart, because the least integer has no opposite.
template <class T>
struct FloorDivide {
  T operator()(T a, T b) const {
    if (b == 0) return 0;
    if (b == -1) return T(-Wrapping<T>(a));
    return T(a / b - (a % b != 0 && (a < 0) != (b < 0)));
  }
};
template <class T>
struct Remainder {
  T operator()(T a, T b) const {
    if (b == 0 || b == -1) return 0;
    const T rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? T(rest + b) : rest;
  }
};

// Dividing by a power of two is a shift, which random numbers and index arithmetic live on.
template <class T, bool kRemainder>
void divide_by_one(const Instruction& self, char* const* slots, const TileShape& shape) {
  using F = std::conditional_t<kRemainder, Remainder<T>, FloorDivide<T>>;
  T* out = reinterpret_cast<T*>(slots[self.out]);
  const T* a = reinterpret_cast<const T*>(slots[self.a]);
  const T b = *reinterpret_cast<const T*>(slots[self.b]);
  const std::int64_t n = element_count(self, shape);
  if (b > 0 && (b & (b - 1)) == 0) {
    const int shift = std::countr_zero(Wrapping<T>(b));
    for (std::int64_t i = 0; i < n; ++i) out[i] = kRemainder ? T(a[i] & (b - 1)) : T(a[i] >> shift);
  } else {
    for (std::int64_t i = 0; i < n; ++i) out[i] = F()(a[i], b);
  }
}

template <class T, bool kOneB, bool kOneC>
void select(const Instruction& self, char* const* slots, const TileShape& shape) {
  T* out = reinterpret_cast<T*>(slots[self.out]);
  const Byte* a = reinterpret_cast<const Byte*>(slots[self.a]);
  const T* b = reinterpret_cast<const T*>(slots[self.b]);
  const T* c = reinterpret_cast<const T*>(slots[self.c]);
  const std::int64_t n = element_count(self, shape);
  for (std::int64_t i = 0; i < n; ++i) out[i] = a[i] ? b[kOneB ? 0 : i] : c[kOneC ? 0 : i];
}

template <class T>
TileRoutine pick_select(unsigned scalar_args) {
  const bool one_b = scalar_args & 2, one_c = scalar_args & 4;
  return one_b ? (one_c ? select<T, true, true> : select<T, true, false>)
               : (one_c ? select<T, false, true> : select<T, false, false>);
}

// clang-format off
template <class T> struct Add { T operator()(T a, T b) const { return T(Wrapping<T>(a) + Wrapping<T>(b)); } };
template <class T> struct Sub { T operator()(T a, T b) const { return T(Wrapping<T>(a) - Wrapping<T>(b)); } };
template <class T> struct Mul { T operator()(T a, T b) const { return T(Wrapping<T>(a) * Wrapping<T>(b)); } };
template <class T> struct Neg { T operator()(T a, T) const { return T(-Wrapping<T>(a)); } };
template <class T> struct Abs { T operator()(T a, T) const { return a < 0 ? T(-Wrapping<T>(a)) : a; } };
template <class T> struct Minimum { T operator()(T a, T b) const { return a < b ? a : b; } };
template <class T> struct Maximum { T operator()(T a, T b) const { return a > b ? a : b; } };
template <class T> struct BitwiseAnd { T operator()(T a, T b) const { return a & b; } };
template <class T> struct Less { bool operator()(T a, T b) const { return a < b; } };
template <class T> struct LessEqual { bool operator()(T a, T b) const { return a <= b; } };
template <class T> struct Equal { bool operator()(T a, T b) const { return a == b; } };
struct And { Byte operator()(Byte a, Byte b) const { return a & b; } };
struct Or { Byte operator()(Byte a, Byte b) const { return a | b; } };
struct Not { Byte operator()(Byte a, Byte) const { return a ^ 1; } };
// clang-format on

template <class T>
TileRoutine find_compare(Prim prim, unsigned scalar_args) {
  switch (prim) {
    case Prim::less: return pick<Byte, T, Less<T>>(scalar_args);
    case Prim::less_equal: return pick<Byte, T, LessEqual<T>>(scalar_args);
    case Prim::equal: return pick<Byte, T, Equal<T>>(scalar_args);
    case Prim::select: return pick_select<T>(scalar_args);
    default: return nullptr;
  }
}

template <class T>
TileRoutine find_integer(Prim prim, unsigned scalar_args) {
  switch (prim) {
    case Prim::add: return pick<T, T, Add<T>>(scalar_args);
    case Prim::sub: return pick<T, T, Sub<T>>(scalar_args);
    case Prim::mul: return pick<T, T, Mul<T>>(scalar_args);
    case Prim::floor_divide:
      return scalar_args == 2 ? divide_by_one<T, false> : pick<T, T, FloorDivide<T>>(scalar_args);
    case Prim::remainder: return scalar_args == 2 ? divide_by_one<T, true> : pick<T, T, Remainder<T>>(scalar_args);
    case Prim::bitwise_and: return pick<T, T, BitwiseAnd<T>>(scalar_args);
    case Prim::minimum: return pick<T, T, Minimum<T>>(scalar_args);
    case Prim::maximum: return pick<T, T, Maximum<T>>(scalar_args);
    case Prim::neg: return pick_unary<T, Neg<T>>();
    case Prim::abs: return pick_unary<T, Abs<T>>();
    default: return find_compare<T>(prim, scalar_args);
  }
}

TileRoutine find_bool(Prim prim, unsigned scalar_args) {
  switch (prim) {
    case Prim::logical_and: return pick<Byte, Byte, And>(scalar_args);
    case Prim::logical_or: return pick<Byte, Byte, Or>(scalar_args);
    case Prim::logical_not: return pick_unary<Byte, Not>();
    default: return find_compare<Byte>(prim, scalar_args);
  }
}

// ---- convert ---------------------------------------------------------------

template <class To>
struct Cast {
  template <class From>
  To operator()(From a) const {
    return static_cast<To>(a);
  }
};
struct Truth {
  template <class From>
  Byte operator()(From a) const {
    return a != From(0);
  }
};
struct RoundF16 {
  template <class From>
  float operator()(From a) const {
    return f16_to_float(float_to_f16(to_odd(a)));
  }
};
struct RoundBf16 {
  template <class From>
  float operator()(From a) const {
    return bf16_to_float(float_to_bf16(to_odd(a)));
  }
};
struct WrapU8 {
  template <class From>
  std::int32_t operator()(From a) const {
    return static_cast<Byte>(static_cast<std::int32_t>(a));
  }
};

template <class From, class To, class F>
void convert_tile(const Instruction& self, char* const* slots, const TileShape& shape) {
  To* out = reinterpret_cast<To*>(slots[self.out]);
  const From* a = reinterpret_cast<const From*>(slots[self.a]);
  const std::int64_t n = element_count(self, shape);
  for (std::int64_t i = 0; i < n; ++i) out[i] = F()(a[i]);
}

template <class From>
TileRoutine convert_from(DType to) {
  switch (to) {
    case DType::f64: return convert_tile<From, double, Cast<double>>;
    case DType::f32: return convert_tile<From, float, Cast<float>>;
    case DType::f16: return convert_tile<From, float, RoundF16>;
    case DType::bf16: return convert_tile<From, float, RoundBf16>;
    case DType::i64: return convert_tile<From, std::int64_t, Cast<std::int64_t>>;
    case DType::i32: return convert_tile<From, std::int32_t, Cast<std::int32_t>>;
    case DType::u8: return convert_tile<From, std::int32_t, WrapU8>;
    case DType::boolean: return convert_tile<From, Byte, Truth>;
  }
  return nullptr;
}

}  // namespace

TileRoutine find_plain_routine(Prim prim, DType compute, unsigned scalar_args) {
  switch (compute) {
    case DType::f64: return find_compare<double>(prim, scalar_args);
    case DType::i64: return find_integer<std::int64_t>(prim, scalar_args);
    case DType::i32: return find_integer<std::int32_t>(prim, scalar_args);
    case DType::boolean: return find_bool(prim, scalar_args);
    default: return nullptr;
  }
}

TileRoutine find_convert(DType from, DType to) {
  switch (from) {
    case DType::f64: return convert_from<double>(to);
    case DType::f32: return convert_from<float>(to);
    case DType::i64: return convert_from<std::int64_t>(to);
    case DType::i32: return convert_from<std::int32_t>(to);
    case DType::boolean: return convert_from<Byte>(to);
    default: return nullptr;
  }
}

}  // namespace paoding
