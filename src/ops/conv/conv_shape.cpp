// SPDX-License-Identifier: Apache-2.0
#include "ops/conv/conv_shape.h"

#include "base/check.h"
#include "base/product.h"

namespace paoding {

ConvShape::ConvShape(const KernelCall& call) {
  const std::string& op = call.op->name;
  const Layout &a = call.inputs[0], &b = call.inputs[1], &result = call.outputs[0];
  is_pooled = call.attrs.find("pool") != nullptr;
  if (is_pooled) {
    const auto& extents = call.attrs.get_ints("pool");
    pool = {extents[0], extents[1]};
    const bool is_forward = op == "conv2d_pool", is_weight = op == "conv2d_pool_grad_weight";
    kind = is_forward ? ConvKind::forward : is_weight ? ConvKind::grad_weight : ConvKind::grad_input;
    x = kind == ConvKind::grad_input ? result : a;
    y = is_forward ? result : is_weight ? b : a;
    w = is_forward ? b : is_weight ? result : call.inputs[2];
    index = is_forward ? call.outputs[1] : is_weight ? call.inputs[2] : b;
    has_index = index.type.shape.elements() > 0;
    has_result = result.type.shape != Shape{0};
    if (is_forward) bias = call.inputs[2];
    if (is_weight) bias = call.outputs[1];
    if (is_forward && !has_result) y = channels_last({x.type.dtype, index.type.shape});
    if (is_weight && !has_result) {
      const auto& kernel = call.attrs.get_ints("kernel");
      const std::int64_t inputs = x.type.shape[1] / call.attrs.get_int("groups");
      w = Layout::dense({bias.type.dtype, {y.type.shape[1], inputs, kernel[0], kernel[1]}});
    }
    has_bias = kind != ConvKind::grad_input && bias.type.shape.elements() > 0;
    has_relu = is_forward && std::get<std::string>(*call.attrs.find("activation")) == "relu";
  } else if (op == "conv2d_grad_input") {
    kind = ConvKind::grad_input;
    y = a, w = b, x = result;
  } else if (op == "conv2d_grad_weight" || op == "conv2d_grad_weight_wide") {
    kind = ConvKind::grad_weight;
    x = a, y = b, w = result;
  } else {
    has_added = op == "conv2d_add";
    has_bias = op == "conv2d_bias" || has_added;
    PD_ASSERT(op == "conv2d" || has_bias, "a convolution");
    x = a, w = b, y = result;
    if (has_added) added = call.inputs[3];
    if (has_bias) {
      bias = call.inputs[2];
      const std::string& activation = std::get<std::string>(*call.attrs.find("activation"));
      has_relu = activation != "none", has_limit = activation == "relu6";
    }
  }
  dtype = x.type.dtype;
  batch = x.type.shape[0];
  channels = x.type.shape[1];
  outputs = y.type.shape[1];
  groups = call.attrs.get_int("groups");
  axes = window_axes(call.attrs, {x.type.shape[2], x.type.shape[3]}, {w.type.shape[2], w.type.shape[3]});
}

bool ConvShape::is_empty() const {
  return x.type.shape.elements() == 0 || w.type.shape.elements() == 0 || y.type.shape.elements() == 0;
}

std::string ConvShape::added_refusal() const {
  if (!has_added) return "";
  for (int axis = 0; axis < 4; ++axis) {
    const auto at = static_cast<std::size_t>(axis);
    if (y.type.shape[axis] > 1 && added.strides[at] != y.strides[at]) {
      return "what is added does not lie as the result does";
    }
  }
  return "";
}

OpCost convolution_cost(std::string_view op, const CostCall& call) {
  KernelCall dense{.op = find_op(op), .attrs = call.attrs, .inputs = {}, .outputs = {}, .alignments = {}};
  for (const Type& type : call.inputs) dense.inputs.push_back(Layout::dense(type));
  for (const Type& type : call.outputs) dense.outputs.push_back(Layout::dense(type));
  return {.flops = 2 * static_cast<double>(ConvShape(dense).products()), .is_product = true};
}

std::int64_t ConvShape::products() const {
  return capped_product({y.type.shape.elements(), w.type.shape[1], axes[0].kernel, axes[1].kernel});
}

}  // namespace paoding
