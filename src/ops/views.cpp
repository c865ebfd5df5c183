// SPDX-License-Identifier: Apache-2.0
// Ops that only say where the elements of one value are: reshape, expand, slice, transpose. As steps they cost nothing
// where a consumer can address the elements in place, else one copy. view_forms.cpp has the ops that are written with
// them.
#include "ops/views.h"

#include <algorithm>

#include "base/check.h"
#include "ops/axes.h"
#include "ops/families.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kMostStep = std::int64_t{1} << 62;

AttrSpec ints_attr(const char* name, const char* doc) {
  return {.name = name, .example = Ints{}, .required = true, .doc = doc};
}

void check_length(const OpCall& call, const char* attr, const Ints& ints, int rank) {
  if (static_cast<int>(ints.size()) != rank) {
    call.fail(ErrorKind::shape,
              fmt::format("{} has {} entries, but a has shape {}", attr, ints.size(), to_string(call.inputs[0].shape)));
  }
}

std::vector<Type> infer_reshape(const OpCall& call) {
  Ints dims = call.attrs.get_ints("shape");
  const std::int64_t elements = call.inputs[0].shape.elements();
  const auto unknown = std::count(dims.begin(), dims.end(), -1);
  if (unknown > 1) call.fail(ErrorKind::shape, "shape has more than one -1");
  if (unknown == 1) {
    const auto place = std::find(dims.begin(), dims.end(), -1);
    *place = 1;
    const std::int64_t known = to_shape(dims).elements();
    *place = known == 0 ? 0 : elements / known;
  }
  const Shape shape{std::span<const std::int64_t>(dims)};
  if (shape.elements() != elements) {
    call.fail(ErrorKind::shape,
              fmt::format("a has shape {} ({} elements), which does not become {} ({})",
                          to_string(call.inputs[0].shape), elements, to_string(shape), shape.elements()));
  }
  return {Type{call.inputs[0].dtype, shape}};
}

std::vector<Type> infer_expand(const OpCall& call) {
  const Shape target{std::span<const std::int64_t>(call.attrs.get_ints("shape"))};
  Shape joint;
  if (!broadcast(call.inputs[0].shape, target, &joint) || !(joint == target)) {
    call.fail(ErrorKind::shape, fmt::format("a has shape {}, which does not stretch to {}",
                                            to_string(call.inputs[0].shape), to_string(target)));
  }
  return {Type{call.inputs[0].dtype, target}};
}

Values lift_expand(const LiftCall& call) {
  // Extents of 1 go between the new axis and a's, so that a's axes stay aligned at the end.
  const Shape &from = call.node.types[0].shape, a = call.inputs[0].shape();
  Ints aligned(static_cast<std::size_t>(from.rank() - (a.rank() - 1)), 1);
  aligned.insert(aligned.begin(), call.length);
  aligned.insert(aligned.end(), a.begin() + 1, a.end());
  const Ints target = with_front(to_ints(from), call.length);
  return {expand(reshape(call.inputs[0], aligned), to_shape(target))};
}

std::vector<Type> infer_slice(const OpCall& call) {
  const Shape& shape = call.inputs[0].shape;
  for (const char* attr : {"start", "end", "step"}) {
    const Ints& ints = call.attrs.get_ints(attr);
    if (attr != std::string_view("step") || !ints.empty()) check_length(call, attr, ints, shape.rank());
  }
  const Ints &start = call.attrs.get_ints("start"), &end = call.attrs.get_ints("end"),
             &steps = call.attrs.get_ints("step");
  Ints dims;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    const std::int64_t step = steps.empty() ? 1 : steps[i], extent = shape[axis];
    if (step == 0 || step > kMostStep || step < -kMostStep) {
      call.fail(ErrorKind::shape, fmt::format("step is {} along axis {}", step, axis));
    }
    const bool fits = step > 0 ? start[i] >= 0 && start[i] <= end[i] && end[i] <= extent
                               : start[i] < extent && end[i] >= -1 && end[i] <= start[i];
    if (!fits) {
      call.fail(ErrorKind::shape,
                fmt::format("takes {} to {}{} of axis {}, but a has shape {}", start[i], end[i],
                            step == 1 ? "" : fmt::format(" in steps of {}", step), axis, to_string(shape)));
    }
    const std::int64_t length = step > 0 ? end[i] - start[i] : start[i] - end[i];
    dims.push_back(length == 0 ? 0 : step > 0 ? (length - 1) / step + 1 : 1 - (length - 1) / step);
  }
  return {Type{call.inputs[0].dtype, to_shape(dims)}};
}

// The gradient of a slice's elements goes back to their places, with zeros for the others: a pad, and for a step of
// more than 1 with zeros in between too. Backwards, the elements are reversed first.
Values slice_gradient(const GradCall& call) {
  const SliceRange range = slice_range(call.node);
  const Shape& whole = call.inputs[0].shape();
  Padding padding;
  Ints backwards;
  for (int axis = 0; axis < whole.rank(); ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    const std::int64_t count = call.node.types[0].shape[axis], step = range.step[i];
    if (step < 0 && count > 1) backwards.push_back(axis);
    const std::int64_t last = range.start[i] + (count - 1) * step;
    const std::int64_t lowest = count == 0 ? 0 : std::min(range.start[i], last);
    padding.before.push_back(lowest);
    padding.after.push_back(count == 0 ? whole[axis] : whole[axis] - 1 - std::max(range.start[i], last));
    padding.interior.push_back(count > 1 ? std::abs(step) - 1 : 0);
  }
  return {pad(backwards.empty() ? call.grads[0] : flip(call.grads[0], backwards), padding)};
}

Values lift_slice(const LiftCall& call) {
  SliceRange range = slice_range(call.node);
  return {slice(call.inputs[0],
                SliceRange{with_front(range.start, 0), with_front(range.end, call.length), with_front(range.step, 1)})};
}

std::vector<Type> infer_transpose(const OpCall& call) {
  const Shape& shape = call.inputs[0].shape;
  const Ints& permutation = call.attrs.get_ints("permutation");
  check_length(call, "permutation", permutation, shape.rank());
  if (!permutation.empty()) plain_axes(call, permutation, shape.rank());  // in range, none twice
  Ints dims;
  for (const std::int64_t axis : permutation) dims.push_back(shape[plain_axis(call, axis, shape.rank())]);
  return {Type{call.inputs[0].dtype, to_shape(dims)}};
}

Values lift_transpose(const LiftCall& call) {
  std::vector<int> permutation{0};
  for (const int axis : permutation_of(call.node)) permutation.push_back(axis + 1);
  return {transpose(call.inputs[0], permutation)};
}

}  // namespace

// ---- attributes ----

bool SliceRange::is_plain() const {
  return std::ranges::all_of(step, [](std::int64_t each) { return each == 1; });
}

std::int64_t SliceRange::extent(int axis) const {
  const auto i = static_cast<std::size_t>(axis);
  const std::int64_t length = step[i] > 0 ? end[i] - start[i] : start[i] - end[i];
  return length == 0 ? 0 : (length - 1) / std::abs(step[i]) + 1;
}

void set_axis(SliceRange* range, int axis, std::int64_t start, std::int64_t count, std::int64_t step) {
  const auto i = static_cast<std::size_t>(axis);
  range->start[i] = count == 0 ? 0 : start;
  range->step[i] = count <= 1 ? 1 : step;
  range->end[i] = slice_end(range->start[i], count, range->step[i]);
}

SliceRange slice_of_slice(const SliceRange& inner, const SliceRange& outer, const Shape& shape) {
  SliceRange range = inner;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    const std::int64_t count = shape[axis], step = inner.step[i];
    set_axis(&range, axis, count == 0 ? 0 : inner.start[i] + outer.start[i] * step, count,
             count <= 1 ? 1 : outer.step[i] * step);
  }
  return range;
}

SliceRange slice_range(const Node& node) {
  SliceRange range{node.attrs.get_ints("start"), node.attrs.get_ints("end"), node.attrs.get_ints("step")};
  if (range.step.empty()) range.step.assign(range.start.size(), 1);
  return range;
}

std::int64_t slice_end(std::int64_t start, std::int64_t count, std::int64_t step) {
  if (count == 0) return start;
  return start + (count - 1) * step + (step > 0 ? 1 : -1);
}

std::vector<int> permutation_of(const Node& node) {
  std::vector<int> permutation;
  const auto rank = node.types[0].shape.rank();
  for (const std::int64_t axis : node.attrs.get_ints("permutation")) {
    permutation.push_back(static_cast<int>(axis < 0 ? axis + rank : axis));
  }
  return permutation;
}

std::vector<int> inverse(const std::vector<int>& permutation) {
  std::vector<int> result(permutation.size());
  for (std::size_t i = 0; i < permutation.size(); ++i) {
    result[static_cast<std::size_t>(permutation[i])] = static_cast<int>(i);
  }
  return result;
}

void register_views() {
  // ---- reshape ----
  register_op({
      .name = "reshape",
      .summary = "the same elements in the same order under another shape",
      .kind = OpKind::view,
      .inputs = {"a"},
      .attrs = {ints_attr("shape", "extents; one may be -1")},
      .view = ViewForm::reshaped,
      .infer = infer_reshape,
      .gradient = [](const GradCall& call) { return Values{reshape(call.grads[0], call.inputs[0].shape())}; },
      .lift =
          [](const LiftCall& call) {
            return Values{reshape(call.inputs[0], with_front(to_ints(call.node.types[0].shape), call.length))};
          },
      .cases = {{.shapes = {{4, 3}}, .attrs = {{"shape", Ints{2, 6}}}},
                {.shapes = {{4, 3}}, .attrs = {{"shape", Ints{-1}}}},
                {.shapes = {{1}}, .attrs = {{"shape", Ints{}}}},
                {.shapes = {{4, 3}}, .attrs = {{"shape", Ints{5}}}, .error = "does not become [5]"}},
  });

  // ---- expand ----
  register_op({
      .name = "expand",
      .summary = "a stretched to shape by broadcasting",
      .kind = OpKind::view,
      .inputs = {"a"},
      .attrs = {ints_attr("shape", "extents to broadcast to")},
      .view = ViewForm::broadcast,
      .infer = infer_expand,
      .gradient = [](const GradCall& call) { return call.grads; },  // the driver sums it to a's shape
      .lift = lift_expand,
      .cases = {{.shapes = {{3}}, .attrs = {{"shape", Ints{4, 3}}}},
                {.shapes = {{4, 1}}, .attrs = {{"shape", Ints{2, 4, 5}}}},
                {.shapes = {{3}}, .attrs = {{"shape", Ints{4}}}, .error = "does not stretch to [4]"}},
  });

  // ---- slice ----
  register_op({
      .name = "slice",
      .summary = "elements start, start + step, .. before end along every axis",
      .kind = OpKind::view,
      .inputs = {"a"},
      .attrs = {ints_attr("start", "first index, per axis"),
                ints_attr("end", "index past the last, per axis; -1 is before the first"),
                {.name = "step", .example = Ints{}, .doc = "per axis, negative to walk backwards; all 1 by default"}},
      .view = ViewForm::sliced,
      .infer = infer_slice,
      .gradient = slice_gradient,
      .lift = lift_slice,
      .cases = {{.shapes = {{4, 6}}, .attrs = {{"start", Ints{1, 2}}, {"end", Ints{3, 6}}}},
                {.shapes = {{4, 6}}, .attrs = {{"start", Ints{0, 3}}, {"end", Ints{4, 3}}}},
                {.shapes = {{4, 7}}, .attrs = {{"start", Ints{1, 0}}, {"end", Ints{4, 7}}, {"step", Ints{2, 3}}}},
                {.shapes = {{4, 7}}, .attrs = {{"start", Ints{3, 5}}, {"end", Ints{-1, 0}}, {"step", Ints{-1, -2}}}},
                {.shapes = {{4, 7}}, .attrs = {{"start", Ints{2, 3}}, {"end", Ints{2, 7}}, {"step", Ints{-1, 2}}}},
                {.shapes = {{4, 6}},
                 .attrs = {{"start", Ints{0, 0}}, {"end", Ints{4, 7}}},
                 .error = "0 to 7 of axis 1"},
                {.shapes = {{4}},
                 .attrs = {{"start", Ints{4}}, {"end", Ints{-1}}, {"step", Ints{-1}}},
                 .error = "4 to -1 in steps of -1 of axis 0"},
                {.shapes = {{4}},
                 .attrs = {{"start", Ints{0}}, {"end", Ints{4}}, {"step", Ints{0}}},
                 .error = "step is 0 along axis 0"}},
  });

  // ---- transpose ----
  register_op({
      .name = "transpose",
      .summary = "the axes in another order: axis i of the result is axis permutation[i] of a",
      .kind = OpKind::view,
      .inputs = {"a"},
      .attrs = {ints_attr("permutation", "axes of a, each once")},
      .view = ViewForm::transposed,
      .infer = infer_transpose,
      .gradient =
          [](const GradCall& call) { return Values{transpose(call.grads[0], inverse(permutation_of(call.node)))}; },
      .lift = lift_transpose,
      .cases = {{.shapes = {{4, 3}}, .attrs = {{"permutation", Ints{1, 0}}}},
                {.shapes = {{2, 3, 4, 5}}, .attrs = {{"permutation", Ints{2, 0, -1, 1}}}},
                {.shapes = {{2, 0, 4}}, .attrs = {{"permutation", Ints{2, 1, 0}}}},
                {.shapes = {{}}, .attrs = {{"permutation", Ints{}}}},
                {.shapes = {{4, 3}}, .attrs = {{"permutation", Ints{1, -1}}}, .error = "name one axis twice"},
                {.shapes = {{4, 3}}, .attrs = {{"permutation", Ints{0}}}, .error = "permutation has 1 entries"}},
  });
}

// ---- the functions of ops/shape.h ----

Value reshape(const Value& a, std::span<const std::int64_t> shape) {
  if (std::ranges::equal(a.shape().dims(), shape)) return a;
  return call("reshape", {a}, {{"shape", Ints(shape.begin(), shape.end())}});
}

Value reshape(const Value& a, const Shape& shape) { return reshape(a, shape.dims()); }

Value expand(const Value& a, const Shape& shape) {
  return a.shape() == shape ? a : call("expand", {a}, {{"shape", to_ints(shape)}});
}

Value broadcast_to(const Value& a, const Shape& shape) { return expand(a, shape); }
Value expand_like(const Value& a, const Value& b) { return expand(a, b.shape()); }

Value transpose(const Value& a, std::span<const std::int64_t> permutation) {
  return call("transpose", {a}, {{"permutation", Ints(permutation.begin(), permutation.end())}});
}

Value transpose(const Value& a, const std::vector<int>& permutation) {
  return transpose(a, Ints(permutation.begin(), permutation.end()));
}

Value slice(const Value& a, std::span<const std::int64_t> start, std::span<const std::int64_t> end,
            std::span<const std::int64_t> step) {
  Ints steps(step.begin(), step.end());
  if (std::ranges::all_of(steps, [](std::int64_t each) { return each == 1; })) steps.clear();
  return call(
      "slice", {a},
      {{"start", Ints(start.begin(), start.end())}, {"end", Ints(end.begin(), end.end())}, {"step", std::move(steps)}});
}

Value slice(const Value& a, const SliceRange& range) { return slice(a, range.start, range.end, range.step); }

Value slice(const Value& a, int axis, std::int64_t start, std::int64_t end, std::int64_t step) {
  const auto plain = static_cast<std::size_t>(plain_axis(a, axis, "slice"));
  const auto rank = static_cast<std::size_t>(a.shape().rank());
  SliceRange range{Ints(rank, 0), to_ints(a.shape()), Ints(rank, 1)};
  range.start[plain] = start;
  range.end[plain] = end;
  range.step[plain] = step;
  return slice(a, range);
}

}  // namespace paoding
