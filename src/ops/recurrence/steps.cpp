// SPDX-License-Identifier: Apache-2.0
#include "ops/recurrence/steps.h"

#include <algorithm>

#include "base/check.h"
#include "base/one_line.h"
#include "ops/composition_gradient.h"
#include "ops/recurrence/packed_weights.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {

RecurrenceShape::RecurrenceShape(std::string_view op_name, std::string_view name, const Value& value, int gates,
                                 const Value& u, int u_gates)
    : op(op_name) {
  const Shape& shape = value.shape();
  const std::string in = in_scope(value.graph().scope.str());
  if (shape.rank() != 3 || shape[2] % gates != 0) {
    const std::string times = gates == 1 ? "" : std::to_string(gates);
    fail(ErrorKind::shape, "{}: {} has shape {}, needed is [T, B, {}H]{}", op, name, to_string(shape), times, in);
  }
  if (!is_float(value.dtype())) {
    fail(ErrorKind::dtype, "{}: {} is {}, needed are floats{}", op, name, to_string(value.dtype()), in);
  }
  steps = shape[0], rows = shape[1], hidden = shape[2] / gates;
  dtype = value.dtype(), wide = compute_dtype(dtype);
  check("u", u, {hidden, u_gates * hidden}, dtype);
}

void RecurrenceShape::check(std::string_view name, const Value& value, const Shape& shape, DType needed) const {
  const std::string in = in_scope(value.graph().scope.str());
  if (!(value.shape() == shape)) {
    fail(ErrorKind::shape, "{}: {} has shape {}, needed is {}{}", op, name, to_string(value.shape()), to_string(shape),
         in);
  }
  if (value.dtype() != needed) {
    fail(ErrorKind::dtype, "{}: {} is {}, needed is {}{}", op, name, to_string(value.dtype()), to_string(needed), in);
  }
}

void RecurrenceShape::check_lengths(const Value& lengths) const {
  if (lengths.valid()) check("lengths", lengths, {rows}, i32);
}

void RecurrenceShape::check_bias(const Value& bias, std::int64_t size) const {
  if (bias.valid()) check("bias", bias, {size}, bias.dtype() == wide ? wide : dtype);
}

Value RecurrenceShape::counted(const Value& lengths) const {
  if (!lengths.valid()) return {};
  const Value at = iota(lengths.graph(), Shape{steps, 1, 1}, 0, i32), end = reshape(lengths, Shape{1, rows, 1});
  return less(at, end);
}

OptionalInputs::OptionalInputs(std::string_view op, std::span<const Value> inputs, const Attrs& attrs,
                               std::size_t first) {
  std::size_t next = first;
  const bool has_bias = attrs.get_bool("bias");
  if (inputs.size() > first + (has_bias ? 1 : 0)) lengths = inputs[next++];
  if (has_bias && next == inputs.size()) fail(ErrorKind::argument, "{}: bias is missing", op);
  if (has_bias) bias = inputs[next++];
  if (next < inputs.size()) fail(ErrorKind::argument, "{}: has {} inputs, takes {}", op, inputs.size(), next);
}

Value with_bias(const Value& xw, const Value& bias, DType wide) {
  const Value from_x = cast(xw, wide);
  return bias.valid() ? from_x + cast(bias, wide) : from_x;
}

Value gate_of(const Value& gates, int part, std::int64_t hidden) {
  return slice(gates, gates.shape().rank() - 1, part * hidden, (part + 1) * hidden);
}

Value where_counted(const Value& counts, const Value& a, const Value& otherwise) {
  return counts.valid() ? select(counts, a, otherwise) : a;
}

Value zero_unless_counted(const Value& counts, const Value& a) {
  return counts.valid() ? select(counts, a, full(a.graph(), {}, 0, a.dtype())) : a;
}

Value with_start(const Value& start, const Value& made, bool is_reverse) {
  const Value entry = reshape(start, start.shape().with_inserted(0, 1));
  return is_reverse ? concat(std::array{made, entry}, 0) : concat(std::array{entry, made}, 0);
}

namespace {
Value entries(const Value& states, bool is_first) {
  const std::int64_t count = states.shape()[0];
  return is_first ? slice(states, 0, 0, count - 1) : slice(states, 0, 1, count);
}
}  // namespace

Value before_steps(const Value& states, bool is_reverse) { return entries(states, !is_reverse); }
Value behind_steps(const Value& states, bool is_reverse) { return entries(states, is_reverse); }

Value start_of(const Value& states, bool is_reverse) {
  const std::int64_t at = is_reverse ? states.shape()[0] - 1 : 0;
  return reshape(slice(states, 0, at, at + 1), states.shape().with_removed(0));
}

namespace {
// Whether the value is 0 everywhere, as an absent initial state is.
bool is_zero(const Value& value) {
  const Node* node = &value.graph().node(value.ref().node);
  while (node->op->name == "expand") node = &value.graph().node(node->inputs[0].node);
  return node->op->name == "full" && node->attrs.get_float("value") == 0;
}
}  // namespace

Value states_before(const Value& states, const Value& start, const Value& lengths, bool is_reverse) {
  const Value before = before_steps(states, is_reverse);
  if (!is_reverse || !lengths.valid() || is_zero(start)) return before;
  const std::int64_t steps = before.shape()[0], rows = before.shape()[1];
  const Value last = reshape(lengths, Shape{1, rows, 1}) - 1.0;
  const Value is_first = equal(iota(states.graph(), Shape{steps, 1, 1}, 0, i32), last);
  return select(is_first, start, before);
}

Value gradient_of_weights(const Value& before, const Value& gradients) {
  const std::int64_t rows = before.shape()[0] * before.shape()[1];
  const Value left = reshape(before, Shape{rows, before.shape()[2]});
  return matmul(left, reshape(gradients, Shape{rows, gradients.shape()[2]}), true);
}

Values with_sums(Values results, const Value& summed, const Attrs& attrs, DType wide) {
  if (!attrs.get_bool("sums")) return results;
  const Value total = sum(cast(summed, wide), std::array<std::int64_t, 2>{0, 1});
  results.push_back(cast(total, wide == f64 ? f64 : attrs.get_dtype("sums_dtype")));
  return results;
}

Value zeros_of(Graph& graph, DType dtype, const Shape& shape) { return expand(full(graph, {}, 0, dtype), shape); }

Value slope_of_sigmoid(const Value& y) {
  const Value rest = 1.0 - y;
  return y * rest;
}

Value slope_of_tanh(const Value& y) { return 1.0 - y * y; }

Values gradient_over_time(const CellDescriptor& cell, const GradCall& call) {
  const Values& grads = call.grads;
  const auto is_given = [&](std::size_t result) { return grads[result].valid(); };
  const bool is_internal = std::any_of(cell.internal.begin(), cell.internal.end(), is_given);
  const Value &u = call.inputs[1], &h0 = call.inputs[cell.h0], &states = call.outputs[0];
  if (call.node.attrs.get_bool("bias") || is_internal || u.shape().rank() != 2) return composition_gradient(call);
  const Value lengths = call.inputs.size() > cell.inputs ? call.inputs[cell.inputs] : Value();
  const bool is_reverse = call.node.attrs.get_bool("reverse");
  Values inputs = {u};
  for (const std::size_t result : cell.read) inputs.push_back(call.outputs[result]);
  Attrs attrs{{"states", is_given(0)}};
  if (is_given(0)) inputs.push_back(behind_steps(grads[0], is_reverse));
  for (std::size_t i = 0; i < cell.last.size(); ++i) {
    attrs.set(kLastStates[i], is_given(cell.last[i]));
    if (is_given(cell.last[i])) inputs.push_back(grads[cell.last[i]]);
  }
  attrs.set("reverse", is_reverse);
  if (cell.has_relu) attrs.set("relu", call.node.attrs.get_bool("relu"));
  if (lengths.valid()) inputs.push_back(lengths);
  const Values made = paoding::call(*find_op(std::string(cell.op) + "_grad"), inputs, attrs);

  // For xw, for h u where that is another, for the states to start from.
  const std::size_t of_product = cell.bm == 0 ? 0 : 1;
  Values result(call.inputs.size());
  result[0] = made[0];
  if (call.wanted[1]) {
    result[1] = gradient_of_weights(states_before(states, h0, lengths, is_reverse), made[of_product]);
  }
  if (cell.bm != 0 && call.wanted[cell.bm]) {
    const Value last_gate = gate_of(made[1], static_cast<int>(made[1].shape()[2] / u.shape()[0]) - 1, u.shape()[0]);
    result[cell.bm] = sum(last_gate, std::array<std::int64_t, 2>{0, 1});
  }
  const Value& dh0 = made[of_product + 1];
  result[cell.h0] = is_given(0) && call.wanted[cell.h0] ? dh0 + start_of(grads[0], is_reverse) : dh0;
  if (cell.c0 != 0) result[cell.c0] = made[of_product + 2];
  return result;
}

Values call_over_time(const CellDescriptor& cell, Values inputs, const Value& lengths, bool reverse, bool relu) {
  if (lengths.valid()) inputs.push_back(lengths);
  Attrs attrs{{"reverse", reverse}};
  if (cell.has_relu) attrs.set("relu", relu);
  return call(*find_op(cell.op), inputs, attrs);
}

Value GivenGradients::take(const char* attr, const Shape& shape, DType dtype) {
  if (!attrs_.get_bool(attr)) return {};
  const std::string name = std::string("d") + attr;
  if (next_ == inputs_.size()) fail(ErrorKind::argument, "{}: {} is missing", shape_.op, name);
  shape_.check(name, inputs_[next_], shape, dtype);
  return inputs_[next_++];
}

Value GivenGradients::take_lengths() {
  const Value lengths = next_ < inputs_.size() ? inputs_[next_++] : Value();
  shape_.check_lengths(lengths);
  if (next_ < inputs_.size()) {
    fail(ErrorKind::argument, "{}: has {} inputs, takes {}", shape_.op, inputs_.size(), next_);
  }
  return lengths;
}

}  // namespace paoding
