// SPDX-License-Identifier: Apache-2.0
// Views written with reshape, expand, slice and transpose: flatten, squeeze, unsqueeze, swap_axes, crop, flip, split,
// unstack.
#include <algorithm>

#include "base/check.h"
#include "ops/axes.h"
#include "ops/families.h"
#include "ops/views.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

// The call of a composed op, for errors that are worded as those of any other.
struct Composition {
  std::vector<Type> types;
  OpCall call;

  Composition(std::string_view op, std::span<const Value> in, const Attrs& attrs)
      : types(types_of(in)), call{*find_op(op), types, attrs, {}, in[0].graph().scope} {}
  static std::vector<Type> types_of(std::span<const Value> in) {
    std::vector<Type> types;
    for (const Value& value : in) types.push_back(value.type());
    return types;
  }
};

AttrSpec axis_attr(std::int64_t axis, const char* doc) { return {.name = "axis", .example = axis, .doc = doc}; }

Values compose_flatten(std::span<const Value> in, const Attrs& attrs) {
  const Shape& shape = in[0].shape();
  if (shape.rank() == 0) return {reshape(in[0], Shape{1})};
  const Composition c("flatten", in, attrs);
  const int first = plain_axis(c.call, attrs.get_int("first"), shape.rank());
  const int last = plain_axis(c.call, attrs.get_int("last"), shape.rank());
  if (first > last) c.call.fail(ErrorKind::shape, fmt::format("axis {} stands after axis {}", first, last));
  Ints dims(shape.begin(), shape.begin() + first);
  std::int64_t merged = 1;
  for (int axis = first; axis <= last; ++axis) merged *= shape[axis];
  dims.push_back(merged);
  dims.insert(dims.end(), shape.begin() + last + 1, shape.end());
  return {reshape(in[0], dims)};
}

Values compose_squeeze(std::span<const Value> in, const Attrs& attrs) {
  const Shape& shape = in[0].shape();
  const Ints& named = attrs.get_ints("axes");
  const Composition c("squeeze", in, attrs);
  const std::vector<int> axes = plain_axes(c.call, named, shape.rank());
  Ints dims;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const bool is_named = !named.empty() && std::binary_search(axes.begin(), axes.end(), axis);
    if (is_named && shape[axis] != 1) {
      c.call.fail(ErrorKind::shape,
                  fmt::format("axis {} of a, {}, has extent {}, not 1", axis, to_string(shape), shape[axis]));
    }
    if (!is_named && (!named.empty() || shape[axis] != 1)) dims.push_back(shape[axis]);
  }
  return {reshape(in[0], dims)};
}

Values compose_unsqueeze(std::span<const Value> in, const Attrs& attrs) {
  const Shape& shape = in[0].shape();
  const Composition c("unsqueeze", in, attrs);
  const Ints& named = attrs.get_ints("axes");
  if (named.empty()) return {in[0]};
  const int rank = shape.rank() + static_cast<int>(named.size());
  const std::vector<int> axes = plain_axes(c.call, named, rank);
  Ints dims;
  for (int axis = 0, from = 0; axis < rank; ++axis) {
    dims.push_back(std::binary_search(axes.begin(), axes.end(), axis) ? 1 : shape[from++]);
  }
  return {reshape(in[0], dims)};
}

Values compose_swap_axes(std::span<const Value> in, const Attrs& attrs) {
  const Composition c("swap_axes", in, attrs);
  const int rank = in[0].shape().rank();
  const auto first = static_cast<std::size_t>(plain_axis(c.call, attrs.get_int("first"), rank));
  const auto second = static_cast<std::size_t>(plain_axis(c.call, attrs.get_int("second"), rank));
  std::vector<int> permutation;
  for (int axis = 0; axis < rank; ++axis) permutation.push_back(axis);
  std::swap(permutation[first], permutation[second]);
  return {transpose(in[0], permutation)};
}

Values compose_crop(std::span<const Value> in, const Attrs& attrs) {
  const Shape& shape = in[0].shape();
  const Composition c("crop", in, attrs);
  const Ints &before = attrs.get_ints("before"), &after = attrs.get_ints("after");
  Ints end;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    if (before.size() != static_cast<std::size_t>(shape.rank()) || after.size() != before.size()) {
      c.call.fail(ErrorKind::shape, fmt::format("before has {} entries and after {}, but a has shape {}", before.size(),
                                                after.size(), to_string(shape)));
    }
    if (before[i] < 0 || after[i] < 0 || before[i] > shape[axis] || after[i] > shape[axis] - before[i]) {
      c.call.fail(ErrorKind::shape,
                  fmt::format("takes {} and {} off axis {} of a, {}", before[i], after[i], axis, to_string(shape)));
    }
    end.push_back(shape[axis] - after[i]);
  }
  return {slice(in[0], before, end)};
}

Values compose_flip(std::span<const Value> in, const Attrs& attrs) {
  const Shape& shape = in[0].shape();
  const Composition c("flip", in, attrs);
  const auto rank = static_cast<std::size_t>(shape.rank());
  SliceRange range{Ints(rank, 0), Ints(shape.begin(), shape.end()), Ints(rank, 1)};
  for (const int axis : plain_axes(c.call, attrs.get_ints("axes"), shape.rank())) {
    const auto i = static_cast<std::size_t>(axis);
    range.start[i] = shape[axis] - 1;
    range.end[i] = -1;
    range.step[i] = -1;
  }
  return {slice(in[0], range)};
}

// Before any is made: a text of a line can ask for more than memory holds.
void check_result_count(const OpCall& call, std::int64_t count) {
  constexpr std::int64_t kMost = 1 << 16;
  if (count <= kMost) return;
  call.fail(ErrorKind::argument, fmt::format("would give {} values, the most is {}", count, kMost));
}

// The extents of the parts that split gives.
Ints sizes_of_parts(const OpCall& call) {
  const Shape& shape = call.inputs[0].shape;
  const int axis = plain_axis(call, call.attrs.get_int("axis"), shape.rank());
  const Ints& sizes = call.attrs.get_ints("sizes");
  const std::int64_t parts = call.attrs.get_int("parts"), extent = shape[axis];
  if (sizes.empty()) {
    if (parts < 1 || extent % parts != 0) {
      call.fail(ErrorKind::shape, fmt::format("axis {} of a, {}, has extent {}, which is not {} equal parts", axis,
                                              to_string(shape), extent, parts));
    }
    check_result_count(call, parts);
    return Ints(static_cast<std::size_t>(parts), extent / parts);
  }
  check_result_count(call, static_cast<std::int64_t>(sizes.size()));
  std::int64_t total = 0;
  bool is_more = false;  // than any number
  for (const std::int64_t size : sizes) {
    if (size < 0 || size > extent) {
      call.fail(ErrorKind::shape, fmt::format("a part of extent {} of axis {} of a, {}", size, axis, to_string(shape)));
    }
    is_more |= __builtin_add_overflow(total, size, &total);
  }
  if (is_more || total != extent) {
    constexpr std::size_t kMostListed = 16;
    const bool lists_all = sizes.size() <= kMostListed;
    call.fail(ErrorKind::shape,
              fmt::format("sizes [{}{}] add up to {}, but axis {} of a, {}, has extent {}",
                          fmt::join(std::span(sizes).first(lists_all ? sizes.size() : kMostListed), ", "),
                          lists_all ? "" : fmt::format(", .. {} in all", sizes.size()),
                          is_more ? "more than 2^63" : fmt::format("{}", total), axis, to_string(shape), extent));
  }
  return sizes;
}

Values compose_split(std::span<const Value> in, const Attrs& attrs) {
  const Composition c("split", in, attrs);
  const int axis = plain_axis(c.call, attrs.get_int("axis"), in[0].shape().rank());
  Values parts;
  std::int64_t start = 0;
  for (const std::int64_t size : sizes_of_parts(c.call)) {
    parts.push_back(slice(in[0], axis, start, start + size));
    start += size;
  }
  return parts;
}

Values compose_unstack(std::span<const Value> in, const Attrs& attrs) {
  const Shape& shape = in[0].shape();
  const Composition c("unstack", in, attrs);
  const int axis = plain_axis(c.call, attrs.get_int("axis"), shape.rank());
  check_result_count(c.call, shape[axis]);
  Values elements;
  for (std::int64_t i = 0; i < shape[axis]; ++i) {
    elements.push_back(reshape(slice(in[0], axis, i, i + 1), shape.with_removed(axis)));
  }
  return elements;
}

}  // namespace

void register_view_forms() {
  register_op({
      .name = "flatten",
      .summary = "the axes from first to last as one",
      .kind = OpKind::composed,
      .inputs = {"a"},
      .attrs = {{.name = "first", .example = std::int64_t{0}, .doc = "the first axis that is joined"},
                {.name = "last", .example = std::int64_t{-1}, .doc = "the last one"}},
      .compose = compose_flatten,
      .cases = {{.shapes = {{4, 3, 2}}},
                {.shapes = {{2, 4, 0, 3}}, .attrs = {{"first", std::int64_t{1}}, {"last", std::int64_t{-2}}}},
                {.shapes = {{}}},
                {.shapes = {{4, 3}},
                 .attrs = {{"first", std::int64_t{1}}, {"last", std::int64_t{0}}},
                 .error = "axis 1 stands after axis 0"}},
  });

  register_op({
      .name = "squeeze",
      .summary = "a without axes of extent 1",
      .kind = OpKind::composed,
      .inputs = {"a"},
      .attrs = {{.name = "axes", .example = Ints{}, .doc = "which; every axis of extent 1 when empty"}},
      .compose = compose_squeeze,
      .cases = {{.shapes = {{1, 3, 1, 2}}},
                {.shapes = {{1, 3, 1}}, .attrs = {{"axes", Ints{-1}}}},
                {.shapes = {{4, 3}}, .attrs = {{"axes", Ints{1}}}, .error = "has extent 3, not 1"}},
  });

  register_op({
      .name = "unsqueeze",
      .summary = "a with axes of extent 1 at `axes` of the result",
      .kind = OpKind::composed,
      .inputs = {"a"},
      .attrs = {{.name = "axes", .example = Ints{}, .required = true, .doc = "places in the result"}},
      .compose = compose_unsqueeze,
      .cases = {{.shapes = {{4, 3}}, .attrs = {{"axes", Ints{0, -1}}}},
                {.shapes = {{}}, .attrs = {{"axes", Ints{0}}}},
                {.shapes = {{4}}, .attrs = {{"axes", Ints{2}}}, .error = "axis 2 of a value of rank 2"}},
  });

  register_op({
      .name = "swap_axes",
      .summary = "a with two axes exchanged",
      .kind = OpKind::composed,
      .inputs = {"a"},
      .attrs = {{.name = "first", .example = std::int64_t{-2}, .doc = "one axis"},
                {.name = "second", .example = std::int64_t{-1}, .doc = "the other"}},
      .compose = compose_swap_axes,
      .cases = {{.shapes = {{2, 4, 3}}},
                {.shapes = {{2, 4, 3}}, .attrs = {{"first", std::int64_t{0}}, {"second", std::int64_t{1}}}},
                {.shapes = {{4}}, .error = "axis -2 of a value of rank 1"}},
  });

  register_op({
      .name = "crop",
      .summary = "a without the first `before` and the last `after` elements of every axis",
      .kind = OpKind::composed,
      .inputs = {"a"},
      .attrs = {{.name = "before", .example = Ints{}, .required = true, .doc = "taken off the front, per axis"},
                {.name = "after", .example = Ints{}, .required = true, .doc = "taken off the end, per axis"}},
      .compose = compose_crop,
      .cases = {{.shapes = {{4, 6}}, .attrs = {{"before", Ints{1, 2}}, {"after", Ints{0, 1}}}},
                {.shapes = {{4}}, .attrs = {{"before", Ints{3}}, {"after", Ints{2}}}, .error = "3 and 2 off axis 0"}},
  });

  register_op({
      .name = "flip",
      .summary = "a with the order along axes reversed",
      .kind = OpKind::composed,
      .inputs = {"a"},
      .attrs = {{.name = "axes", .example = Ints{}, .doc = "which; all when empty"}},
      .compose = compose_flip,
      .cases = {{.shapes = {{4, 3}}},
                {.shapes = {{4, 3, 5}}, .attrs = {{"axes", Ints{-1, 0}}}},
                {.shapes = {{3, 0}}},
                {.shapes = {{}}},
                {.shapes = {{4}}, .attrs = {{"axes", Ints{1}}}, .error = "axis 1 of a value of rank 1"}},
  });

  register_op({
      .name = "split",
      .summary = "parts along axis, of extents `sizes` or all the same",
      .kind = OpKind::composed,
      .inputs = {"a"},
      .attrs = {{.name = "sizes", .example = Ints{}, .doc = "extents of the parts"},
                {.name = "parts", .example = std::int64_t{1}, .doc = "how many of one extent, without sizes"},
                axis_attr(0, "negative counts from the end")},
      .compose = compose_split,
      .cases = {{.shapes = {{6, 3}}, .attrs = {{"parts", std::int64_t{3}}}},
                {.shapes = {{2, 6}}, .attrs = {{"sizes", Ints{1, 0, 5}}, {"axis", std::int64_t{-1}}}},
                {.shapes = {{6}}, .attrs = {{"parts", std::int64_t{4}}}, .error = "not 4 equal parts"},
                {.shapes = {{6}}, .attrs = {{"sizes", Ints{1, 4}}}, .error = "[1, 4] add up to 5"},
                {.shapes = {{1 << 20}},
                 .attrs = {{"parts", std::int64_t{1} << 20}},
                 .error = "would give 1048576 values, the most is 65536"}},
  });

  register_op({
      .name = "unstack",
      .summary = "every element along axis, without the axis",
      .kind = OpKind::composed,
      .inputs = {"a"},
      .attrs = {axis_attr(0, "negative counts from the end")},
      .compose = compose_unstack,
      .cases = {{.shapes = {{3, 2}}},
                {.shapes = {{2, 3, 4}}, .attrs = {{"axis", std::int64_t{-1}}}},
                {.shapes = {{std::int64_t{1} << 40}}, .error = "would give 1099511627776 values"},
                {.shapes = {{}}, .error = "axis 0 of a value of rank 0"}},
  });
}

Value flatten(const Value& a, int first, int last) {
  return call("flatten", {a}, {{"first", std::int64_t{first}}, {"last", std::int64_t{last}}});
}

Value squeeze(const Value& a, std::span<const std::int64_t> axes) {
  return call("squeeze", {a}, {{"axes", Ints(axes.begin(), axes.end())}});
}

Value unsqueeze(const Value& a, std::span<const std::int64_t> axes) {
  return call("unsqueeze", {a}, {{"axes", Ints(axes.begin(), axes.end())}});
}

Value unsqueeze(const Value& a, int axis) { return unsqueeze(a, Ints{axis}); }

Value swap_axes(const Value& a, int first, int second) {
  return call("swap_axes", {a}, {{"first", std::int64_t{first}}, {"second", std::int64_t{second}}});
}

Value crop(const Value& a, std::span<const std::int64_t> before, std::span<const std::int64_t> after) {
  return call("crop", {a},
              {{"before", Ints(before.begin(), before.end())}, {"after", Ints(after.begin(), after.end())}});
}

Value flip(const Value& a, std::span<const std::int64_t> axes) {
  return call("flip", {a}, {{"axes", Ints(axes.begin(), axes.end())}});
}

Values split(const Value& a, std::span<const std::int64_t> sizes, int axis) {
  return call(*find_op("split"), std::array{a},
              {{"sizes", Ints(sizes.begin(), sizes.end())}, {"axis", std::int64_t{axis}}});
}

Values split(const Value& a, std::int64_t parts, int axis) {
  return call(*find_op("split"), std::array{a}, {{"parts", parts}, {"axis", std::int64_t{axis}}});
}

Values unstack(const Value& a, int axis) {
  return call(*find_op("unstack"), std::array{a}, {{"axis", std::int64_t{axis}}});
}

}  // namespace paoding
