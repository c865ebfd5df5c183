// SPDX-License-Identifier: Apache-2.0
// Which kind of work a kernel does, by its name and the op that launched it. Names are those of cuBLAS, cuDNN, CUTLASS,
// Triton, ATen, XLA and their counterparts of ROCm.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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

/// The kind that a kernel's name says; `other` where it says nothing.
KernelKind kind_of_kernel(std::string_view kernel);
/// The kind of an op of PyTorch or JAX ("aten::mm", "dot_general"); `other` where it is not known.
KernelKind kind_of_op(std::string_view op);
/// The name decides where it says enough, else the op that launched it. Either may be empty.
KernelKind kind_of_kernel(std::string_view kernel, std::string_view op);

/// The function of a kernel with its templates and without its parameters; the same in small letters.
std::string_view without_parameters(std::string_view kernel);
std::string kernel_word(std::string_view kernel);

}  // namespace paoding::findings
