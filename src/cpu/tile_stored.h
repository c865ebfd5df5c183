// SPDX-License-Identifier: Apache-2.0
// How one element of each dtype lies in memory, and its value for arithmetic.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "base/half.h"
#include "paoding/types.h"

namespace paoding {

template <class T>
struct StoredAsIs {
  using Type = T;
  using Compute = T;
  static T load(T a) { return a; }
  static T store(T a) { return a; }
};

template <DType>
struct Stored;
template <>
struct Stored<DType::f64> : StoredAsIs<double> {};
template <>
struct Stored<DType::f32> : StoredAsIs<float> {};
template <>
struct Stored<DType::i64> : StoredAsIs<std::int64_t> {};
template <>
struct Stored<DType::i32> : StoredAsIs<std::int32_t> {};
template <>
struct Stored<DType::boolean> : StoredAsIs<std::uint8_t> {};
template <>
struct Stored<DType::f16> {
  using Type = std::uint16_t;
  using Compute = float;
  static float load(std::uint16_t a) { return f16_to_float(a); }
  static std::uint16_t store(float a) { return float_to_f16(a); }
};
template <>
struct Stored<DType::bf16> {
  using Type = std::uint16_t;
  using Compute = float;
  static float load(std::uint16_t a) { return bf16_to_float(a); }
  static std::uint16_t store(float a) { return float_to_bf16(a); }
};
template <>
struct Stored<DType::u8> {
  using Type = std::uint8_t;
  using Compute = std::int32_t;
  static std::int32_t load(std::uint8_t a) { return a; }
  static std::uint8_t store(std::int32_t a) { return static_cast<std::uint8_t>(a); }
};

/// visitor(std::integral_constant<DType, dtype>).
template <class Visitor>
auto visit_stored(DType dtype, Visitor visitor) {
  switch (dtype) {
    case DType::f64: return visitor(std::integral_constant<DType, DType::f64>());
    case DType::f32: return visitor(std::integral_constant<DType, DType::f32>());
    case DType::f16: return visitor(std::integral_constant<DType, DType::f16>());
    case DType::bf16: return visitor(std::integral_constant<DType, DType::bf16>());
    case DType::i64: return visitor(std::integral_constant<DType, DType::i64>());
    case DType::i32: return visitor(std::integral_constant<DType, DType::i32>());
    case DType::u8: return visitor(std::integral_constant<DType, DType::u8>());
    case DType::boolean: break;
  }
  return visitor(std::integral_constant<DType, DType::boolean>());
}

/// visit_stored for routines that take floats only: no code is made for the other dtypes.
template <class Visitor>
auto visit_stored_float(DType dtype, Visitor visitor) {
  switch (dtype) {
    case DType::f64: return visitor(std::integral_constant<DType, DType::f64>());
    case DType::f16: return visitor(std::integral_constant<DType, DType::f16>());
    case DType::bf16: return visitor(std::integral_constant<DType, DType::bf16>());
    default: PD_ASSERT(dtype == DType::f32, "the op takes floats only");
  }
  return visitor(std::integral_constant<DType, DType::f32>());
}

}  // namespace paoding
