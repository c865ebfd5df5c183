// SPDX-License-Identifier: Apache-2.0
// Dtypes in the words of the buffer protocol and of DLPack.
#pragma once

#include <nanobind/ndarray.h>

#include "handles.h"
#include "paoding/types.h"

namespace paoding::python {

/// The names of a dtype's elements in NumPy and DLPack.
struct Element {
  DType dtype;
  nb::dlpack::dtype_code code;
  const char* format;  // of the buffer protocol; none for bf16
};
inline constexpr Element kElements[] = {
    {DType::f64, nb::dlpack::dtype_code::Float, "d"}, {DType::f32, nb::dlpack::dtype_code::Float, "f"},
    {DType::f16, nb::dlpack::dtype_code::Float, "e"}, {DType::bf16, nb::dlpack::dtype_code::Bfloat, nullptr},
    {DType::i64, nb::dlpack::dtype_code::Int, "q"},   {DType::i32, nb::dlpack::dtype_code::Int, "i"},
    {DType::u8, nb::dlpack::dtype_code::UInt, "B"},   {DType::boolean, nb::dlpack::dtype_code::Bool, "?"},
};
inline const Element& element_of(DType dtype) { return kElements[static_cast<std::size_t>(dtype)]; }
inline nb::dlpack::dtype dlpack_type(DType dtype) {
  return {static_cast<std::uint8_t>(element_of(dtype).code), static_cast<std::uint8_t>(8 * size_bytes(dtype)), 1};
}

}  // namespace paoding::python
