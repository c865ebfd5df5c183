// SPDX-License-Identifier: Apache-2.0
// The order in which a device's products read a packed right operand fastest. Only the kernels know it; a graph knows
// how many elements it takes, padding included.
#pragma once

#include <cstdint>
#include <string>

#include "paoding/types.h"

namespace paoding {

/// Weights packed for some number of rows may be read by products of another where both numbers have the same order.
struct PackedOrder {
  std::string order;          // "A16B64", for example; empty: products have no order of their own for such operands
  std::int64_t elements = 0;  // of the packed weights

  friend bool operator==(const PackedOrder&, const PackedOrder&) = default;
};

/// The order that the CPU's products of [rows, inner] and [inner, columns] want of their right operand, with as many
/// threads as the calling one may use. Queries oneDNN: some 20 us.
PackedOrder packed_order(DType dtype, std::int64_t rows, std::int64_t inner, std::int64_t columns);

}  // namespace paoding
