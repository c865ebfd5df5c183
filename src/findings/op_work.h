// SPDX-License-Identifier: Apache-2.0
// The bytes that an op must move and the operations that it must do, from the shapes and types of its inputs as traces
// of PyTorch and JAX have them. Unknown numbers are 0: no rule may guess them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/unit_rates.h"

namespace paoding::findings {

/// An input or result of an op. Numbers and lists of numbers have no type of elements.
struct OperandShape {
  std::vector<std::int64_t> extents;
  int element_bytes = 0;      // 0: not known, or no tensor
  Unit unit = Unit::none;     // that multiplies such values exactly: f32 of float, half of both types of 16 bits
  bool is_tensor = false;     // it has extents, or a type that only tensors have
  std::size_t inner = kLast;  // the axis whose elements lie side by side, where the text says it
  static constexpr std::size_t kLast = ~std::size_t{0};
  std::int64_t elements() const;
  std::int64_t bytes() const { return elements() * element_bytes; }
  std::int64_t apart = 0;  // elements from the beginning of a row to the next, where the text says it
  /// Elements that lie side by side, and from the beginning of such a row to the next.
  std::int64_t row() const;
  std::int64_t row_apart() const { return apart > 0 ? apart : row(); }
};

/// Kineto's "[[8, 16], [16, 4], []]" with types "[\"float\", \"float\", \"Scalar\"]", which may be missing; of lists of
/// tensors each stands for itself. Empty where the text is broken.
std::vector<OperandShape> operands_of_kineto(std::string_view shapes, std::string_view types);
/// XLA's "f32[128,32]{1,0}, f32[32,64] -> f32[128,64]": inputs, and the result where an arrow stands.
struct HloShapes {
  std::vector<OperandShape> inputs, results;
};
HloShapes operands_of_hlo(std::string_view shapes);
/// A number of a list "[2, 2]" as Kineto writes inputs that are no tensors; empty where it is none.
std::vector<std::int64_t> numbers_of(std::string_view list);

/// A product of `batch` matrices [m x k] and [k x n].
struct ProductShape {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  int element_bytes = 0;
  double flops() const {
    return 2.0 * static_cast<double>(batch) * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
  /// All matrices once.
  double bytes() const {
    return static_cast<double>(batch) * element_bytes *
           (static_cast<double>(m) * static_cast<double>(k) + static_cast<double>(k) * static_cast<double>(n) +
            static_cast<double>(m) * static_cast<double>(n));
  }
};

struct OpWork {
  double flops = 0;                     // of products and convolutions, an addition one; 0: none, or not known
  double dense_flops = 0;               // of a convolution whose result is as large as its input, by stride 1
  std::int64_t read = 0, written = 0;   // bytes, each tensor once; 0: not known
  std::int64_t elements = 0;            // of the largest tensor
  int element_bytes = 0;                // of its elements
  Unit unit = Unit::none;               // of the factors
  std::optional<ProductShape> product;  // of products
  std::optional<bool>
      has_aligned_rows;   // whether rows of all operands begin at multiples of 16 bytes, where it is known
  bool is_users = false;  // an op that PyTorch does not have, by its shapes taken for an elementwise one
  std::int64_t bytes() const { return read + written; }
};

/// The operations that a file says of a span; 0 where that is no number of them.
inline double sound_flops(double flops) { return flops > 0 && flops < 1e30 ? flops : 0; }

/// The work of an op by its name ("aten::addmm", "mm"), its inputs, and Kineto's "Concrete Inputs" (may be empty):
/// strides of convolutions, whether attention is causal.
OpWork op_work(std::string_view op, const std::vector<OperandShape>& inputs, std::string_view concrete = {});

}  // namespace paoding::findings
