// SPDX-License-Identifier: Apache-2.0
// Names that the sources of all convolutions forward, and of gradients for images, share.
#pragma once

#include "gpu/codegen/text_kernel.h"
#include "ops/conv/conv_shape.h"
#include "ops/conv/gpu/conv_epilogue.h"

namespace paoding {

/// The operands in the order of the op: image, weights, bias and added where there are any, out; or those of an
/// epilogue.
inline void add_image_operands(gpu::TextParts* parts, const ConvShape& shape, const Epilogue* epilogue = nullptr) {
  for (const char* name : {"image", "weights"}) parts->operands.push_back(gpu::input_parameter(shape.dtype, name));
  if (shape.has_bias) parts->operands.push_back(gpu::input_parameter(shape.dtype, "bias"));
  if (shape.has_added) parts->operands.push_back(gpu::input_parameter(shape.dtype, "added"));
  if (epilogue != nullptr) return add_epilogue_operands(parts, shape.dtype, *epilogue);
  parts->operands.push_back(gpu::output_parameter(shape.dtype, "out"));
}

/// kHasRelu, and activated(value).
inline std::string activation_text(const ConvShape& shape) {
  return fmt::format(R"(constexpr bool kHasRelu = {};
template <class Value> PD_DEVICE Value activated(Value value) {{
  if (kHasRelu && value < Value(0)) value = Value(0);
  return {};
}}
)",
                     shape.has_relu, shape.has_limit ? "value > Value(6) ? Value(6) : value" : "value");
}

/// The constants that define the epilogue of a sum before it is stored.
inline std::string epilogue_constants(const ConvShape& shape) {
  return fmt::format("constexpr bool kHasBias = {}, kHasAdded = {};\n{}", shape.has_bias, shape.has_added,
                     activation_text(shape));
}

}  // namespace paoding
