// SPDX-License-Identifier: Apache-2.0
// Which kind of work a kernel does, by its name and the op that launched it, and whether tensor cores do it. Names are
// those of cuBLAS, cuDNN, CUTLASS, Triton, ATen, XLA and their counterparts of ROCm.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/unit_rates.h"

namespace paoding::findings {

enum class KernelKind : std::uint8_t {
  other,
  product,        // of matrices, or of a matrix and a vector
  convolution,    // forward, or gradients of inputs or weights
  product_part,   // sums of split products, offsets, workspaces: launched by a product or a convolution
  attention,      // products and softmax in one
  recurrence,     // cells and layers of LSTM, GRU, RNN
  normalization,  // over batches, layers, groups
  softmax,
  reduction,
  pointwise,
  layout,  // the same values in another order: transposed, made contiguous, put side by side
  cast,    // the same values in another type
  copy,    // the same values in another place
  fill,
  gather,  // by index: rows of a table, scattered sums
  pooling,
  optimizer,  // of many tensors at once
  sort,       // sorts and scans
  random,
  collective,  // between GPUs
};
inline constexpr int kKernelKinds = static_cast<int>(KernelKind::collective) + 1;
std::string_view to_string(KernelKind kind);

/// Who multiplies in a product, as far as its name says it.
struct Arithmetic {
  enum class By : std::uint8_t { unknown, ordinary_lanes, tensor_cores };
  By by = By::unknown;
  Unit unit = Unit::none;  // of the factors; none: not known, or one of 8 bits
  bool operator==(const Arithmetic&) const = default;
};

/// By the name alone; `other` where it says nothing.
KernelKind kind_of_kernel(std::string_view kernel);
/// By an op of PyTorch or JAX ("aten::mm", "dot_general"); `other` where it is not known.
KernelKind kind_of_op(std::string_view op);
/// By the name where it says enough, else by the op that launched it. Either may be empty.
KernelKind kind_of_kernel(std::string_view kernel, std::string_view op);

/// Of a product, convolution or attention.
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
