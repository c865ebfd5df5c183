// SPDX-License-Identifier: Apache-2.0
// Convolutions. conv2d, conv2d_grad_input and conv2d_grad_weight are the three gradients of one form that is linear in
// x, w and y, so each one's gradients are the other two. Kernels: cpu/conv_onednn.cpp, cpu/conv_loops.cpp.
#include "base/check.h"
#include "base/one_line.h"
#include "ops/conv/conv_shape.h"
#include "ops/conv/window.h"
#include "ops/families.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "paoding/ops/convolution.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

// ---- shape rules ----

void check_operands(const OpCall& call, std::initializer_list<const char*> meanings) {
  std::size_t i = 0;
  for (const char* meaning : meanings) {
    const Type& type = call.inputs[i];
    if (!is_float(type.dtype)) {
      call.fail(ErrorKind::dtype, fmt::format("{} is {}; it takes floats", call.input_name(i), to_string(type.dtype)));
    }
    if (type.dtype != call.inputs[0].dtype) {
      call.fail(ErrorKind::dtype,
                fmt::format("{} is {}, but {} is {}", call.input_name(0), to_string(call.inputs[0].dtype),
                            call.input_name(i), to_string(type.dtype)));
    }
    if (type.shape.rank() != 4) {
      call.fail(ErrorKind::shape,
                fmt::format("{} has shape {}; it must be {}", call.input_name(i), to_string(type.shape), meaning));
    }
    ++i;
  }
}

std::int64_t checked_groups(const OpCall& call, std::int64_t channels, std::int64_t outputs) {
  const std::int64_t groups = call.attrs.get_int("groups");
  if (groups < 1) call.fail(ErrorKind::argument, fmt::format("groups is {}; it must be at least 1", groups));
  if (channels % groups != 0 || outputs % groups != 0) {
    call.fail(ErrorKind::shape,
              fmt::format("{} groups do not divide {} channels in and {} channels out", groups, channels, outputs));
  }
  return groups;
}

std::array<std::int64_t, 2> pair_of(const OpCall& call, const char* name) {
  const Ints& values = call.attrs.get_ints(name);
  if (values.size() != 2) {
    call.fail(ErrorKind::argument, fmt::format("{} has {} numbers, it takes 2", name, values.size()));
  }
  return {values[0], values[1]};
}

std::array<std::int64_t, 2> last_two(const Shape& shape) { return {shape[2], shape[3]}; }

Type conv_type(const OpCall& call) {
  const Shape &x = call.inputs[0].shape, &w = call.inputs[1].shape;
  const std::int64_t groups = checked_groups(call, x[1], w[0]);
  if (w[1] * groups != x[1]) {
    call.fail(ErrorKind::shape, fmt::format("x has shape {} and w {}; with {} groups w must have {} in axis 1",
                                            to_string(x), to_string(w), groups, x[1] / groups));
  }
  const auto axes = window_axes(call, call.attrs, last_two(x), last_two(w));
  return {call.inputs[0].dtype, {x[0], w[0], axes[0].outputs, axes[1].outputs}};
}

std::vector<Type> infer_conv(const OpCall& call) {
  check_operands(call, {"[N, C, H, W]", "[O, C / groups, KH, KW]"});
  return {conv_type(call)};
}

std::vector<Type> infer_conv_bias(const OpCall& call) {
  check_operands(call, {"[N, C, H, W]", "[O, C / groups, KH, KW]"});
  const Type result = conv_type(call), bias = call.inputs[2];
  if (!(bias == Type{result.dtype, {result.shape[1]}})) {
    call.fail(ErrorKind::shape, fmt::format("bias is {}; it must be {}", to_string(bias),
                                            to_string(Type{result.dtype, {result.shape[1]}})));
  }
  const std::string& activation = std::get<std::string>(*call.attrs.find("activation"));
  if (activation != "none" && activation != "relu" && activation != "relu6") {
    call.fail(ErrorKind::argument,
              fmt::format("activation is '{}'; it must be none, relu or relu6", one_line(activation)));
  }
  return {result};
}

// The extents that `dy` must have, or an error.
void check_result(const OpCall& call, std::size_t input, std::int64_t batch, std::int64_t channels,
                  const std::array<WindowAxis, 2>& axes) {
  const Shape expected{batch, channels, axes[0].outputs, axes[1].outputs};
  if (call.inputs[input].shape == expected) return;
  call.fail(ErrorKind::shape, fmt::format("dy has shape {}; the convolution's result has {}",
                                          to_string(call.inputs[input].shape), to_string(expected)));
}

std::vector<Type> infer_grad_input(const OpCall& call) {
  check_operands(call, {"[N, O, OH, OW]", "[O, C / groups, KH, KW]"});
  const Shape &dy = call.inputs[0].shape, &w = call.inputs[1].shape;
  const std::int64_t groups = checked_groups(call, 0, w[0]);
  const auto size = pair_of(call, "size");
  check_result(call, 0, dy[0], w[0], window_axes(call, call.attrs, size, last_two(w)));
  return {Type{call.inputs[0].dtype, {dy[0], w[1] * groups, size[0], size[1]}}};
}

std::vector<Type> infer_grad_weight(const OpCall& call) {
  check_operands(call, {"[N, C, H, W]", "[N, O, OH, OW]"});
  const Shape &x = call.inputs[0].shape, &dy = call.inputs[1].shape;
  const std::int64_t groups = checked_groups(call, x[1], dy[1]);
  const auto kernel = pair_of(call, "kernel");
  check_result(call, 1, x[0], dy[1], window_axes(call, call.attrs, last_two(x), kernel));
  return {Type{call.inputs[0].dtype, {dy[1], x[1] / groups, kernel[0], kernel[1]}}};
}

std::vector<Type> infer_grad_weight_wide(const OpCall& call) {
  const Type narrow = infer_grad_weight(call)[0];
  if (narrow.dtype != f16 && narrow.dtype != bf16) {
    call.fail(ErrorKind::dtype, fmt::format("x is {}; it takes f16 and bf16", to_string(narrow.dtype)));
  }
  return {Type{f32, narrow.shape}};
}

// ---- gradients and lifts ----

// The attributes that all three have.
Attrs shared_attrs(const Attrs& attrs) {
  Attrs shared;
  for (const char* name : {"stride", "padding", "dilation", "groups"}) shared.set(name, *attrs.find(name));
  return shared;
}

Value convolve(const Value& x, const Value& w, const Attrs& attrs) {
  return call("conv2d", {x, w}, shared_attrs(attrs));
}

Value grad_input(const Value& dy, const Value& w, const Shape& x, const Attrs& attrs) {
  Attrs all = shared_attrs(attrs);
  all.set("size", Ints{x[2], x[3]});
  return call("conv2d_grad_input", {dy, w}, all);
}

Value grad_weight(const Value& x, const Value& dy, const Shape& w, const Attrs& attrs) {
  Attrs all = shared_attrs(attrs);
  all.set("kernel", Ints{w[2], w[3]});
  return call("conv2d_grad_weight", {x, dy}, all);
}

Values conv_gradient(const GradCall& call) {
  const Value &x = call.inputs[0], &w = call.inputs[1], &g = call.grads[0];
  const Attrs& attrs = call.node.attrs;
  return {call.wanted[0] ? grad_input(g, w, x.shape(), attrs) : Value(),
          call.wanted[1] ? grad_weight(x, g, w.shape(), attrs) : Value()};
}

Values conv_bias_gradient(const GradCall& call) {
  const Value &x = call.inputs[0], &w = call.inputs[1], &y = call.outputs[0];
  const Attrs& attrs = call.node.attrs;
  Value g = call.grads[0];
  const std::string& activation = std::get<std::string>(*attrs.find("activation"));
  if (activation != "none") {
    const Value zero = full(call.graph, {}, 0, y.dtype());
    g = select(less_equal(y, zero), zero, g);
    if (activation == "relu6") g = select(greater_equal(y, full(call.graph, {}, 6, y.dtype())), zero, g);
  }
  return {call.wanted[0] ? grad_input(g, w, x.shape(), attrs) : Value(),
          call.wanted[1] ? grad_weight(x, g, w.shape(), attrs) : Value(),
          call.wanted[2] ? sum(g, std::array<std::int64_t, 3>{0, 2, 3}) : Value()};
}

Values grad_input_gradient(const GradCall& call) {
  const Value &dy = call.inputs[0], &w = call.inputs[1], &g = call.grads[0];
  const Attrs& attrs = call.node.attrs;
  return {call.wanted[0] ? convolve(g, w, attrs) : Value(),
          call.wanted[1] ? grad_weight(g, dy, w.shape(), attrs) : Value()};
}

Values grad_weight_gradient(const GradCall& call) {
  const Value &x = call.inputs[0], &dy = call.inputs[1], g = cast(call.grads[0], x.dtype());
  const Attrs& attrs = call.node.attrs;
  return {call.wanted[0] ? grad_input(dy, g, x.shape(), attrs) : Value(),
          call.wanted[1] ? convolve(x, g, attrs) : Value()};
}

// All steps as one larger batch, as long as they share the weights.
Values batch_lift(const LiftCall& call) {
  for (std::size_t i = 1; i < call.lifted.size(); ++i) {
    if (call.lifted[i]) return {};
  }
  Values in = call.inputs;
  const Shape& x = in[0].shape();
  in[0] = reshape(in[0], Shape{x[0] * x[1], x[2], x[3], x[4]});
  Values made = paoding::call(*call.node.op, in, call.node.attrs);
  for (std::size_t k = 0; k < made.size(); ++k)
    made[k] = reshape(made[k], call.node.types[k].shape.with_inserted(0, call.length));
  return made;
}

// Weights per step need a convolution per step.
Values no_lift(const LiftCall&) { return {}; }

std::vector<AttrSpec> conv_attrs(std::vector<AttrSpec> first = {}) {
  for (AttrSpec& spec : window_attr_specs()) first.push_back(std::move(spec));
  first.push_back({.name = "groups", .example = std::int64_t{1}, .doc = "channels in groups that do not mix"});
  return first;
}

// ---- cases ----

// The same convolutions for all ops, as x, w, and their result.
struct ConvCase {
  Shape x, w, y;
  Attrs attrs;
};

std::vector<ConvCase> conv_cases() {
  const auto attrs = [](Ints stride, Ints padding, Ints dilation, std::int64_t groups) {
    return Attrs{{"stride", stride}, {"padding", padding}, {"dilation", dilation}, {"groups", groups}};
  };
  return {{{2, 3, 5, 6}, {4, 3, 3, 3}, {2, 4, 3, 4}, {}},
          {{2, 3, 5, 6}, {4, 3, 3, 3}, {2, 4, 5, 6}, attrs({1, 1}, {1, 1, 1, 1}, {1, 1}, 1)},
          {{1, 4, 7, 5}, {6, 2, 3, 2}, {1, 6, 3, 4}, attrs({2, 1}, {0, 1, 1, 0}, {1, 2}, 2)},     // odd sizes
          {{2, 5, 6, 6}, {5, 1, 3, 3}, {2, 5, 6, 6}, attrs({1, 1}, {1, 1, 1, 1}, {1, 1}, 5)},     // depthwise
          {{2, 16, 4, 4}, {8, 16, 1, 1}, {2, 8, 4, 4}, {}},                                       // 1x1
          {{1, 2, 9, 9}, {3, 2, 2, 2}, {1, 3, 3, 3}, attrs({3, 3}, {0, 0, 0, 0}, {1, 1}, 1)},     // stride > kernel
          {{1, 2, 4, 5}, {3, 2, 3, 3}, {1, 3, 8, 9}, attrs({1, 1}, {3, 3, 3, 3}, {1, 1}, 1)},     // padding >= kernel
          {{1, 1, 3, 12}, {2, 1, 1, 11}, {1, 2, 3, 12}, attrs({1, 1}, {0, 0, 5, 5}, {1, 1}, 1)},  // a long kernel
          {{0, 3, 5, 6}, {4, 3, 3, 3}, {0, 4, 3, 4}, {}}};
}

std::vector<OpCase> cases_of(const std::function<OpCase(const ConvCase&)>& make, std::vector<OpCase> errors) {
  std::vector<OpCase> cases;
  for (const ConvCase& c : conv_cases()) cases.push_back(make(c));
  for (OpCase& error : errors) cases.push_back(std::move(error));
  return cases;
}

Attrs with(Attrs attrs, const char* name, AttrValue value) {
  attrs.set(name, std::move(value));
  return attrs;
}

}  // namespace

void register_convolution() {
  // ---- conv2d ----
  register_op({
      .name = "conv2d",
      .summary = "cross-correlation of images x with kernels w",
      .kind = OpKind::kernel,
      .inputs = {"x", "w"},
      .attrs = conv_attrs(),
      .cost = [](const CostCall& call) { return convolution_cost("conv2d", call); },
      .precision = PrecisionRule::product,
      .convolution = Convolution{},
      .infer = infer_conv,
      .gradient = conv_gradient,
      .lift = batch_lift,
      .cases = cases_of(
          [](const ConvCase& c) {
            return OpCase{.shapes = {c.x, c.w}, .attrs = c.attrs};
          },
          {{.shapes = {{3, 5, 6}, {4, 3, 3, 3}}, .error = "x has shape [3, 5, 6]"},
           {.shapes = {{2, 3, 5, 6}, {4, 2, 3, 3}}, .error = "w must have 3 in axis 1"},
           {.shapes = {{2, 3, 5, 6}, {4, 3, 3, 3}},
            .attrs = {{"groups", std::int64_t{2}}},
            .error = "2 groups do not divide 3 channels in"},
           {.shapes = {{2, 3, 5, 2}, {4, 3, 3, 3}}, .error = "the width of the result would be 0"},
           {.shapes = {{2, 3, 5, 6}, {4, 3, 3, 3}}, .attrs = {{"stride", Ints{0, 1}}}, .error = "stride is [0, 1]"},
           {.shapes = {{2, 3, 5, 6}, {4, 3, 3, 3}},
            .attrs = {{"padding", Ints{1, 1}}},
            .error = "padding has 2 numbers"},
           {.shapes = {{2, 3, 5, 6}, {4, 3, 3, 3}}, .dtypes = {f32, i32}, .error = "w is i32"}}),
  });

  // ---- conv2d_bias ----
  std::vector<AttrSpec> bias_attrs =
      conv_attrs({{.name = "activation", .example = std::string("none"), .doc = "none, relu or relu6"}});
  register_op({
      .name = "conv2d_bias",
      .summary = "activation(conv2d(x, w) + bias) in one kernel; fuse_convolutions makes it",
      .kind = OpKind::kernel,
      .inputs = {"x", "w", "bias"},
      .attrs = bias_attrs,
      .cost = [](const CostCall& call) { return convolution_cost("conv2d_bias", call); },
      .precision = PrecisionRule::product,
      .convolution = Convolution{.has_bias = true},
      .infer = infer_conv_bias,
      .gradient = conv_bias_gradient,
      .lift = batch_lift,
      .cases = cases_of(
          [](const ConvCase& c) {
            return OpCase{.shapes = {c.x, c.w, {c.w[0]}}, .attrs = with(c.attrs, "activation", std::string("relu"))};
          },
          {{.shapes = {{2, 3, 5, 6}, {4, 3, 3, 3}, {4}}},
           {.shapes = {{2, 3, 5, 6}, {4, 3, 3, 3}, {4}}, .attrs = {{"activation", std::string("relu6")}}},
           {.shapes = {{2, 3, 5, 6}, {4, 3, 3, 3}, {3}}, .error = "bias is f32[3]"},
           {.shapes = {{2, 3, 5, 6}, {4, 3, 3, 3}, {4}},
            .attrs = {{"activation", std::string("mish")}},
            .error = "activation is 'mish'"}}),
  });

  // ---- conv2d_grad_input ----
  register_op({
      .name = "conv2d_grad_input",
      .summary = "the gradient of conv2d for its images",
      .kind = OpKind::kernel,
      .inputs = {"dy", "w"},
      .attrs = conv_attrs({{.name = "size", .example = Ints{}, .required = true, .doc = "H and W of x"}}),
      .cost = [](const CostCall& call) { return convolution_cost("conv2d_grad_input", call); },
      .precision = PrecisionRule::product,
      .convolution = Convolution{.result = Convolution::Result::image_gradient},
      .infer = infer_grad_input,
      .gradient = grad_input_gradient,
      .lift = batch_lift,
      .cases = cases_of(
          [](const ConvCase& c) {
            return OpCase{.shapes = {c.y, c.w}, .attrs = with(c.attrs, "size", Ints{c.x[2], c.x[3]})};
          },
          {{.shapes = {{2, 4, 3, 4}, {4, 3, 3, 3}}, .attrs = {{"size", Ints{6, 6}}}, .error = "has [2, 4, 4, 4]"},
           {.shapes = {{2, 4, 3, 4}, {4, 3, 3, 3}}, .attrs = {{"size", Ints{6}}}, .error = "size has 1 numbers"}}),
  });

  // ---- conv2d_grad_weight ----
  OpDef grad_weight_block{
      .name = "conv2d_grad_weight",
      .summary = "the gradient of conv2d for its kernels",
      .kind = OpKind::kernel,
      .inputs = {"x", "dy"},
      .attrs = conv_attrs({{.name = "kernel", .example = Ints{}, .required = true, .doc = "KH and KW"}}),
      .cost = [](const CostCall& call) { return convolution_cost("conv2d_grad_weight", call); },
      .convolution = Convolution{.result = Convolution::Result::weight_gradient},
      .infer = infer_grad_weight,
      .gradient = grad_weight_gradient,
      .lift = no_lift,
      .cases = cases_of(
          [](const ConvCase& c) {
            return OpCase{.shapes = {c.x, c.y}, .attrs = with(c.attrs, "kernel", Ints{c.w[2], c.w[3]})};
          },
          {{.shapes = {{2, 3, 5, 6}, {2, 4, 3, 3}},
            .attrs = {{"kernel", Ints{3, 3}}},
            .error = "dy has shape [2, 4, 3, 3]"}}),
  };
  OpDef rounded = grad_weight_block;
  rounded.precision = PrecisionRule::product;
  rounded.wide_form = "conv2d_grad_weight_wide";
  register_op(std::move(rounded));

  // ---- conv2d_grad_weight_wide ----
  OpDef& wide = grad_weight_block;
  wide.name = "conv2d_grad_weight_wide";
  wide.summary = "conv2d_grad_weight of f16 or bf16 whose result is f32, as the sums are; mixed_precision makes it";
  wide.narrow_form = "conv2d_grad_weight";
  wide.cost = [](const CostCall& call) { return convolution_cost("conv2d_grad_weight_wide", call); };
  wide.infer = infer_grad_weight_wide;
  for (OpCase& c : wide.cases) c.dtypes = {bf16, bf16};
  OpCase other = wide.cases[1];
  other.dtypes = {f16, f16};
  wide.cases.push_back(other);
  other.dtypes = {f32, f32}, other.error = "it takes f16 and bf16";
  wide.cases.push_back(std::move(other));
  register_op(std::move(wide));
}

// ---- the functions of ops/convolution.h ----

namespace {

Attrs attrs_of(const Conv2dOptions& o) {
  return {{"stride", Ints(o.stride.begin(), o.stride.end())},
          {"padding", Ints(o.padding.begin(), o.padding.end())},
          {"dilation", Ints(o.dilation.begin(), o.dilation.end())},
          {"groups", o.groups}};
}

Value activate(const Value& a, Activation activation) {
  switch (activation) {
    case Activation::relu: return maximum(full(a.graph(), {}, 0, a.dtype()), a);  // on a tie the gradient is 0
    case Activation::sigmoid: return sigmoid(a);
    case Activation::tanh: return tanh(a);
    default: return a;
  }
}

}  // namespace

Value conv2d(const Value& x, const Value& w, const Conv2dOptions& options) {
  const DType dtype = promote(x.dtype(), w.dtype());
  return activate(call("conv2d", {cast(x, dtype), cast(w, dtype)}, attrs_of(options)), options.activation);
}

Value conv2d(const Value& x, const Value& w, const Value& bias, const Conv2dOptions& options) {
  Conv2dOptions plain = options;
  plain.activation = Activation::none;
  const Value y = conv2d(x, w, plain);
  if (!(bias.shape() == Shape{y.shape()[1]})) {
    fail(ErrorKind::shape, "conv2d: bias has shape {}; it must be [{}]{}", to_string(bias.shape()), y.shape()[1],
         in_scope(y.graph().scope.str()));
  }
  return activate(y + reshape(cast(bias, y.dtype()), Shape{y.shape()[1], 1, 1}), options.activation);
}

Value conv2d_grad_input(const Value& dy, const Value& w, std::array<std::int64_t, 2> size,
                        const Conv2dOptions& options) {
  return call("conv2d_grad_input", {dy, w}, with(attrs_of(options), "size", Ints(size.begin(), size.end())));
}

Value conv2d_grad_weight(const Value& x, const Value& dy, std::array<std::int64_t, 2> kernel,
                         const Conv2dOptions& options) {
  return call("conv2d_grad_weight", {x, dy}, with(attrs_of(options), "kernel", Ints(kernel.begin(), kernel.end())));
}

Value conv1d(const Value& x, const Value& w, const Value& bias, const Conv1dOptions& options) {
  for (const Value* value : {&x, &w}) {
    if (value->shape().rank() == 3) continue;
    fail(ErrorKind::shape, "conv1d: {} has shape {}; its rank must be 3{}", value == &x ? "x" : "w",
         to_string(value->shape()), in_scope(x.graph().scope.str()));
  }
  const Conv2dOptions flat{{1, options.stride},
                           {0, 0, options.padding[0], options.padding[1]},
                           {1, options.dilation},
                           options.groups,
                           options.activation};
  const auto as_image = [](const Value& a) { return reshape(a, a.shape().with_inserted(2, 1)); };
  const Value y = bias.valid() ? conv2d(as_image(x), as_image(w), bias, flat) : conv2d(as_image(x), as_image(w), flat);
  return reshape(y, y.shape().with_removed(2));
}

}  // namespace paoding
