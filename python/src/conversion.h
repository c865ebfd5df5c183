// SPDX-License-Identifier: Apache-2.0
// Arrays of any strides and dtype, made into dense Tensors of the dtype that is needed.
#pragma once

#include <array>
#include <memory>

#include "arrays.h"

namespace paoding::python {

/// An array in the host's memory; `strides` are in bytes, and may be negative or 0.
struct StridedArray {
  Type type;
  std::array<std::int64_t, Shape::kMaxRank> strides{};
  std::shared_ptr<std::byte> memory;  // of the first element

  /// Shares the memory of a dense tensor.
  static StridedArray of(const Tensor& tensor);
  /// Whether the elements lie one after the other in the order of the last axis.
  bool is_dense() const;
};

/// A tensor of `dtype` in memory of its own. To a float every number becomes the nearest one; to integers and bools all
/// stay as they are. Error (dtype) with the element and a hint for one that cannot: a fraction or a number out
/// of range for integers, a finite number that a float has only as infinity.
Tensor converted(const StridedArray& from, DType dtype, const ArrayName& name);
/// The same into a tensor of the same shape, whose dtype is the one that is wanted.
void convert(const StridedArray& from, const ArrayName& name, Tensor* into);

}  // namespace paoding::python
