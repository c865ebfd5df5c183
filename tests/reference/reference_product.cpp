// SPDX-License-Identifier: Apache-2.0
// The definition of products with packed weights, in double. The order of packed weights is the kernels' own; here it
// is rows of [K, N] one after the other, then zeros.
#include "tests/reference/reference_ops.h"

namespace paoding::reference {
namespace {

std::vector<Dense> pack_weights(const Call& call) {
  const bool is_transposed = call.node.attrs.get_bool("transpose");
  const Ints shape = call.shape(0);
  const std::int64_t inner = shape[is_transposed ? 1 : 0], columns = shape[is_transposed ? 0 : 1];
  Dense packed(at(call.result_shape()[0]), 0.0);
  for (std::int64_t i = 0; i < inner; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      packed[at(i * columns + j)] = call.inputs[0][at(is_transposed ? j * inner + i : i * columns + j)];
    }
  }
  return {packed};
}

std::vector<Dense> matmul_packed(const Call& call) {
  const std::int64_t rows = call.shape(0)[0], inner = call.shape(0)[1], columns = call.node.attrs.get_int("columns");
  Dense product(at(rows * columns), 0.0);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < inner; ++i) {
      const double factor = call.inputs[0][at(r * inner + i)];
      const double* row = call.inputs[1].data() + i * columns;
      for (std::int64_t j = 0; j < columns; ++j) product[at(r * columns + j)] += factor * row[j];
    }
  }
  return {product};
}

[[maybe_unused]] const bool added = add("pack_weights", pack_weights) && add("matmul_packed", matmul_packed);

}  // namespace
}  // namespace paoding::reference
