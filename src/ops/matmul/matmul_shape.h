// SPDX-License-Identifier: Apache-2.0
// A matmul as every library wants it: extents, and for each operand the strides of its matrix and its batch.
#pragma once

#include <string>
#include <vector>

#include "ops/kernel.h"

namespace paoding {

/// One operand as [batch .., rows, columns] after its transpose flag; strides in elements, 0 where it broadcasts.
struct MatmulOperand {
  std::vector<std::int64_t> batch_strides;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;
};

/// c [batch .., m, n] = a [batch .., m, k] * b [batch .., k, n].
struct MatmulShape {
  std::vector<std::int64_t> batch;  // extents, neighbours merged where all strides allow
  std::int64_t m = 0, n = 0, k = 0;
  MatmulOperand a, b, c;
  DType dtype = DType::f32;         // of a and b
  DType result_dtype = DType::f32;  // of c

  explicit MatmulShape(const KernelCall& call);
  bool is_empty() const;  // some extent is 0
  /// Multiplications, or the largest number where they are more.
  std::int64_t products() const;
  /// Elements from an operand's start to its matrix number `index` of the batch.
  std::int64_t batch_offset(const MatmulOperand& operand, std::int64_t index) const {
    std::int64_t offset = 0;
    for (std::size_t i = batch.size(); i-- > 0; index /= batch[i]) {
      offset += index % batch[i] * operand.batch_strides[i];
    }
    return offset;
  }
};

/// Whether rows or columns are contiguous, and the other stride is at least their extent, BLAS's leading dimension.
/// `ld` gets it, `is_transposed` whether columns are the contiguous ones. Extents of 1 fit any stride.
bool blas_layout(const MatmulOperand& operand, std::int64_t rows, std::int64_t columns, std::int64_t* ld,
                 bool* is_transposed);

}  // namespace paoding
