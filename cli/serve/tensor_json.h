// SPDX-License-Identifier: Apache-2.0
// Tensors as JSON: lists of numbers in lists, or one list of all of them, row after row.
#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>

#include "paoding/tensor.h"

namespace paoding::cli {

/// A tensor of a known shape, from one list of all elements or from lists as deep as the shape. Floats take the nearest
/// number; integers take integers that they hold, bools true and false. Errors (argument) name the tensor.
Tensor tensor_of_json(std::string_view name, simdjson::dom::element data, const Type& type);
/// The same of a shape that the lists show: all lists of one depth are as long.
Tensor nested_tensor_of_json(std::string_view name, simdjson::dom::element data, DType dtype);

/// "[1,2,3,4]" and "[[1,2],[3,4]]". Floats are written so that they read back to the same bits; NaN and infinities,
/// which JSON lacks, are null.
std::string flat_json(const Tensor& tensor);
std::string nested_json(const Tensor& tensor);

}  // namespace paoding::cli
