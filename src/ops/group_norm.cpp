// SPDX-License-Identifier: Apache-2.0
// group_norm: a layer norm of the channels in groups.
#include "paoding/ops/group_norm.h"

#include "base/check.h"
#include "ops/axes.h"
#include "ops/families.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

Values compose_group_norm(std::span<const Value> in, const Attrs& attrs) {
  const OpCall call{*find_op("group_norm"), {}, attrs, {}, in[0].graph().scope};
  const Shape& shape = in[0].shape();
  const std::int64_t groups = attrs.get_int("groups");
  if (!is_float(in[0].dtype())) {
    call.fail(ErrorKind::dtype, fmt::format("x is {}, needed are floats", to_string(in[0].dtype())));
  }
  if (shape.rank() < 2 || shape.rank() == Shape::kMaxRank) {
    call.fail(ErrorKind::shape, fmt::format("x has shape {}, needed is [N, C, ..] of up to 7 axes", to_string(shape)));
  }
  const std::int64_t channels = shape[1];
  if (groups < 1 || channels % groups != 0) {
    call.fail(ErrorKind::argument, fmt::format("{} groups do not divide {} channels", groups, channels));
  }
  Ints dims{shape[0], groups, channels / groups}, along{groups, channels / groups}, axes{2};
  for (int axis = 2; axis < shape.rank(); ++axis) {
    dims.push_back(shape[axis]), along.push_back(1), axes.push_back(axis + 1);
  }
  const auto per_channel = [&](const char* name, const Value& affine) {
    if (affine.shape() == Shape{channels}) return reshape(affine, along);
    call.fail(ErrorKind::shape,
              fmt::format("{} has shape {}, needed is [{}]", name, to_string(affine.shape()), channels));
  };
  const Value y = layer_norm(reshape(in[0], dims), per_channel("gamma", in[1]), per_channel("beta", in[2]), axes,
                             attrs.get_float("epsilon"));
  return {reshape(y, shape)};
}

}  // namespace

void register_group_norm() {
  const auto groups = [](std::int64_t number) { return Attrs{{"groups", number}}; };
  register_op({
      .name = "group_norm",
      .summary = "layer_norm of each group of channels of each image",
      .kind = OpKind::composed,
      .inputs = {"x", "gamma", "beta"},
      .attrs =
          {{.name = "groups", .example = std::int64_t{1}, .required = true, .doc = "that the channels are cut into"},
           {.name = "epsilon", .example = 1e-5, .doc = "added to the variance"}},
      .compose = compose_group_norm,
      .cases = {{.shapes = {{3, 4, 2, 3}, {4}, {4}}, .attrs = groups(2)},
                {.shapes = {{2, 6}, {6}, {6}}, .attrs = groups(2)},
                {.shapes = {{2, 3, 5}, {3}, {3}}, .attrs = groups(1)},
                {.shapes = {{2, 3, 5}, {3}, {3}}, .attrs = groups(3)},
                {.shapes = {{0, 4, 3}, {4}, {4}}, .attrs = groups(2)},
                {.shapes = {{2, 4}, {4}, {4}}, .attrs = groups(3), .error = "3 groups do not divide 4 channels"},
                {.shapes = {{4}, {4}, {4}}, .attrs = groups(1), .error = "x has shape [4], needed is [N, C, ..]"},
                {.shapes = {{2, 4}, {3}, {4}}, .attrs = groups(1), .error = "gamma has shape [3], needed is [4]"},
                {.shapes = {{2, 4}, {4}, {4}}, .attrs = groups(1), .dtypes = {i32, i32, i32}, .error = "x is i32"}},
  });
}

Value group_norm(const Value& x, std::int64_t groups, const Value& gamma, const Value& beta, double epsilon) {
  const auto one_or = [&](const Value& given, double value) {
    const std::int64_t channels = x.shape().rank() > 1 ? x.shape()[1] : 1;
    return given.valid() ? given : full(x.graph(), {channels}, value, x.dtype());
  };
  return call("group_norm", {x, one_or(gamma, 1), one_or(beta, 0)}, {{"groups", groups}, {"epsilon", epsilon}});
}

}  // namespace paoding
