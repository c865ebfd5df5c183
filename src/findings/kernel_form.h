// SPDX-License-Identifier: Apache-2.0
// How a kernel computes, by its name: on tensor cores or ordinary lanes, in which type, how many elements a thread
// takes.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/unit_rates.h"

namespace paoding::findings {

/// Who multiplies in a product, as far as its name says it.
struct Arithmetic {
  enum class By : std::uint8_t { unknown, ordinary_lanes, tensor_cores };
  By by = By::unknown;
  Unit unit = Unit::none;  // of the factors; none: not known, or one of 8 bits
  bool operator==(const Arithmetic&) const = default;
};

/// For products, convolutions and attention.
Arithmetic arithmetic_of(std::string_view kernel);

/// The bytes of an element by the first type among a kernel's template arguments, 4 of "float"; 0 where none is known.
int element_bytes(std::string_view kernel);

/// How many elements a thread of an ATen kernel takes (4 of "vectorized_elementwise_kernel<4, ..>"), and how many
/// arrays of that many it reads and writes; 0 where the name does not say it.
struct ElementwiseForm {
  int elements_of_thread = 0;
  int arrays = 0;
};
ElementwiseForm elementwise_form(std::string_view kernel);

/// Whether every row of the factors must begin at a multiple of this many elements for the kernel: 1 of
/// "cutlass_80_tensorop_s1688gemm_128x64_32x6_nt_align1"; 0 where the name does not say it.
int alignment_of(std::string_view kernel);

}  // namespace paoding::findings
