// SPDX-License-Identifier: Apache-2.0
// Convolutions by oneDNN, in f32 and bf16. Images whose channels lie last are read and written as they are; others, and
// the weights, are converted within the kernel to the layout that oneDNN prefers.
#include "ops/conv/cpu/conv_onednn.h"

#include <algorithm>

#include "base/check.h"
#include "base/product.h"
#include "ops/all_kernels.h"

namespace paoding {

using Dims = dnnl::memory::dims;
using Tag = dnnl::memory::format_tag;

dnnl::memory::desc given_image(const Layout& layout) {
  const Shape& shape = layout.type.shape;
  const Dims dims(shape.begin(), shape.end());
  if (is_channels_last(layout)) return {dims, onednn_type(layout.type.dtype), Tag::nhwc};
  return {dims, onednn_type(layout.type.dtype), Dims(layout.strides.begin(), layout.strides.begin() + 4)};
}

namespace {

// The layout that the convolution itself should read or write.
dnnl::memory::desc wanted_image(const Layout& layout) {
  const Shape& shape = layout.type.shape;
  return {Dims(shape.begin(), shape.end()), onednn_type(layout.type.dtype),
          is_channels_last(layout) ? Tag::nhwc : Tag::any};
}

Dims weight_dims(const ConvShape& shape) {
  Dims dims{shape.outputs, shape.channels / shape.groups, shape.axes[0].kernel, shape.axes[1].kernel};
  if (shape.groups > 1) {
    dims[0] /= shape.groups;
    dims.insert(dims.begin(), shape.groups);
  }
  return dims;
}

}  // namespace

dnnl::memory::desc given_weights(const ConvShape& shape) {
  Dims strides(shape.w.strides.begin(), shape.w.strides.begin() + 4);
  if (shape.groups > 1) strides.insert(strides.begin(), strides[0] * (shape.outputs / shape.groups));
  return {weight_dims(shape), onednn_type(shape.w.type.dtype), strides};
}

dnnl::memory::desc given_bias(const ConvShape& shape) {
  return {Dims{shape.outputs}, onednn_type(shape.dtype), Dims{std::max<std::int64_t>(shape.bias.strides[0], 1)}};
}

ConvDescs make_convolution(const ConvShape& shape, bool with_primitive, const dnnl::memory::desc* weights) {
  const dnnl::engine& engine = onednn_engine();
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const Dims strides{shape.axes[0].stride, shape.axes[1].stride};
  const Dims dilation{shape.axes[0].dilation - 1, shape.axes[1].dilation - 1};
  const Dims before{shape.axes[0].before, shape.axes[1].before};
  // oneDNN wants the padding that the last window uses, not the rows after it.
  const auto used_after = [&](std::size_t i) {
    const WindowAxis& axis = shape.axes[i];
    return axis.input(axis.outputs - 1, axis.kernel - 1) + 1 - axis.size;
  };
  const Dims after{used_after(0), used_after(1)};
  const auto x = wanted_image(shape.x), y = wanted_image(shape.y);
  const auto type = onednn_type(shape.dtype);
  // The weights of the forward pass, which a gradient's primitive is made for, are of the images' type.
  const bool is_given = weights != nullptr && shape.kind != ConvKind::grad_weight;
  const dnnl::memory::desc w = is_given ? *weights : dnnl::memory::desc(weight_dims(shape), type, Tag::any);
  const dnnl::memory::desc bias(Dims{shape.outputs}, type, Tag::x);

  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops ops;
  if (shape.has_added) ops.append_binary(dnnl::algorithm::binary_add, y);
  if (shape.has_limit)
    ops.append_eltwise(1, dnnl::algorithm::eltwise_clip, 0, 6);
  else if (shape.has_relu)
    ops.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
  attr.set_post_ops(ops);
  using Forward = dnnl::convolution_forward;
  const auto forward_desc =
      shape.has_bias
          ? Forward::desc(dnnl::prop_kind::forward_training, algorithm, x, w, bias, y, strides, dilation, before, after)
          : Forward::desc(dnnl::prop_kind::forward_training, algorithm, x, w, y, strides, dilation, before, after);
  const Forward::primitive_desc forward(forward_desc, attr, engine);
  if (shape.kind == ConvKind::forward) {
    return {forward.src_desc(),
            forward.weights_desc(),
            forward.dst_desc(),
            bias,
            forward.scratchpad_desc(),
            forward.impl_info_str(),
            with_primitive ? dnnl::primitive(Forward(forward)) : dnnl::primitive()};
  }
  if (shape.kind == ConvKind::grad_input) {
    using Backward = dnnl::convolution_backward_data;
    const Backward::primitive_desc made(Backward::desc(algorithm, x, w, y, strides, dilation, before, after), attr,
                                        engine, forward);
    return {made.diff_src_desc(),
            made.weights_desc(),
            made.diff_dst_desc(),
            {},
            made.scratchpad_desc(),
            made.impl_info_str(),
            with_primitive ? dnnl::primitive(Backward(made)) : dnnl::primitive()};
  }
  using Backward = dnnl::convolution_backward_weights;
  const dnnl::memory::desc sums =
      weights ? *weights : dnnl::memory::desc(weight_dims(shape), onednn_type(shape.w.type.dtype), Tag::any);
  const Backward::primitive_desc made(Backward::desc(algorithm, x, sums, y, strides, dilation, before, after), attr,
                                      engine, forward);
  return {made.src_desc(),
          made.diff_weights_desc(),
          made.diff_dst_desc(),
          {},
          made.scratchpad_desc(),
          made.impl_info_str(),
          with_primitive ? dnnl::primitive(Backward(made)) : dnnl::primitive()};
}

namespace {

// A kernel works on an image, or on the weights, as a whole; images are counted one by one.
std::string size_refusal(const ConvShape& shape) {
  for (const auto& [layout, name] : {std::pair{&shape.x, "x"}, {&shape.w, "the weights"}, {&shape.y, "the result"}}) {
    const Shape& extents = layout->type.shape;
    std::int64_t span = layout == &shape.w ? extents[0] : 1;
    for (int axis = 1; axis < 4; ++axis) {
      span = capped_product({span, extents[axis]});
      const std::int64_t stride = std::abs(layout->strides[static_cast<std::size_t>(axis)]);
      span = std::max(span, capped_product({stride, extents[axis]}));
    }
    if (extents[0] > kMostOneDnnExtent || capped_product({span, size_bytes(shape.dtype)}) > kMostOneDnnBytes) {
      return fmt::format("{} {} has 2^31 bytes or more in one piece", name, to_string(layout->type));
    }
  }
  for (const WindowAxis& axis : shape.axes) {
    if (axis.dilation * (axis.kernel - 1) + axis.before + axis.after + axis.size > kMostOneDnnExtent) {
      return "its windows span 2^31 pixels or more";
    }
  }
  return "";
}

}  // namespace

std::string onednn_refusal(const ConvShape& shape) {
  if (shape.dtype != DType::f32 && shape.dtype != DType::bf16) {
    return fmt::format("{} is not one of f32, bf16", to_string(shape.dtype));
  }
  if (shape.is_empty()) return "an extent is 0";
  if (std::string why = size_refusal(shape); !why.empty()) return why;
  try {
    const std::string name = make_convolution(shape, false).name;
    if (name.starts_with("ref")) return "it has only its reference loops for this convolution";
    // On AArch64, for one, the element that is added to an image of channels inside comes from another place (2.6.3).
    if (shape.has_added && name == "gemm:ref") return "it adds an image to its products wrongly";
    return "";
  } catch (const dnnl::error& error) {
    return fmt::format("it has no such convolution here ({})", error.what());
  }
}

namespace {

class OneDnnConvolution : public PreparedKernel {
 public:
  OneDnnConvolution(const ConvShape& shape, std::size_t inputs) {
    const ConvDescs made = make_convolution(shape, true);
    const bool is_forward = shape.kind == ConvKind::forward, is_data = shape.kind == ConvKind::grad_input;
    const std::size_t result = inputs;
    // Operands in the order of the op; results last.
    const std::size_t x_at = is_data ? result : 0, y_at = is_forward ? result : is_data ? 0 : 1;
    const std::size_t w_at = shape.kind == ConvKind::grad_weight ? result : 1;
    std::vector<std::pair<std::size_t, std::size_t>> after;  // conversions of the result
    const auto place = [&](const dnnl::memory::desc& given, const dnnl::memory::desc& wanted, std::size_t operand) {
      const std::size_t outer = sequence_.memory(given, OneDnnSequence::operand(operand));
      if (given == wanted) return outer;
      const std::size_t inner = sequence_.memory(wanted, sequence_.scratch(wanted.get_size()));
      if (operand == result) {
        after.emplace_back(inner, outer);
      } else {
        sequence_.add_reorder(outer, inner);
      }
      return inner;
    };
    const std::size_t x = place(given_image(shape.x), made.x, x_at);
    const std::size_t w = place(given_weights(shape), made.w, w_at);
    const std::size_t y = place(given_image(shape.y), made.y, y_at);
    std::vector<std::pair<int, std::size_t>> arguments = {
        {is_data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, x},
        {shape.kind == ConvKind::grad_weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, w},
        {is_forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, y}};
    if (shape.has_bias) {
      arguments.emplace_back(DNNL_ARG_BIAS, place(given_bias(shape), made.bias, 2));
    }
    if (shape.has_added) {
      arguments.emplace_back(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1,
                             place(given_image(shape.added), made.y, 3));
    }
    if (made.scratchpad.get_size() > 0) {
      arguments.emplace_back(DNNL_ARG_SCRATCHPAD,
                             sequence_.memory(made.scratchpad, sequence_.scratch(made.scratchpad.get_size())));
    }
    sequence_.add(made.primitive, std::move(arguments));
    for (const auto& [inner, outer] : after) sequence_.add_reorder(inner, outer);
  }

  std::int64_t scratch_bytes() const override { return sequence_.scratch_bytes(); }
  void run(const KernelRun& run) const override { sequence_.run(run.operands, run.scratch); }

 private:
  OneDnnSequence sequence_;
};

}  // namespace

void register_convolution_cpu() {
  // All operands but the weights and the bias.
  constexpr std::pair<const char*, std::uint32_t> kOps[] = {{"conv2d", 0b101},
                                                            {"conv2d_bias", 0b1001},
                                                            {"conv2d_add", 0b11001},
                                                            {"conv2d_grad_input", 0b101},
                                                            {"conv2d_grad_weight", 0b011},
                                                            {"conv2d_grad_weight_wide", 0b011}};
  for (const auto& [op, images] : kOps) {
    register_convolution_by_images(op, images);
    register_kernel(op, {.name = "onednn",
                         .device = DeviceKind::cpu,
                         .refusal = [](const KernelCall& call) { return onednn_refusal(ConvShape(call)); },
                         .prepare = [](const KernelCall& call, const Device&) -> std::unique_ptr<PreparedKernel> {
                           return made_by_onednn(call.op->name, [&] {
                             return std::make_unique<OneDnnConvolution>(ConvShape(call), call.inputs.size());
                           });
                         },
                         .faults = Faults::possible,
                         .channels_last = images});
    register_convolution_loops(op);
  }
  register_convolution_by_images("conv2d_pool", 0b11001);
  register_convolution_by_images("conv2d_pool_grad_input", 0b1011);
  register_convolution_by_images("conv2d_pool_grad_weight", 0b00111);
}

}  // namespace paoding
