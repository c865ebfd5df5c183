// SPDX-License-Identifier: Apache-2.0
// The formats of pictures that are read. IDX, that of MNIST's files (LeCun): 0, 0, the code of the element type, the
// rank, extents as big-endian 32-bit words, then the elements. PGM (Netpbm): "P5", width, height and largest value in
// decimal, a blank, then the pixels.
#pragma once

#include <string_view>

#include "paoding/tensor.h"

namespace paoding::data {

/// The bytes (u8) of an unpacked IDX file of `rank` axes. Error (file) with `name` when it is anything else, or is not
/// just as long as its extents say, or an extent is 0.
Tensor parse_idx(std::string_view bytes, std::string_view name, int rank);

/// The picture [1, height, width] of a binary PGM file of bytes, its largest value made 255. Error (file) with `name`
/// when it is anything else or of another length.
Tensor parse_pgm(std::string_view bytes, std::string_view name);

}  // namespace paoding::data
