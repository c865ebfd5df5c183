// SPDX-License-Identifier: Apache-2.0
// dynamic_slice and dynamic_update_slice: gathers of neighbours, and a choice by position.
#include "paoding/ops/dynamic.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/check.h"
#include "ops/axes.h"
#include "ops/composing.h"
#include "ops/families.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

// Where a slice is: the axes that it is narrower than its value on, and where it begins there.
struct Place {
  int axis;
  std::int64_t extent, size;
  Value start;  // i64 []
};

Ints axes_of(const Attrs& attrs, int rank) {
  Ints axes = attrs.get_ints("axes");
  if (axes.empty()) {
    axes.resize(static_cast<std::size_t>(rank));
    std::iota(axes.begin(), axes.end(), std::int64_t{0});
  }
  return axes;
}

void check_start(const OpCall& call, const Value& start, std::size_t count) {
  if (start.dtype() != i32 && start.dtype() != i64) {
    call.fail(ErrorKind::dtype, fmt::format("start is {}; it must be i32 or i64", to_string(start.dtype())));
  }
  const bool is_one = count == 1 && start.shape().rank() == 0;
  if (is_one || start.shape() == Shape{static_cast<std::int64_t>(count)}) return;
  call.fail(ErrorKind::shape, fmt::format("start has shape {}; needed is an integer for each of {} axes",
                                          to_string(start.shape()), count));
}

std::vector<Place> places_of(const OpCall& call, const Value& a, const Ints& axes, const Ints& sizes,
                             const Value& start) {
  const Shape& shape = a.shape();
  plain_axes(call, axes, shape.rank());
  if (sizes.size() != axes.size()) {
    call.fail(ErrorKind::shape,
              fmt::format("{} sizes for {} axes of a, {}", sizes.size(), axes.size(), to_string(shape)));
  }
  check_start(call, start, axes.size());
  const Value all = reshape(cast(start, i64), Shape{static_cast<std::int64_t>(axes.size())});
  std::vector<Place> places;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const int axis = plain_axis(call, axes[i], shape.rank());
    const std::int64_t extent = shape[axis], size = sizes[i], at = static_cast<std::int64_t>(i);
    if (size < 0 || size > extent) {
      call.fail(ErrorKind::shape,
                fmt::format("size {} along axis {} of a, which has shape {}", size, axis, to_string(shape)));
    }
    if (size == extent) continue;
    const auto number = [&](std::int64_t value) { return full(a.graph(), {}, value, i64); };
    const Value given = reshape(slice(all, 0, at, at + 1), Shape{});
    places.push_back({axis, extent, size, maximum(minimum(given, number(extent - size)), number(0))});
  }
  return places;
}

Values compose_slice(std::span<const Value> in, const Attrs& attrs) {
  const OpCall call = composed_call("dynamic_slice", in, attrs);
  Value result = in[0];
  for (const Place& place :
       places_of(call, in[0], axes_of(attrs, in[0].shape().rank()), attrs.get_ints("sizes"), in[1])) {
    const Value numbers = iota(result.graph(), Shape{place.size}, 0, i64) + place.start;
    result = gather(result, numbers, place.axis);
  }
  return {result};
}

// The extents of `update` along the axes.
Ints sizes_of(const OpCall& call, const Value& a, const Value& update, const Ints& axes) {
  const Shape &whole = a.shape(), &part = update.shape();
  if (update.dtype() != a.dtype()) {
    call.fail(ErrorKind::dtype,
              fmt::format("update is {}, but a is {}", to_string(update.dtype()), to_string(a.dtype())));
  }
  const std::vector<int> named = plain_axes(call, axes, whole.rank());
  bool fits = part.rank() == whole.rank();
  for (int axis = 0; fits && axis < whole.rank(); ++axis) {
    fits = part[axis] == whole[axis] || std::find(named.begin(), named.end(), axis) != named.end();
  }
  if (!fits) {
    call.fail(ErrorKind::shape, fmt::format("update has shape {}, which is no part of {} along axes [{}]",
                                            to_string(part), to_string(whole), fmt::join(axes, ", ")));
  }
  Ints sizes;
  for (const std::int64_t axis : axes) sizes.push_back(part[plain_axis(call, axis, whole.rank())]);
  return sizes;
}

Values compose_update(std::span<const Value> in, const Attrs& attrs) {
  const OpCall call = composed_call("dynamic_update_slice", in, attrs);
  const Value& a = in[0];
  const int rank = a.shape().rank();
  const Ints axes = rank == 0 ? Ints{} : axes_of(attrs, rank);
  const std::vector<Place> places = places_of(call, a, axes, sizes_of(call, a, in[1], axes), in[2]);
  Value update = in[1], is_inside;
  if (update.shape().elements() == 0) return {a};
  for (const Place& place : places) {
    const Value steps = iota(a.graph(), Shape{place.extent}, 0, i64) - place.start;  // from the first of the update
    const auto number = [&](std::int64_t value) { return full(a.graph(), {}, value, i64); };
    Value here;
    if (place.size == 1) {
      here = equal(steps, number(0));
    } else {
      here = logical_and(greater_equal(steps, number(0)), less(steps, number(place.size)));
      update = gather(update, maximum(minimum(steps, number(place.size - 1)), number(0)), place.axis);
    }
    Ints dims(static_cast<std::size_t>(rank), 1);
    dims[static_cast<std::size_t>(place.axis)] = place.extent;
    here = reshape(here, dims);
    is_inside = is_inside.valid() ? logical_and(is_inside, here) : here;
  }
  return {is_inside.valid() ? select(is_inside, update, a) : update};
}

// ---- gradients ----

Values dynamic_slice_gradient(const GradCall& call) {
  const Value zero = full(call.graph, call.inputs[0].shape(), 0, call.grads[0].dtype());
  return {paoding::call("dynamic_update_slice", {zero, call.grads[0], call.inputs[1]},
                        {{"axes", call.node.attrs.get_ints("axes")}}),
          Value()};
}

Values update_gradient(const GradCall& call) {
  const Value &g = call.grads[0], &update = call.inputs[1], &start = call.inputs[2];
  const Ints& axes = call.node.attrs.get_ints("axes");
  Values result(3);
  if (call.wanted[0]) {
    const Value zero = full(call.graph, update.shape(), 0, g.dtype());
    result[0] = paoding::call("dynamic_update_slice", {g, zero, start}, {{"axes", axes}});
  }
  if (call.wanted[1]) {
    Ints sizes;
    for (const std::int64_t axis : axes_of(call.node.attrs, update.shape().rank())) {
      sizes.push_back(update.shape()[static_cast<int>(axis < 0 ? axis + update.shape().rank() : axis)]);
    }
    result[1] = paoding::call("dynamic_slice", {g, start}, {{"sizes", sizes}, {"axes", axes}});
  }
  return result;
}

}  // namespace

void register_dynamic_ops() {
  const AttrSpec axes{.name = "axes", .example = Ints{}, .doc = "that start has numbers for; all when empty"};
  const auto one_axis = [](std::int64_t axis, std::int64_t size) {
    return Attrs{{"sizes", Ints{size}}, {"axes", Ints{axis}}};
  };
  register_op({
      .name = "dynamic_slice",
      .summary = "`sizes` elements from start on, which is moved to where they fit",
      .kind = OpKind::composed,
      .inputs = {"a", "start"},
      .attrs = {{.name = "sizes", .example = Ints{}, .required = true, .doc = "along the axes"}, axes},
      .gradient = dynamic_slice_gradient,
      .compose = compose_slice,
      .cases =
          {{.shapes = {{7}, {1}}, .attrs = {{"sizes", Ints{3}}}, .dtypes = {f32, i64}},
           {.shapes = {{5, 4}, {2}}, .attrs = {{"sizes", Ints{2, 3}}}, .dtypes = {f32, i32}},
           {.shapes = {{2, 6, 3}, {}}, .attrs = one_axis(1, 1), .dtypes = {f32, i64}},
           {.shapes = {{2, 6, 3}, {1}}, .attrs = one_axis(-1, 3), .dtypes = {f32, i64}},
           {.shapes = {{5, 4}, {2}}, .attrs = {{"sizes", Ints{2, 0}}}, .dtypes = {f32, i64}},
           {.shapes = {{6, 2}, {}}, .attrs = one_axis(0, 4), .dtypes = {boolean, i64}},
           {.shapes = {{}, {0}}, .attrs = {{"sizes", Ints{}}}, .dtypes = {f32, i64}},
           {.shapes = {{7}, {1}}, .attrs = {{"sizes", Ints{8}}}, .dtypes = {f32, i64}, .error = "size 8 along"},
           {.shapes = {{7}, {2}}, .attrs = {{"sizes", Ints{3}}}, .dtypes = {f32, i64}, .error = "start has shape"},
           {.shapes = {{7}, {1}}, .attrs = {{"sizes", Ints{3}}}, .error = "start is f32"},
           {.shapes = {{7, 2}, {1}}, .attrs = {{"sizes", Ints{3}}}, .dtypes = {f32, i64}, .error = "1 sizes for 2"},
           {.shapes = {{7}, {}}, .attrs = one_axis(1, 2), .dtypes = {f32, i64}, .error = "axis 1 of a value"}},
  });

  register_op({
      .name = "dynamic_update_slice",
      .summary = "a with update in place of the slice at start",
      .kind = OpKind::composed,
      .inputs = {"a", "update", "start"},
      .attrs = {axes},
      .gradient = update_gradient,
      .compose = compose_update,
      .cases = {{.shapes = {{7}, {3}, {1}}, .dtypes = {f32, f32, i64}},
                {.shapes = {{5, 4}, {2, 3}, {2}}, .dtypes = {f32, f32, i32}},
                {.shapes = {{2, 6, 3}, {2, 1, 3}, {}}, .attrs = {{"axes", Ints{1}}}, .dtypes = {f32, f32, i64}},
                {.shapes = {{2, 6}, {2, 6}, {1}}, .attrs = {{"axes", Ints{-1}}}, .dtypes = {f32, f32, i64}},
                {.shapes = {{5, 4}, {5, 0}, {2}}, .dtypes = {f32, f32, i64}},
                {.shapes = {{6, 2}, {3, 2}, {}}, .attrs = {{"axes", Ints{0}}}, .dtypes = {boolean, boolean, i64}},
                {.shapes = {{}, {}, {0}}, .dtypes = {f32, f32, i64}},
                {.shapes = {{7}, {8}, {1}}, .dtypes = {f32, f32, i64}, .error = "size 8 along axis 0"},
                {.shapes = {{7, 2}, {3, 1}, {}},
                 .attrs = {{"axes", Ints{0}}},
                 .dtypes = {f32, f32, i64},
                 .error = "update has shape [3, 1], which is no part of [7, 2]"},
                {.shapes = {{7}, {3}, {1}}, .dtypes = {f32, i32, i64}, .error = "update is i32, but a is f32"},
                {.shapes = {{7}, {3}, {1}}, .dtypes = {f32, f32, u8}, .error = "start is u8"}},
  });
}

Value dynamic_slice(const Value& a, const Value& start, std::span<const std::int64_t> sizes) {
  return call("dynamic_slice", {a, start}, {{"sizes", Ints(sizes.begin(), sizes.end())}});
}

Value dynamic_slice(const Value& a, int axis, const Value& start, std::int64_t size) {
  return call("dynamic_slice", {a, start}, {{"sizes", Ints{size}}, {"axes", Ints{axis}}});
}

Value dynamic_update_slice(const Value& a, const Value& update, const Value& start) {
  return call("dynamic_update_slice", {a, update, start});
}

Value dynamic_update_slice(const Value& a, const Value& update, int axis, const Value& start) {
  return call("dynamic_update_slice", {a, update, start}, {{"axes", Ints{axis}}});
}

}  // namespace paoding
