// SPDX-License-Identifier: Apache-2.0
// A convolution to whose result another image is added before it leaves the kernel: the end of a residual block. It is
// composed of the ops that it replaces; add_to_convolutions makes it where a kernel claims it.
#include "base/check.h"
#include "base/one_line.h"
#include "ops/composition_gradient.h"
#include "ops/conv/conv_shape.h"
#include "ops/conv/window.h"
#include "ops/families.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

Values compose(std::span<const Value> in, const Attrs& attrs) {
  Attrs conv = attrs;
  conv.set("activation", std::string("none"));
  const Value y = call("conv2d_bias", {in[0], in[1], in[2]}, conv);
  const Value& added = in[3];
  if (!(added.type() == y.type())) {
    fail(added.dtype() == y.dtype() ? ErrorKind::shape : ErrorKind::dtype,
         "conv2d_add: added is {}; the convolution's result is {}", to_string(added.type()), to_string(y.type()));
  }
  const Value sum = y + added;
  const std::string& activation = std::get<std::string>(*attrs.find("activation"));
  if (activation != "none" && activation != "relu") {
    fail(ErrorKind::argument, "conv2d_add: activation is '{}'; it must be none or relu", one_line(activation));
  }
  return {activation == "relu" ? relu(sum) : sum};
}

}  // namespace

void register_convolution_add() {
  std::vector<AttrSpec> attrs = {{.name = "activation", .example = std::string("none"), .doc = "none or relu"}};
  for (AttrSpec& spec : window_attr_specs()) attrs.push_back(std::move(spec));
  attrs.push_back({.name = "groups", .example = std::int64_t{1}, .doc = "channels in groups that do not mix"});
  const auto with_relu = [](Attrs of) {
    of.set("activation", std::string("relu"));
    return of;
  };
  register_op({
      .name = "conv2d_add",
      .summary = "activation(conv2d_bias(x, w, bias) + added) in one kernel; add_to_convolutions makes it",
      .kind = OpKind::composed,
      .inputs = {"x", "w", "bias", "added"},
      .attrs = std::move(attrs),
      .cost = [](const CostCall& call) { return convolution_cost("conv2d_add", call); },
      .convolution = Convolution{.has_bias = true, .has_added = true},
      .gradient = composition_gradient,
      .compose = compose,
      .cases = {{.shapes = {{2, 3, 5, 6}, {4, 3, 3, 3}, {4}, {2, 4, 5, 6}},
                 .attrs = with_relu({{"padding", Ints{1, 1, 1, 1}}})},
                {.shapes = {{2, 16, 4, 4}, {8, 16, 1, 1}, {8}, {2, 8, 4, 4}}},
                {.shapes = {{1, 4, 7, 5}, {6, 2, 3, 2}, {6}, {1, 6, 3, 4}},
                 .attrs = with_relu({{"stride", Ints{2, 1}},
                                     {"padding", Ints{0, 1, 1, 0}},
                                     {"dilation", Ints{1, 2}},
                                     {"groups", std::int64_t{2}}})},
                {.shapes = {{0, 3, 5, 6}, {4, 3, 3, 3}, {4}, {0, 4, 3, 4}}},
                {.shapes = {{2, 3, 5, 6}, {4, 3, 3, 3}, {4}, {2, 4, 5, 6}}, .error = "added is f32[2,4,5,6]"},
                {.shapes = {{2, 3, 5, 6}, {4, 3, 3, 3}, {4}, {2, 4, 3, 4}},
                 .attrs = {{"activation", std::string("mish")}},
                 .error = "activation is 'mish'"}},
  });
}

}  // namespace paoding
