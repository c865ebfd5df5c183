// SPDX-License-Identifier: Apache-2.0
// gather and scatter_add, by rows and by elements: each is the other's gradient. Kernels: index_cpu.cpp.
#include <algorithm>

#include "base/check.h"
#include "ops/axes.h"
#include "ops/families.h"
#include "ops/views.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

// A function, because ops may be registered before the constants of this file exist: in a static library.
const AttrSpec& axis_attr() {
  static const AttrSpec made{.name = "axis", .example = std::int64_t{0}, .doc = "negative counts from the end"};
  return made;
}
const AttrSpec& extent_attr() {
  static const AttrSpec made{
      .name = "extent", .example = std::int64_t{0}, .required = true, .doc = "of the result along axis"};
  return made;
}

void check_indices(const OpCall& call, std::size_t input) {
  const DType dtype = call.inputs[input].dtype;
  if (dtype != i32 && dtype != i64) {
    call.fail(ErrorKind::dtype, fmt::format("indices are {}; they must be i32 or i64", to_string(dtype)));
  }
}

std::int64_t checked_extent(const OpCall& call) {
  if (call.inputs[1].dtype == boolean) call.fail(ErrorKind::dtype, "updates are bool, which do not add up");
  const std::int64_t extent = call.attrs.get_int("extent");
  if (extent < 0) call.fail(ErrorKind::shape, fmt::format("extent = {}", extent));
  return extent;
}

int axis_of(const Node& node, int rank) {
  const auto axis = static_cast<int>(node.attrs.get_int("axis"));
  return axis < 0 ? axis + rank : axis;
}

// Every extent but that of `axis` is the same.
void check_same_but(const OpCall& call, const Shape& a, const Shape& indices, int axis) {
  if (a.rank() == indices.rank() && a.with_dim(axis, 0) == indices.with_dim(axis, 0)) return;
  call.fail(ErrorKind::shape, fmt::format("indices have shape {}, which differs from {} of a in more than axis {}",
                                          to_string(indices), to_string(a), axis));
}

std::vector<Type> infer_gather(const OpCall& call) {
  check_indices(call, 1);
  const Type& a = call.inputs[0];
  const int axis = plain_axis(call, call.attrs.get_int("axis"), a.shape.rank());
  const Shape& indices = call.inputs[1].shape;
  Ints dims(a.shape.begin(), a.shape.begin() + axis);
  dims.insert(dims.end(), indices.begin(), indices.end());
  dims.insert(dims.end(), a.shape.begin() + axis + 1, a.shape.end());
  if (dims.size() > Shape::kMaxRank) {
    call.fail(ErrorKind::shape, fmt::format("a has shape {} and indices {}: the result would have {} axes, at most {} "
                                            "are possible",
                                            to_string(a.shape), to_string(indices), dims.size(), Shape::kMaxRank));
  }
  return {Type{a.dtype, to_shape(dims)}};
}

std::vector<Type> infer_gather_elements(const OpCall& call) {
  check_indices(call, 1);
  const Type& a = call.inputs[0];
  const int axis = plain_axis(call, call.attrs.get_int("axis"), a.shape.rank());
  check_same_but(call, a.shape, call.inputs[1].shape, axis);
  return {Type{a.dtype, call.inputs[1].shape}};
}

std::vector<Type> infer_scatter_add(const OpCall& call) {
  check_indices(call, 0);
  const Shape &indices = call.inputs[0].shape, &updates = call.inputs[1].shape;
  const std::int64_t extent = checked_extent(call);
  const int rank = updates.rank() - indices.rank() + 1;  // of the result
  if (rank < 1) {
    call.fail(ErrorKind::shape, fmt::format("updates have shape {}, fewer axes than indices, {}", to_string(updates),
                                            to_string(indices)));
  }
  const int axis = plain_axis(call, call.attrs.get_int("axis"), rank);
  if (!std::equal(indices.begin(), indices.end(), updates.begin() + axis)) {
    call.fail(ErrorKind::shape, fmt::format("updates have shape {}, which from axis {} on is not that of indices, {}",
                                            to_string(updates), axis, to_string(indices)));
  }
  Ints dims(updates.begin(), updates.begin() + axis);
  dims.push_back(extent);
  dims.insert(dims.end(), updates.begin() + axis + indices.rank(), updates.end());
  return {Type{call.inputs[1].dtype, to_shape(dims)}};
}

std::vector<Type> infer_scatter_add_sorted(const OpCall& call) {
  const Type& indices = call.inputs[0];
  const Shape flat{indices.shape.elements()};
  if (call.inputs[1] != Type{indices.dtype, flat} || call.inputs[2] != Type{i64, flat}) {
    call.fail(ErrorKind::shape, fmt::format("sorted is {} and places {}, where indices are {}",
                                            to_string(call.inputs[1]), to_string(call.inputs[2]), to_string(indices)));
  }
  const Type scattered[] = {indices, call.inputs[3]};
  return infer_scatter_add({call.op, scattered, call.attrs, call.bodies, call.scope});
}

std::vector<Type> infer_scatter_add_elements(const OpCall& call) {
  check_indices(call, 0);
  const Shape& updates = call.inputs[1].shape;
  const std::int64_t extent = checked_extent(call);
  const int axis = plain_axis(call, call.attrs.get_int("axis"), updates.rank());
  if (!(call.inputs[0].shape == updates)) {
    call.fail(ErrorKind::shape, fmt::format("indices have shape {}, but updates {}", to_string(call.inputs[0].shape),
                                            to_string(updates)));
  }
  return {Type{call.inputs[1].dtype, updates.with_dim(axis, extent)}};
}

// ---- all steps of a scan at once ----

Value with_steps(const LiftCall& call, std::size_t i) {
  if (call.lifted[i]) return call.inputs[i];
  Ints dims = to_ints(call.inputs[i].shape());
  dims.insert(dims.begin(), call.length);
  return expand(call.inputs[i], to_shape(dims));
}

// Indices that differ from step to step, as one per element of [steps, before.., indices as one, after..].
Value index_per_element(const Value& indices, const Shape& shape, int axis) {
  Ints thin(static_cast<std::size_t>(shape.rank()), 1);
  thin[0] = shape[0];
  thin[static_cast<std::size_t>(axis)] = shape[axis];
  return expand(reshape(indices, thin), shape);
}

Values lift_gather(const LiftCall& call) {
  const Value &a = call.inputs[0], &indices = call.inputs[1];
  const int axis = axis_of(call.node, a.shape().rank() - (call.lifted[0] ? 1 : 0));
  if (!call.lifted[1]) return {gather(a, indices, axis + 1)};
  if (call.lifted[0]) {  // other rows of another table in every step
    const Shape one_axis =
        a.shape().with_dim(axis + 1, indices.shape().elements() / std::max<std::int64_t>(call.length, 1));
    Ints whole = to_ints(call.node.types[0].shape);
    whole.insert(whole.begin(), call.length);
    return {reshape(gather_elements(a, index_per_element(indices, one_axis, axis + 1), axis + 1), whole)};
  }
  const Value made = gather(a, indices, axis);
  std::vector<int> permutation{axis};  // the steps stand where the indices do: they come to the front
  for (int k = 0; k < made.shape().rank(); ++k) {
    if (k != axis) permutation.push_back(k);
  }
  return {axis == 0 ? made : transpose(made, permutation)};
}

Values lift_gather_elements(const LiftCall& call) {
  const int axis = axis_of(call.node, call.node.types[0].shape.rank());
  return {gather_elements(with_steps(call, 0), with_steps(call, 1), axis + 1)};
}

Values lift_scatter_add(const LiftCall& call) {
  const Shape& result = call.node.types[0].shape;
  const int axis = axis_of(call.node, result.rank());
  const std::int64_t extent = result[axis];
  if (!call.lifted[0]) return {scatter_add(call.inputs[0], call.inputs[1], axis + 1, extent)};
  const std::int64_t count = call.inputs[0].shape().elements() / std::max<std::int64_t>(call.length, 1);
  const Shape one_axis = result.with_dim(axis, count).with_inserted(0, call.length);
  const Value updates = reshape(with_steps(call, 1), one_axis);
  return {scatter_add_elements(index_per_element(call.inputs[0], one_axis, axis + 1), updates, axis + 1, extent)};
}

Values lift_scatter_add_elements(const LiftCall& call) {
  const int axis = axis_of(call.node, call.node.types[0].shape.rank());
  return {scatter_add_elements(with_steps(call, 0), with_steps(call, 1), axis + 1, call.node.attrs.get_int("extent"))};
}

// The order serves every step if the indices do.
Values lift_scatter_add_sorted(const LiftCall& call) {
  if (call.lifted[0] || call.lifted[1] || call.lifted[2]) return {};
  Attrs attrs = call.node.attrs;
  attrs.set("axis", std::int64_t{axis_of(call.node, call.node.types[0].shape.rank()) + 1});
  return paoding::call(*call.node.op, call.inputs, attrs);
}

// ---- embedding ----

Values compose_embedding(std::span<const Value> in, const Attrs& attrs) {
  const Type types[] = {in[0].type(), in[1].type()};
  const OpCall call{*find_op("embedding"), types, attrs, {}, in[0].graph().scope};
  check_indices(call, 1);
  const Shape& shape = types[0].shape;
  if (shape.rank() == 0) call.fail(ErrorKind::shape, "table has no rows: its shape is []");
  if (const std::int64_t padding = attrs.get_int("padding"); padding < -1 || padding >= shape[0]) {
    call.fail(ErrorKind::argument,
              fmt::format("padding = {}, but table, {}, has {} rows", padding, to_string(shape), shape[0]));
  }
  return {gather(in[0], in[1], 0)};
}

Values embedding_gradient(const GradCall& call) {
  const std::int64_t rows = call.inputs[0].shape()[0], padding = call.node.attrs.get_int("padding");
  if (padding < 0) return {scatter_add(call.inputs[1], call.grads[0], 0, rows), Value()};
  return {paoding::call("embedding_grad", {call.inputs[1], call.grads[0]}, {{"padding", padding}, {"extent", rows}}),
          Value()};
}

// `values`, one per id, without those of the padding.
Value without_padding(const Value& ids, const Value& values, std::int64_t padding) {
  Ints dims = to_ints(ids.shape());
  dims.resize(static_cast<std::size_t>(values.shape().rank()), 1);
  return select(reshape(equal(ids, static_cast<double>(padding)), dims), 0.0, values);
}

Values compose_embedding_grad(std::span<const Value> in, const Attrs& attrs) {
  const Type types[] = {in[0].type(), in[1].type()};
  Attrs of_scatter = attrs;
  of_scatter.set("axis", std::int64_t{0});
  infer_scatter_add({*find_op("embedding_grad"), types, of_scatter, {}, in[0].graph().scope});  // for its errors
  return {scatter_add(in[0], without_padding(in[0], in[1], attrs.get_int("padding")), 0, attrs.get_int("extent"))};
}

Values embedding_grad_gradient(const GradCall& call) {
  const Value read = gather(call.grads[0], call.inputs[0], 0);
  return {Value(), without_padding(call.inputs[0], read, call.node.attrs.get_int("padding"))};
}

// Counts the elements that are picked, not all that could be.
OpCost gather_cost(const CostCall& call) {
  return {.bytes = size_bytes(call.inputs[1]) + 2 * size_bytes(call.outputs[0])};
}

}  // namespace

void register_index_ops() {
  // Indices of the cases are 0 to 5: the integers that tests feed, and 1 more.
  register_op({
      .name = "gather",
      .summary = "a's elements at indices along axis: a.shape[:axis] + indices.shape + a.shape[axis + 1:]",
      .kind = OpKind::kernel,
      .inputs = {"a", "indices"},
      .attrs = {axis_attr()},
      .cost = gather_cost,
      .precision = PrecisionRule::moves,
      .infer = infer_gather,
      .gradient =
          [](const GradCall& call) {
            const Shape& shape = call.inputs[0].shape();
            const int axis = axis_of(call.node, shape.rank());
            return Values{scatter_add(call.inputs[1], call.grads[0], axis, shape[axis]), Value()};
          },
      .lift = lift_gather,
      .cases = {{.shapes = {{6, 5}, {4}}, .dtypes = {f32, i32}},
                {.shapes = {{2, 7, 3}, {2, 3}}, .attrs = {{"axis", std::int64_t{1}}}, .dtypes = {f32, i64}},
                {.shapes = {{3, 6}, {8}}, .attrs = {{"axis", std::int64_t{-1}}}, .dtypes = {f32, i32}},
                {.shapes = {{6, 40}, {}}, .dtypes = {f32, i64}},
                {.shapes = {{6, 3}, {0}}, .dtypes = {f32, i64}},
                {.shapes = {{6, 0}, {2}}, .dtypes = {f32, i64}},
                {.shapes = {{6, 2}, {3}}, .dtypes = {boolean, i32}},
                {.shapes = {{6}, {2}}, .dtypes = {f32, f32}, .error = "indices are f32; they must be i32 or i64"},
                {.shapes = {{6}, {2}},
                 .attrs = {{"axis", std::int64_t{1}}},
                 .dtypes = {f32, i32},
                 .error = "axis 1 of a value of rank 1"},
                {.shapes = {{6, 1, 1, 1, 1}, {1, 1, 1, 1, 1}}, .dtypes = {f32, i32}, .error = "would have 9 axes"}},
  });

  register_op({
      .name = "embedding",
      .summary = "rows of table by number; the row `padding` gets no gradient",
      .kind = OpKind::composed,
      .inputs = {"table", "ids"},
      .attrs = {{.name = "padding", .example = std::int64_t{-1}, .doc = "a row that stays as it is; none when -1"}},
      .gradient = embedding_gradient,
      .compose = compose_embedding,
      .cases = {{.shapes = {{7, 4}, {3, 2}}, .dtypes = {f32, i32}},
                {.shapes = {{6, 2, 3}, {9}}, .attrs = {{"padding", std::int64_t{2}}}, .dtypes = {f32, i64}},
                {.shapes = {{6}, {}}, .dtypes = {f32, i64}},
                {.shapes = {{6, 3}, {0}}, .attrs = {{"padding", std::int64_t{0}}}, .dtypes = {f32, i64}},
                {.shapes = {{7, 4}, {3}}, .dtypes = {f32, u8}, .error = "indices are u8"},
                {.shapes = {{}, {3}}, .dtypes = {f32, i32}, .error = "table has no rows"},
                {.shapes = {{7, 4}, {3}},
                 .attrs = {{"padding", std::int64_t{7}}},
                 .dtypes = {f32, i32},
                 .error = "padding = 7, but table, [7, 4], has 7 rows"}},
  });

  register_op({
      .name = "embedding_grad",
      .summary =
          "the gradient of embedding's table: scatter_add along the first axis of what does not belong to the padding",
      .kind = OpKind::composed,
      .inputs = {"ids", "grad"},
      .attrs = {{.name = "padding", .example = std::int64_t{0}, .required = true, .doc = "the row that stays 0"},
                extent_attr()},
      .precision = PrecisionRule::accumulates,
      .indexing = Indexing::adds_rows,
      .gradient = embedding_grad_gradient,
      .compose = compose_embedding_grad,
      .cases = {{.shapes = {{9}, {9, 5}},
                 .attrs = {{"padding", std::int64_t{2}}, {"extent", std::int64_t{6}}},
                 .dtypes = {i32, f32}},
                {.shapes = {{3, 4}, {3, 4}},
                 .attrs = {{"padding", std::int64_t{0}}, {"extent", std::int64_t{7}}},
                 .dtypes = {i64, f32}},
                {.shapes = {{0}, {0, 3}},
                 .attrs = {{"padding", std::int64_t{1}}, {"extent", std::int64_t{4}}},
                 .dtypes = {i32, f32}},
                {.shapes = {{4}, {3}},
                 .attrs = {{"padding", std::int64_t{0}}, {"extent", std::int64_t{6}}},
                 .dtypes = {i64, f32},
                 .error = "from axis 0 on is not that of indices, [4]"}},
  });

  register_op({
      .name = "gather_elements",
      .summary = "one element per index: a[p, indices[p, i, q], q], the middle one being axis",
      .kind = OpKind::kernel,
      .inputs = {"a", "indices"},
      .attrs = {axis_attr()},
      .cost = gather_cost,
      .precision = PrecisionRule::moves,
      .infer = infer_gather_elements,
      .gradient =
          [](const GradCall& call) {
            const Shape& shape = call.inputs[0].shape();
            const int axis = axis_of(call.node, shape.rank());
            return Values{scatter_add_elements(call.inputs[1], call.grads[0], axis, shape[axis]), Value()};
          },
      .lift = lift_gather_elements,
      .cases = {{.shapes = {{6, 3}, {4, 3}}, .dtypes = {f32, i32}},
                {.shapes = {{2, 7, 3}, {2, 9, 3}}, .attrs = {{"axis", std::int64_t{1}}}, .dtypes = {f32, i64}},
                {.shapes = {{3, 6}, {3, 1}}, .attrs = {{"axis", std::int64_t{-1}}}, .dtypes = {f32, i64}},
                {.shapes = {{6}, {0}}, .dtypes = {f32, i64}},
                {.shapes = {{6, 3}, {4, 2}},
                 .dtypes = {f32, i64},
                 .error = "differs from [6, 3] of a in more than axis 0"},
                {.shapes = {{6, 3}, {4}}, .dtypes = {f32, i64}, .error = "indices have shape [4]"}},
  });

  register_op({
      .name = "scatter_add",
      .summary = "the sum of updates at indices along axis, 0 elsewhere",
      .kind = OpKind::kernel,
      .inputs = {"indices", "updates"},
      .attrs = {axis_attr(), extent_attr()},
      .precision = PrecisionRule::accumulates,
      .indexing = Indexing::adds_rows,
      .infer = infer_scatter_add,
      .gradient =
          [](const GradCall& call) {
            const int axis = axis_of(call.node, call.node.types[0].shape.rank());
            return Values{Value(), gather(call.grads[0], call.inputs[0], axis)};
          },
      .lift = lift_scatter_add,
      .cases = {{.shapes = {{9}, {9, 5}}, .attrs = {{"extent", std::int64_t{6}}}, .dtypes = {i32, f32}},
                {.shapes = {{2, 3}, {2, 2, 3, 3}},
                 .attrs = {{"axis", std::int64_t{1}}, {"extent", std::int64_t{7}}},
                 .dtypes = {i64, f32}},
                {.shapes = {{8}, {3, 8}},
                 .attrs = {{"axis", std::int64_t{-1}}, {"extent", std::int64_t{6}}},
                 .dtypes = {i32, f32}},
                {.shapes = {{0}, {0, 3}}, .attrs = {{"extent", std::int64_t{4}}}, .dtypes = {i32, f32}},
                {.shapes = {{}, {3}}, .attrs = {{"extent", std::int64_t{6}}}, .dtypes = {i64, f32}},
                {.shapes = {{4}, {3}},
                 .attrs = {{"extent", std::int64_t{6}}},
                 .dtypes = {i64, f32},
                 .error = "from axis 0 on is not that of indices, [4]"},
                {.shapes = {{4}, {4}},
                 .attrs = {{"extent", std::int64_t{-6}}},
                 .dtypes = {i64, f32},
                 .error = "extent = -6"}},
  });

  register_op({
      .name = "scatter_add_sorted",
      .summary = "scatter_add where the indices are there in ascending order too, each with its place among them",
      .kind = OpKind::kernel,
      .inputs = {"indices", "sorted", "places", "updates"},
      .attrs = {axis_attr(),
                extent_attr(),
                {.name = "padding", .example = std::int64_t{-1}, .doc = "a row that stays 0; none when -1"}},
      .precision = PrecisionRule::accumulates,
      .infer = infer_scatter_add_sorted,
      .lift = lift_scatter_add_sorted,
  });

  register_op({
      .name = "scatter_add_elements",
      .summary = "the sum of updates at one index each along axis, 0 elsewhere",
      .kind = OpKind::kernel,
      .inputs = {"indices", "updates"},
      .attrs = {axis_attr(), extent_attr()},
      .precision = PrecisionRule::accumulates,
      .infer = infer_scatter_add_elements,
      .gradient =
          [](const GradCall& call) {
            const int axis = axis_of(call.node, call.node.types[0].shape.rank());
            return Values{Value(), gather_elements(call.grads[0], call.inputs[0], axis)};
          },
      .lift = lift_scatter_add_elements,
      .cases = {{.shapes = {{9, 3}, {9, 3}}, .attrs = {{"extent", std::int64_t{6}}}, .dtypes = {i32, f32}},
                {.shapes = {{2, 5}, {2, 5}},
                 .attrs = {{"axis", std::int64_t{-1}}, {"extent", std::int64_t{7}}},
                 .dtypes = {i64, f32}},
                {.shapes = {{4, 3}, {4}},
                 .attrs = {{"extent", std::int64_t{6}}},
                 .dtypes = {i64, f32},
                 .error = "indices have shape [4, 3], but updates [4]"}},
  });
}

Value gather(const Value& a, const Value& indices, int axis) {
  return call("gather", {a, indices}, {{"axis", std::int64_t{axis}}});
}

Value embedding(const Value& table, const Value& ids, std::int64_t padding) {
  return call("embedding", {table, ids}, {{"padding", padding}});
}

Value gather_elements(const Value& a, const Value& indices, int axis) {
  return call("gather_elements", {a, indices}, {{"axis", std::int64_t{axis}}});
}

Value take_along_axis(const Value& a, const Value& indices, int axis) { return gather_elements(a, indices, axis); }

Value scatter_add(const Value& indices, const Value& updates, int axis, std::int64_t extent) {
  return call("scatter_add", {indices, updates}, {{"axis", std::int64_t{axis}}, {"extent", extent}});
}

Value scatter_add(const Value& into, const Value& indices, const Value& updates, int axis) {
  const int plain = plain_axis(into, axis, "scatter_add");
  const Value added = scatter_add(indices, updates, plain, into.shape()[plain]);
  if (!(added.shape() == into.shape())) {
    fail(ErrorKind::shape, "scatter_add: updates {} at indices {} along axis {} make {}, but into has shape {}",
         to_string(updates.shape()), to_string(indices.shape()), plain, to_string(added.shape()),
         to_string(into.shape()));
  }
  return into + added;
}

Value scatter_add_elements(const Value& indices, const Value& updates, int axis, std::int64_t extent) {
  return call("scatter_add_elements", {indices, updates}, {{"axis", std::int64_t{axis}}, {"extent", extent}});
}

}  // namespace paoding
