// SPDX-License-Identifier: Apache-2.0
// IDX, the format of MNIST's files (LeCun): 0, 0, the code of the element type, the rank, extents as big-endian 32-bit
// words, then the elements.
#pragma once

#include <string_view>

#include "paoding/tensor.h"

namespace paoding::data {

/// The bytes (u8) of an unpacked IDX file of `rank` axes. Error (file) with `name` when it is anything else, or is not
/// just as long as its extents say, or an extent is 0.
Tensor parse_idx(std::string_view bytes, std::string_view name, int rank);

}  // namespace paoding::data
