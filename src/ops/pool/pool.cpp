// SPDX-License-Identifier: Apache-2.0
// Pooling. The gradient of max_pool2d goes where its index says; taking elements from there is the gradient of that.
// Kernels: pool_cpu.cpp, pool_simd_cpu.cpp.
#include "base/check.h"
#include "base/one_line.h"
#include "ops/conv/window.h"
#include "ops/families.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

// ---- shape rules ----

void check_image(const OpCall& call, std::size_t i) {
  const Type& type = call.inputs[i];
  if (!is_float(type.dtype)) {
    call.fail(ErrorKind::dtype, fmt::format("{} is {}; it takes floats", call.input_name(i), to_string(type.dtype)));
  }
  if (type.shape.rank() != 4) {
    call.fail(ErrorKind::shape,
              fmt::format("{} has shape {}; it must be [N, C, H, W]", call.input_name(i), to_string(type.shape)));
  }
}

std::array<std::int64_t, 2> pair_of(const OpCall& call, const char* name) {
  const Ints& values = call.attrs.get_ints(name);
  if (values.size() != 2) {
    call.fail(ErrorKind::argument, fmt::format("{} has {} numbers, it takes 2", name, values.size()));
  }
  return {values[0], values[1]};
}

// The least n >= 0 for which n * step modulo `modulus` is from `low` to `high`; -1 when there is none. Euclid's way: an
// n that does not get there in one turn depends on the turn's remainder, modulo the step.
std::int64_t first_within(std::int64_t step, std::int64_t modulus, std::int64_t low, std::int64_t high) {
  if (low == 0) return 0;
  if (step == 0) return -1;
  const std::int64_t n = (low + step - 1) / step;
  if (n * step <= high) return n;
  const std::int64_t turns = first_within(modulus % step, step, step - high % step, step - low % step);
  return turns < 0 ? -1 : (low + modulus * turns + step - 1) / step;
}

// The first window along the axis that holds padding only; `outputs` when every window holds an element.
std::int64_t first_empty_window(const WindowAxis& axis) {
  // Windows that start inside hold an element, those that start after the image none.
  const std::int64_t behind = std::min((axis.size + axis.before + axis.stride - 1) / axis.stride, axis.outputs);
  const std::int64_t inside = std::min((axis.before + axis.stride - 1) / axis.stride, axis.outputs);
  if (inside == 0) return behind;
  // The first of those before it needs the most taps to get there.
  if ((axis.before + axis.dilation - 1) / axis.dilation >= axis.kernel) return 0;
  // Where a window that starts before the image enters it, if no tap steps over it: its start modulo the dilation.
  const std::int64_t enters = (axis.dilation - axis.before % axis.dilation) % axis.dilation;
  if (enters >= axis.size) return 0;
  if (axis.dilation <= axis.size) return behind;
  const std::int64_t o =
      first_within(axis.stride % axis.dilation, axis.dilation, axis.size - enters, axis.dilation - 1 - enters);
  return o >= 0 && o < inside ? o : behind;
}

// The axes of a pool over images of `size`, every window of which holds an element.
std::array<WindowAxis, 2> pool_axes(const OpCall& call, std::array<std::int64_t, 2> size) {
  const auto axes = window_axes(call, call.attrs, size, pair_of(call, "kernel"));
  for (const WindowAxis& axis : axes) {
    const std::int64_t o = first_empty_window(axis);
    if (o == axis.outputs) continue;
    call.fail(ErrorKind::shape, fmt::format("window {} along the {} holds padding only: {} taps of dilation {}, "
                                            "padding {} and {}",
                                            o, &axis == &axes[0] ? "height" : "width", axis.kernel, axis.dilation,
                                            axis.before, axis.after));
  }
  return axes;
}

Shape pooled(const Shape& x, const std::array<WindowAxis, 2>& axes) {
  return {x[0], x[1], axes[0].outputs, axes[1].outputs};
}

DType index_dtype(const OpCall& call) {
  const auto kernel = pair_of(call, "kernel");
  if (kernel[0] * kernel[1] > std::int64_t{1} << 31) {
    call.fail(ErrorKind::unsupported,
              fmt::format("windows of {} x {} elements; an index counts 2^31 of them", kernel[0], kernel[1]));
  }
  return kernel[0] * kernel[1] <= 256 ? u8 : i32;
}

std::vector<Type> infer_max_pool(const OpCall& call) {
  check_image(call, 0);
  const Type& x = call.inputs[0];
  const Shape shape = pooled(x.shape, pool_axes(call, {x.shape[2], x.shape[3]}));
  return {Type{x.dtype, shape}, Type{index_dtype(call), shape}};
}

void check_index(const OpCall& call, const Shape& shape) {
  const Type expected{index_dtype(call), shape};
  if (call.inputs[1] == expected) return;
  call.fail(call.inputs[1].shape == shape ? ErrorKind::dtype : ErrorKind::shape,
            fmt::format("index is {}; it must be {}", to_string(call.inputs[1]), to_string(expected)));
}

std::vector<Type> infer_max_pick(const OpCall& call) {
  check_image(call, 0);
  const Type& x = call.inputs[0];
  const Shape shape = pooled(x.shape, pool_axes(call, {x.shape[2], x.shape[3]}));
  check_index(call, shape);
  return {Type{x.dtype, shape}};
}

// The type of x, from that of the pool's result in input 0.
Type type_before(const OpCall& call) {
  check_image(call, 0);
  const Type& dy = call.inputs[0];
  const auto size = pair_of(call, "size");
  const Shape shape = pooled(dy.shape, pool_axes(call, size));
  if (!(dy.shape == shape)) {
    call.fail(ErrorKind::shape,
              fmt::format("dy has shape {}; the pool's result has {}", to_string(dy.shape), to_string(shape)));
  }
  return {dy.dtype, {dy.shape[0], dy.shape[1], size[0], size[1]}};
}

std::vector<Type> infer_max_grad(const OpCall& call) {
  const Type x = type_before(call);
  check_index(call, call.inputs[0].shape);
  return {x};
}

std::vector<Type> infer_avg_pool(const OpCall& call) {
  check_image(call, 0);
  const Type& x = call.inputs[0];
  return {Type{x.dtype, pooled(x.shape, pool_axes(call, {x.shape[2], x.shape[3]}))}};
}

std::vector<Type> infer_avg_grad(const OpCall& call) { return {type_before(call)}; }

// ---- gradients ----

Attrs without(const Attrs& attrs, std::string_view name) {
  Attrs rest;
  for (const auto& [key, value] : attrs.entries()) {
    if (key != name) rest.set(key, value);
  }
  return rest;
}

Attrs with_size(const Attrs& attrs, const Shape& x) {
  Attrs all = without(attrs, "size");
  all.set("size", Ints{x[2], x[3]});
  return all;
}

Values max_pool_gradient(const GradCall& call) {
  return {paoding::call("max_pool2d_grad", {call.grads[0], call.outputs[1]},
                        with_size(call.node.attrs, call.inputs[0].shape()))};
}

Values max_pick_gradient(const GradCall& call) {
  return {paoding::call("max_pool2d_grad", {call.grads[0], call.inputs[1]},
                        with_size(call.node.attrs, call.inputs[0].shape())),
          Value()};
}

Values max_grad_gradient(const GradCall& call) {
  return {paoding::call("max_pool2d_pick", {call.grads[0], call.inputs[1]}, without(call.node.attrs, "size")), Value()};
}

Values avg_pool_gradient(const GradCall& call) {
  return {paoding::call("avg_pool2d_grad", {call.grads[0]}, with_size(call.node.attrs, call.inputs[0].shape()))};
}

Values avg_grad_gradient(const GradCall& call) {
  return {paoding::call("avg_pool2d", {call.grads[0]}, without(call.node.attrs, "size"))};
}

// All steps as one larger batch.
Values batch_lift(const LiftCall& call) {
  Values in = call.inputs;
  for (std::size_t i = 0; i < in.size(); ++i) {
    Shape shape = in[i].shape();
    if (!call.lifted[i]) {
      shape = shape.with_inserted(0, call.length);
      in[i] = expand(in[i], shape);
    }
    in[i] = reshape(in[i], shape.with_removed(0).with_dim(0, shape[0] * shape[1]));
  }
  Values made = paoding::call(*call.node.op, in, call.node.attrs);
  for (std::size_t k = 0; k < made.size(); ++k) {
    made[k] = reshape(made[k], call.node.types[k].shape.with_inserted(0, call.length));
  }
  return made;
}

std::vector<AttrSpec> pool_attrs(std::vector<AttrSpec> last = {}) {
  std::vector<AttrSpec> specs = {
      {.name = "kernel", .example = Ints{}, .required = true, .doc = "height and width of the window"}};
  for (AttrSpec& spec : window_attr_specs()) specs.push_back(std::move(spec));
  for (AttrSpec& spec : last) specs.push_back(std::move(spec));
  return specs;
}

// ---- cases ----

struct PoolCase {
  Shape x, y;
  Ints kernel, stride, padding = {0, 0, 0, 0}, dilation = {1, 1};

  Attrs attrs() const { return {{"kernel", kernel}, {"stride", stride}, {"padding", padding}, {"dilation", dilation}}; }
  Attrs grad_attrs() const {
    Attrs all = attrs();
    all.set("size", Ints{x[2], x[3]});
    return all;
  }
};

std::vector<PoolCase> pool_cases() {
  return {{{2, 3, 4, 6}, {2, 3, 2, 3}, {2, 2}, {2, 2}},
          {{2, 18, 5, 7}, {2, 18, 2, 3}, {2, 2}, {2, 2}},                      // odd extents, channels in vectors
          {{1, 2, 7, 7}, {1, 2, 3, 3}, {3, 3}, {2, 2}},                        // overlapping windows
          {{1, 2, 5, 5}, {1, 2, 3, 3}, {3, 3}, {2, 2}, {1, 1, 1, 1}},          // padded
          {{1, 1, 9, 8}, {1, 1, 3, 2}, {2, 3}, {3, 4}},                        // stride > kernel
          {{1, 2, 7, 6}, {1, 2, 5, 2}, {2, 3}, {1, 1}, {0, 0, 0, 0}, {2, 2}},  // taps apart
          {{1, 1, 3, 3}, {1, 1, 4, 5}, {3, 3}, {1, 1}, {2, 1, 2, 2}},          // padding > kernel / 2
          {{1, 1, 18, 17}, {1, 1, 2, 1}, {17, 17}, {1, 1}},                    // index in i32
          {{0, 2, 4, 4}, {0, 2, 2, 2}, {2, 2}, {2, 2}}};
}

std::vector<OpCase> cases_of(const std::function<OpCase(const PoolCase&)>& make, std::vector<OpCase> errors) {
  std::vector<OpCase> cases;
  for (const PoolCase& c : pool_cases()) cases.push_back(make(c));
  for (OpCase& error : errors) cases.push_back(std::move(error));
  return cases;
}

DType index_of(const PoolCase& c) { return c.kernel[0] * c.kernel[1] <= 256 ? u8 : i32; }

}  // namespace

void register_pooling() {
  // ---- max_pool2d ----
  register_op({
      .name = "max_pool2d",
      .summary = "the largest element of every window, and where in the window it is",
      .kind = OpKind::kernel,
      .inputs = {"x"},
      .attrs = pool_attrs(),
      .precision = PrecisionRule::moves,
      .indexing = Indexing::picks_in_windows,
      .infer = infer_max_pool,
      .gradient = max_pool_gradient,
      .lift = batch_lift,
      .cases = cases_of([](const PoolCase& c) { return OpCase{.shapes = {c.x}, .attrs = c.attrs()}; },
                        {{.shapes = {{3, 4, 6}}, .attrs = {{"kernel", Ints{2, 2}}}, .error = "x has shape [3, 4, 6]"},
                         {.shapes = {{1, 3, 4, 6}}, .attrs = {{"kernel", Ints{5, 2}}}, .error = "the height of the"},
                         {.shapes = {{1, 3, 4, 6}}, .attrs = {{"kernel", Ints{2}}}, .error = "kernel has 1 numbers"},
                         {.shapes = {{1, 3, 4, 6}},
                          .attrs = {{"kernel", Ints{2, 2}}, {"padding", Ints{2, 0, 0, 0}}},
                          .error = "window 0 along the height holds padding only"},
                         {.shapes = {{1, 3, 4, 6}},
                          .attrs = {{"kernel", Ints{2, 2}}, {"padding", Ints{0, 0, 0, 2}}},
                          .error = "window 6 along the width holds padding only"}}),
  });

  // ---- max_pool2d_grad ----
  register_op({
      .name = "max_pool2d_grad",
      .summary = "dy added where index says that the windows' largest elements are",
      .kind = OpKind::kernel,
      .inputs = {"dy", "index"},
      .attrs = pool_attrs({{.name = "size", .example = Ints{}, .required = true, .doc = "H and W of x"}}),
      .precision = PrecisionRule::moves,
      .indexing = Indexing::returns_to_picked,
      .infer = infer_max_grad,
      .gradient = max_grad_gradient,
      .lift = batch_lift,
      .cases = cases_of(
          [](const PoolCase& c) {
            return OpCase{.shapes = {c.y, c.y}, .attrs = c.grad_attrs(), .dtypes = {f32, index_of(c)}};
          },
          {{.shapes = {{1, 3, 2, 2}, {1, 3, 2, 2}},
            .attrs = {{"kernel", Ints{2, 2}}, {"stride", Ints{2, 2}}, {"size", Ints{4, 6}}},
            .dtypes = {f32, u8},
            .error = "the pool's result has [1, 3, 2, 3]"},
           {.shapes = {{1, 3, 2, 3}, {1, 3, 2, 3}},
            .attrs = {{"kernel", Ints{2, 2}}, {"stride", Ints{2, 2}}, {"size", Ints{4, 6}}},
            .dtypes = {f32, i32},
            .error = "index is i32[1,3,2,3]; it must be u8[1,3,2,3]"}}),
  });

  // ---- max_pool2d_pick ----
  register_op({
      .name = "max_pool2d_pick",
      .summary = "of every window of x the element that index names",
      .kind = OpKind::kernel,
      .inputs = {"x", "index"},
      .attrs = pool_attrs(),
      .precision = PrecisionRule::moves,
      .infer = infer_max_pick,
      .gradient = max_pick_gradient,
      .lift = batch_lift,
      .cases = cases_of(
          [](const PoolCase& c) {
            return OpCase{.shapes = {c.x, c.y}, .attrs = c.attrs(), .dtypes = {f32, index_of(c)}};
          },
          {}),
  });

  // ---- avg_pool2d ----
  const AttrSpec count_padding{
      .name = "count_padding", .example = true, .doc = "padding counts as zeros; otherwise not at all"};
  register_op({
      .name = "avg_pool2d",
      .summary = "the mean of every window",
      .kind = OpKind::kernel,
      .inputs = {"x"},
      .attrs = pool_attrs({count_padding}),
      .precision = PrecisionRule::moves,
      .infer = infer_avg_pool,
      .gradient = avg_pool_gradient,
      .lift = batch_lift,
      .cases = cases_of(
          [](const PoolCase& c) { return OpCase{.shapes = {c.x}, .attrs = c.attrs()}; },
          {{.shapes = {{1, 2, 5, 5}},
            .attrs = {{"kernel", Ints{3, 3}},
                      {"stride", Ints{2, 2}},
                      {"padding", Ints{1, 1, 1, 1}},
                      {"count_padding", false}}},
           {.shapes = {{1, 2, 5, 5}}, .attrs = {{"kernel", Ints{2, 2}}}, .dtypes = {i32}, .error = "x is i32"}}),
  });

  // ---- avg_pool2d_grad ----
  register_op({
      .name = "avg_pool2d_grad",
      .summary = "dy spread evenly over every window",
      .kind = OpKind::kernel,
      .inputs = {"dy"},
      .attrs =
          pool_attrs({count_padding, {.name = "size", .example = Ints{}, .required = true, .doc = "H and W of x"}}),
      .precision = PrecisionRule::moves,
      .infer = infer_avg_grad,
      .gradient = avg_grad_gradient,
      .lift = batch_lift,
      .cases = cases_of([](const PoolCase& c) { return OpCase{.shapes = {c.y}, .attrs = c.grad_attrs()}; },
                        {{.shapes = {{1, 2, 3, 3}},
                          .attrs = {{"kernel", Ints{3, 3}},
                                    {"stride", Ints{2, 2}},
                                    {"padding", Ints{1, 1, 1, 1}},
                                    {"count_padding", false},
                                    {"size", Ints{5, 5}}}}}),
  });
}

// ---- the functions of ops/convolution.h ----

namespace {

Attrs attrs_of(const Pool2dOptions& o) {
  Ints stride(o.stride.begin(), o.stride.end());
  for (std::size_t i = 0; i < 2; ++i) stride[i] = stride[i] == 0 ? o.kernel[i] : stride[i];
  return {{"kernel", Ints(o.kernel.begin(), o.kernel.end())},
          {"stride", stride},
          {"padding", Ints(o.padding.begin(), o.padding.end())},
          {"dilation", Ints(o.dilation.begin(), o.dilation.end())}};
}

}  // namespace

std::pair<Value, Value> max_pool2d_with_index(const Value& x, const Pool2dOptions& options) {
  const Values made = call(*find_op("max_pool2d"), std::array{x}, attrs_of(options));
  return {made[0], made[1]};
}

Value max_pool2d(const Value& x, const Pool2dOptions& options) { return max_pool2d_with_index(x, options).first; }

Value avg_pool2d(const Value& x, const Pool2dOptions& options, bool count_padding) {
  Attrs attrs = attrs_of(options);
  attrs.set("count_padding", count_padding);
  return call("avg_pool2d", {x}, attrs);
}

Value global_avg_pool(const Value& x) {
  if (x.shape().rank() != 4) {
    fail(ErrorKind::shape, "global_avg_pool: x has shape {}; it must be [N, C, H, W]{}", to_string(x.shape()),
         in_scope(x.graph().scope.str()));
  }
  return sum(x, std::array<std::int64_t, 2>{2, 3}) / static_cast<double>(x.shape()[2] * x.shape()[3]);
}

}  // namespace paoding
