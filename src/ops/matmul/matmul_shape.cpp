// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/matmul_shape.h"

#include <algorithm>

#include "base/product.h"

namespace paoding {
namespace {

MatmulOperand make_operand(const Layout& layout, bool is_transposed, int batch_rank, const Shape& result) {
  const int rank = layout.type.shape.rank();
  const auto stride = [&](int axis) { return layout.strides[static_cast<std::size_t>(axis)]; };
  MatmulOperand operand;
  operand.row_stride = stride(is_transposed ? rank - 1 : rank - 2);
  operand.column_stride = stride(is_transposed ? rank - 2 : rank - 1);
  for (int i = 0; i < batch_rank; ++i) {
    const int axis = rank - 2 - batch_rank + i;  // aligned at the matrices
    const bool is_broadcast = axis < 0 || (layout.type.shape[axis] == 1 && result[i] != 1);
    operand.batch_strides.push_back(is_broadcast ? 0 : stride(axis));
  }
  return operand;
}

}  // namespace

MatmulShape::MatmulShape(const KernelCall& call) {
  const Shape& result = call.outputs[0].type.shape;
  const int batch_rank = result.rank() - 2;
  const bool transpose_a = call.attrs.get_bool("transpose_a"), transpose_b = call.attrs.get_bool("transpose_b");
  const Shape& shape_a = call.inputs[0].type.shape;
  dtype = call.inputs[0].type.dtype;
  result_dtype = call.outputs[0].type.dtype;
  m = result[batch_rank];
  n = result[batch_rank + 1];
  k = shape_a[shape_a.rank() - (transpose_a ? 2 : 1)];
  a = make_operand(call.inputs[0], transpose_a, batch_rank, result);
  b = make_operand(call.inputs[1], transpose_b, batch_rank, result);
  c = make_operand(call.outputs[0], false, batch_rank, result);
  for (int i = 0; i < batch_rank; ++i) batch.push_back(result[i]);

  // An axis of extent 1 goes; one that continues its inner neighbour in every operand merges it.
  MatmulOperand* operands[] = {&a, &b, &c};
  for (std::size_t i = batch.size(); i-- > 0;) {
    const bool merges = i + 1 < batch.size() && std::all_of(std::begin(operands), std::end(operands), [&](auto* o) {
                          return o->batch_strides[i] == o->batch_strides[i + 1] * batch[i + 1];
                        });
    if (batch[i] != 1 && !merges) continue;
    if (batch[i] != 1) batch[i + 1] *= batch[i];
    batch.erase(batch.begin() + static_cast<std::ptrdiff_t>(i));
    for (auto* o : operands) o->batch_strides.erase(o->batch_strides.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

bool MatmulShape::is_empty() const {
  return m == 0 || n == 0 || k == 0 || std::find(batch.begin(), batch.end(), 0) != batch.end();
}

std::int64_t MatmulShape::products() const {
  std::int64_t products = capped_product({m, n, k});
  for (const std::int64_t extent : batch) products = capped_product({products, extent});
  return products;
}

bool blas_layout(const MatmulOperand& operand, std::int64_t rows, std::int64_t columns, std::int64_t* ld,
                 bool* is_transposed) {
  const std::int64_t row = operand.row_stride, column = operand.column_stride;
  if ((column == 1 || columns == 1) && (row >= columns || rows == 1)) {
    *is_transposed = false;
    *ld = rows == 1 ? std::max(columns, row) : row;
    return true;
  }
  if ((row == 1 || rows == 1) && (column >= rows || columns == 1)) {
    *is_transposed = true;
    *ld = columns == 1 ? std::max(rows, column) : column;
    return true;
  }
  return false;
}

}  // namespace paoding
