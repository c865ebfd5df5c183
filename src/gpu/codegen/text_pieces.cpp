// SPDX-License-Identifier: Apache-2.0
#include "gpu/codegen/text_pieces.h"

namespace paoding::gpu {

std::string_view stored_type(DType dtype) {
  switch (dtype) {
    case DType::f64: return "double";
    case DType::f32: return "float";
    case DType::f16: return "F16";
    case DType::bf16: return "BF16";
    case DType::i64: return "long long";
    case DType::i32: return "int";
    case DType::u8: return "unsigned char";
    case DType::boolean: return "Bool";
  }
  return "";
}

std::string_view computed_type(DType dtype) {
  return dtype == DType::boolean ? "bool" : stored_type(compute_dtype(dtype));
}

}  // namespace paoding::gpu
