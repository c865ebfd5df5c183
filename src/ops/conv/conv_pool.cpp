// SPDX-License-Identifier: Apache-2.0
// A convolution whose windows are pooled before they leave the kernel, and its gradients, which are asked for where a
// pool's gradient is read: in between the image of all windows is never there. They are composed of the ops that they
// replace; pool_convolutions makes them where a kernel claims them.
#include "base/check.h"
#include "ops/composition_gradient.h"
#include "ops/conv/conv_shape.h"
#include "ops/conv/window.h"
#include "ops/families.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr double kNoWindow = 255;  // an index of 8 bits that no window of at most 255 elements has

void check_pool(const char* op, const Attrs& attrs) {
  const Ints& pool = attrs.get_ints("pool");
  const bool fits = pool.size() == 2 && pool[0] >= 1 && pool[1] >= 1 && pool[0] <= 255 && pool[0] * pool[1] <= 255;
  if (!fits) {
    fail(ErrorKind::argument, "{}: pool is [{}]; it must be two extents of 1 to 255 elements in all", op,
         fmt::join(pool, ", "));
  }
}

Attrs conv_attrs_of(const Attrs& attrs) {
  Attrs shared;
  for (const char* name : {"stride", "padding", "dilation", "groups"}) shared.set(name, *attrs.find(name));
  return shared;
}

Attrs pool_attrs_of(const Attrs& attrs) {
  const Ints& pool = attrs.get_ints("pool");
  return {{"kernel", pool}, {"stride", pool}, {"padding", Ints{0, 0, 0, 0}}, {"dilation", Ints{1, 1}}};
}

// The gradient of the image that was pooled, whose extents follow from those of the convolution.
Value spread(const Value& dy, const Value& index, std::array<std::int64_t, 2> size, const Attrs& attrs) {
  Attrs all = pool_attrs_of(attrs);
  all.set("size", Ints{size[0], size[1]});
  return call("max_pool2d_grad", {dy, index}, all);
}

std::array<std::int64_t, 2> windows_of(const Attrs& attrs, const Ints& size, const Ints& kernel) {
  const auto axes = window_axes(attrs, {size[0], size[1]}, {kernel[0], kernel[1]});
  return {axes[0].outputs, axes[1].outputs};
}

void check_rank(const char* op, const char* name, const Value& value) {
  if (value.shape().rank() == 4) return;
  fail(ErrorKind::shape, "{}: {} has shape {}; its rank must be 4", op, name, to_string(value.shape()));
}

void check_pair(const char* op, const char* name, const Ints& pair) {
  if (pair.size() == 2) return;
  fail(ErrorKind::argument, "{}: {} has {} numbers, it takes 2", op, name, pair.size());
}

Values compose_pool(std::span<const Value> in, const Attrs& attrs) {
  check_pool("conv2d_pool", attrs);
  Attrs conv = conv_attrs_of(attrs);
  conv.set("activation", *attrs.find("activation"));
  const Value all = call("conv2d_bias", {in[0], in[1], in[2]}, conv);
  const Ints& pool = attrs.get_ints("pool");
  if (all.shape()[2] < pool[0] || all.shape()[3] < pool[1]) {
    fail(ErrorKind::shape, "conv2d_pool: pool is [{}], which is larger than the {} x {} windows that there are",
         fmt::join(pool, ", "), all.shape()[2], all.shape()[3]);
  }
  const Values pooled = call(*find_op("max_pool2d"), std::array{all}, pool_attrs_of(attrs));
  const Value &y = pooled[0], &index = pooled[1];
  if (std::get<std::string>(*attrs.find("activation")) != "relu") return {y, index};
  const Value none = full(y.graph(), {}, kNoWindow, index.dtype()), zero = full(y.graph(), {}, 0, y.dtype());
  return {y, select(less_equal(y, zero), none, index)};
}

Values compose_grad_input(std::span<const Value> in, const Attrs& attrs) {
  check_pool("conv2d_pool_grad_input", attrs), check_rank("conv2d_pool_grad_input", "w", in[2]);
  const Ints& size = attrs.get_ints("size");
  check_pair("conv2d_pool_grad_input", "size", size);
  const Value &dy = in[0], &index = in[1], &w = in[2];
  Attrs conv = conv_attrs_of(attrs);
  conv.set("size", size);
  return {call("conv2d_grad_input",
               {spread(dy, index, windows_of(attrs, size, {w.shape()[2], w.shape()[3]}), attrs), w}, conv)};
}

Values compose_grad_weight(std::span<const Value> in, const Attrs& attrs) {
  check_pool("conv2d_pool_grad_weight", attrs), check_rank("conv2d_pool_grad_weight", "x", in[0]);
  const Ints& kernel = attrs.get_ints("kernel");
  check_pair("conv2d_pool_grad_weight", "kernel", kernel);
  const Value &x = in[0], &dy = in[1], &index = in[2];
  Attrs conv = conv_attrs_of(attrs);
  conv.set("kernel", kernel);
  const Value all = spread(dy, index, windows_of(attrs, {x.shape()[2], x.shape()[3]}, kernel), attrs);
  const bool is_wide = attrs.get_bool("wide");
  if (is_wide && x.dtype() != f16 && x.dtype() != bf16) {
    fail(ErrorKind::dtype, "conv2d_pool_grad_weight: wide is set and x is {}; it takes f16 and bf16",
         to_string(x.dtype()));
  }
  const Value dw = call(is_wide ? "conv2d_grad_weight_wide" : "conv2d_grad_weight", {x, all}, conv);
  const Value none = full(x.graph(), {}, kNoWindow, index.dtype()), zero = full(x.graph(), {}, 0, dy.dtype());
  const Value given = select(equal(index, none), zero, dy);
  return {dw, sum(is_wide ? cast(given, f32) : given, Ints{0, 2, 3})};
}

std::vector<AttrSpec> attrs_with(std::vector<AttrSpec> first) {
  first.push_back({.name = "pool", .example = Ints{2, 2}, .doc = "height and width of the windows that are pooled"});
  for (AttrSpec& spec : window_attr_specs()) first.push_back(std::move(spec));
  first.push_back({.name = "groups", .example = std::int64_t{1}, .doc = "channels in groups that do not mix"});
  return first;
}

const Attrs& padded() {
  static const Attrs attrs{{"padding", Ints{1, 1, 1, 1}}};
  return attrs;
}

Attrs with_attr(Attrs attrs, const char* name, AttrValue value) {
  attrs.set(name, std::move(value));
  return attrs;
}

}  // namespace

void register_convolution_pool() {
  // ---- conv2d_pool ----
  register_op({
      .name = "conv2d_pool",
      .summary = "max_pool2d(conv2d_bias(x, w, bias)) of windows side by side, and its index, 255 where a relu's "
                 "gradient is 0; pool_convolutions makes it",
      .kind = OpKind::composed,
      .inputs = {"x", "w", "bias"},
      .attrs = attrs_with({{.name = "activation", .example = std::string("none"), .doc = "none or relu"}}),
      .cost = [](const CostCall& call) { return convolution_cost("conv2d_pool", call); },
      .convolution = Convolution{.has_bias = true, .is_pooled = true},
      .gradient = composition_gradient,
      .compose = compose_pool,
      .cases = {{.shapes = {{2, 3, 6, 7}, {4, 3, 3, 3}, {4}},
                 .attrs = with_attr(padded(), "activation", std::string("relu"))},
                {.shapes = {{1, 8, 5, 6}, {8, 8, 3, 3}, {8}}},
                {.shapes = {{1, 2, 4, 9}, {3, 2, 1, 2}, {3}}, .attrs = {{"pool", Ints{1, 4}}}},
                {.shapes = {{1, 2, 4, 9}, {3, 2, 1, 2}, {3}}, .attrs = {{"pool", Ints{3, 2}}}},
                {.shapes = {{0, 3, 6, 6}, {4, 3, 3, 3}, {4}}},
                {.shapes = {{2, 3, 6, 6}, {4, 3, 3, 3}, {4}}, .attrs = {{"pool", Ints{2}}}, .error = "pool is [2]"},
                {.shapes = {{2, 3, 6, 6}, {4, 3, 3, 3}, {4}},
                 .attrs = {{"pool", Ints{16, 16}}},
                 .error = "pool is [16, 16]"},
                {.shapes = {{2, 3, 6, 6}, {4, 3, 3, 3}, {4}},
                 .attrs = {{"pool", Ints{5, 5}}},
                 .error = "larger than the 4 x 4 windows"}},
  });

  // ---- conv2d_pool_grad_input ----
  register_op({
      .name = "conv2d_pool_grad_input",
      .summary = "the gradient of conv2d_pool for its images, of where index says; pool_convolutions makes it",
      .kind = OpKind::composed,
      .inputs = {"dy", "index", "w"},
      .attrs = attrs_with({{.name = "size", .example = Ints{}, .required = true, .doc = "H and W of x"}}),
      .cost = [](const CostCall& call) { return convolution_cost("conv2d_pool_grad_input", call); },
      .convolution = Convolution{.result = Convolution::Result::image_gradient, .is_pooled = true},
      .gradient = composition_gradient,
      .compose = compose_grad_input,
      .cases = {{.shapes = {{2, 4, 3, 3}, {2, 4, 3, 3}, {4, 3, 3, 3}},
                 .attrs = with_attr(padded(), "size", Ints{6, 7}),
                 .dtypes = {f32, u8, f32}},
                {.shapes = {{1, 8, 1, 2}, {1, 8, 1, 2}, {8, 8, 3, 3}},
                 .attrs = {{"size", Ints{5, 6}}},
                 .dtypes = {f32, u8, f32}},
                {.shapes = {{1, 3, 4, 2}, {1, 3, 4, 2}, {3, 2, 1, 2}},
                 .attrs = {{"size", Ints{4, 9}}, {"pool", Ints{1, 4}}},
                 .dtypes = {f32, u8, f32}},
                {.shapes = {{1, 3, 4, 2}, {1, 3, 4, 2}, {3, 2, 2}},
                 .attrs = {{"size", Ints{4, 9}}},
                 .dtypes = {f32, u8, f32},
                 .error = "w has shape [3, 2, 2]"},
                {.shapes = {{1, 3, 4, 2}, {1, 3, 4, 2}, {3, 2, 2, 2}},
                 .attrs = {{"size", Ints{4}}},
                 .dtypes = {f32, u8, f32},
                 .error = "size has 1 numbers"}},
  });

  // ---- conv2d_pool_grad_weight ----
  register_op({
      .name = "conv2d_pool_grad_weight",
      .summary = "the gradients of conv2d_pool for its kernels and its bias, of where index says; pool_convolutions "
                 "makes it",
      .kind = OpKind::composed,
      .inputs = {"x", "dy", "index"},
      .attrs = attrs_with({{.name = "kernel", .example = Ints{}, .required = true, .doc = "KH and KW"},
                           {.name = "wide", .example = false, .doc = "of 16 bits in f32, as the sums are"}}),
      .cost = [](const CostCall& call) { return convolution_cost("conv2d_pool_grad_weight", call); },
      .convolution = Convolution{.result = Convolution::Result::weight_gradient, .is_pooled = true},
      .gradient = composition_gradient,
      .compose = compose_grad_weight,
      .cases = {{.shapes = {{2, 3, 6, 7}, {2, 4, 3, 3}, {2, 4, 3, 3}},
                 .attrs = with_attr(padded(), "kernel", Ints{3, 3}),
                 .dtypes = {f32, f32, u8}},
                {.shapes = {{1, 8, 5, 6}, {1, 8, 1, 2}, {1, 8, 1, 2}},
                 .attrs = {{"kernel", Ints{3, 3}}},
                 .dtypes = {f32, f32, u8}},
                {.shapes = {{2, 3, 6, 7}, {2, 4, 3, 3}, {2, 4, 3, 3}},
                 .attrs = with_attr(with_attr(padded(), "kernel", Ints{3, 3}), "wide", true),
                 .dtypes = {f32, f32, u8},
                 .error = "it takes f16 and bf16"},
                {.shapes = {{1, 2, 4, 9}, {1, 3, 4, 2}, {1, 3, 4, 2}},
                 .attrs = {{"kernel", Ints{1, 2}}, {"pool", Ints{1, 4}}},
                 .dtypes = {f32, f32, u8}},
                {.shapes = {{2, 4, 9}, {1, 3, 4, 2}, {1, 3, 4, 2}},
                 .attrs = {{"kernel", Ints{1, 2}}},
                 .dtypes = {f32, f32, u8},
                 .error = "x has shape [2, 4, 9]"},
                {.shapes = {{1, 2, 4, 9}, {1, 3, 4, 2}, {1, 3, 4, 2}},
                 .attrs = {{"kernel", Ints{1}}},
                 .dtypes = {f32, f32, u8},
                 .error = "kernel has 1 numbers"}},
  });
}

}  // namespace paoding
