// SPDX-License-Identifier: Apache-2.0
// lstm_recurrence: the part of an LSTM layer that depends on the state, over all steps; its gradient over time is an op
// too, so that a kernel may claim either whole. Composed, each is a scan of one product and one kernel a step.
#include "base/check.h"
#include "base/one_line.h"
#include "ops/composition_gradient.h"
#include "ops/families.h"
#include "ops/recurrence/packed_weights.h"
#include "ops/recurrence/steps.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

enum LstmOutput : std::size_t { kLstmStates, kLstmCells, kLstmGates, kLstmLastH, kLstmLastC };

const CellDescriptor& lstm_cell() {
  static const CellDescriptor made{.op = "lstm_recurrence",
                                   .gates = 4,
                                   .inputs = 4,
                                   .h0 = 2,
                                   .c0 = 3,
                                   .cells = kLstmCells,
                                   .read = {kLstmGates, kLstmCells},
                                   .last = {kLstmLastH, kLstmLastC},
                                   .internal = {kLstmCells, kLstmGates}};
  return made;
}

// One call a statement below: the order of nodes must not depend on the compiler's order of evaluation.

Values compose_lstm(std::span<const Value> in, const Attrs& attrs) {
  const Value &xw = in[0], &h0 = in[2], &c0 = in[3], u = plain_weights(in[1], 4);
  const OptionalInputs given("lstm_recurrence", in, attrs, 4);
  const Value& lengths = given.lengths;
  const RecurrenceShape shape("lstm_recurrence", "xw", xw, 4, u, 4);
  const std::int64_t hidden = shape.hidden;
  shape.check("h0", h0, {shape.rows, hidden}, shape.dtype);
  shape.check("c0", c0, {shape.rows, hidden}, c0.dtype() == shape.wide ? shape.wide : shape.dtype);
  shape.check_lengths(lengths), shape.check_bias(given.bias, 4 * shape.hidden);
  const bool is_reverse = attrs.get_bool("reverse");
  Values sequences = {xw};
  if (lengths.valid()) sequences.push_back(shape.counted(lengths));
  const StepResult made = scan(
      {h0, c0}, sequences,
      [&](const Values& carry, const Values& element) {
        const Value &h = carry[0], &c = carry[1];
        const Value counts = element.size() > 1 ? element[1] : Value();
        const Value from_x = with_bias(element[0], given.bias, shape.wide), product = matmul(h, u);
        const Value sums = from_x + cast(product, shape.wide);
        const Value i = sigmoid(gate_of(sums, 0, hidden)), f = sigmoid(gate_of(sums, 1, hidden));
        const Value g = tanh(gate_of(sums, 2, hidden)), o = sigmoid(gate_of(sums, 3, hidden));
        const Value kept = f * cast(c, shape.wide), added = i * g, wide_c = kept + added;
        const Value new_c = cast(wide_c, c.dtype()), new_h = cast(o * tanh(wide_c), h.dtype());
        Values gates;
        for (const Value& gate : {i, f, g, o}) gates.push_back(zero_unless_counted(counts, cast(gate, shape.dtype)));
        const Value all_gates = concat(gates, 1), output = zero_unless_counted(counts, new_h);
        const Value next_h = where_counted(counts, new_h, h), next_c = where_counted(counts, new_c, c);
        return step({next_h, next_c}, {output, next_c, all_gates});
      },
      is_reverse);
  const Value states = with_start(h0, made.outputs[0], is_reverse), cells = with_start(c0, made.outputs[1], is_reverse);
  return {states, cells, made.outputs[2], made.carries[0], made.carries[1]};
}

Values compose_lstm_grad(std::span<const Value> in, const Attrs& attrs) {
  const Value &u = in[0], &gates = in[1], &cells = in[2];
  const RecurrenceShape shape("lstm_recurrence_grad", "gates", gates, 4, u, 4);
  const std::int64_t hidden = shape.hidden;
  const Shape state{shape.rows, hidden};
  const bool is_reverse = attrs.get_bool("reverse");
  const DType cell = cells.dtype() == shape.wide ? shape.wide : shape.dtype;
  shape.check("cells", cells, {shape.steps + 1, shape.rows, hidden}, cell);
  GivenGradients given(shape, in, attrs, 3);
  const Value dstates = given.take("states", {shape.steps, shape.rows, hidden}, shape.dtype);
  const Value dlast_h = given.take("last_h", state, shape.dtype), dlast_c = given.take("last_c", state, cell);
  const Value lengths = given.take_lengths();

  Graph& graph = gates.graph();
  const Value dh_end = dlast_h.valid() ? dlast_h : zeros_of(graph, shape.dtype, state);
  const Value dc_end = cast(dlast_c.valid() ? dlast_c : zeros_of(graph, cell, state), shape.wide);
  Values sequences = {gates, before_steps(cells, is_reverse), behind_steps(cells, is_reverse)};
  if (dstates.valid()) sequences.push_back(dstates);
  if (lengths.valid()) sequences.push_back(shape.counted(lengths));
  const StepResult made = scan(
      {dh_end, dc_end}, sequences,
      [&](const Values& carry, const Values& element) {
        const auto gate = [&](int k) { return cast(gate_of(element[0], k, hidden), shape.wide); };
        const Value i = gate(0), f = gate(1), g = gate(2), o = gate(3);
        const Value old_c = cast(element[1], shape.wide), activated_c = tanh(cast(element[2], shape.wide));
        const Value counts = lengths.valid() ? element.back() : Value();
        Value dh = cast(carry[0], shape.wide);
        if (dstates.valid()) dh = dh + cast(element[3], shape.wide);
        const Value slope_c = slope_of_tanh(activated_c), from_h = dh * o * slope_c, dc = carry[1] + from_h;
        const Value slope_i = slope_of_sigmoid(i), slope_f = slope_of_sigmoid(f);
        const Value slope_g = slope_of_tanh(g), slope_o = slope_of_sigmoid(o);
        const Value d_i = dc * g * slope_i, d_f = dc * old_c * slope_f;
        const Value d_g = dc * i * slope_g, d_o = dh * activated_c * slope_o;
        Values parts;
        for (const Value& d : {d_i, d_f, d_g, d_o}) parts.push_back(zero_unless_counted(counts, cast(d, shape.dtype)));
        const Value dxw = concat(parts, 1), product = matmul(dxw, u, false, true);
        const Value next_dh = where_counted(counts, product, carry[0]),
                    next_dc = where_counted(counts, dc * f, carry[1]);
        return step({next_dh, next_dc}, {dxw});
      },
      !is_reverse);
  const Value &dxw = made.outputs[0], dc0 = cast(made.carries[1], cell);
  return with_sums({dxw, made.carries[0], dc0}, dxw, attrs, shape.wide);
}

}  // namespace

void register_lstm_recurrence() {
  const Attrs backwards{{"reverse", true}};

  // ---- lstm_recurrence ----
  register_op({
      .name = "lstm_recurrence",
      .summary = "an LSTM over time: gates i, f, g, o of xw_t + h u; c' = f c + i g, h' = o tanh(c')",
      .kind = OpKind::composed,
      .inputs = {"xw", "u", "h0", "c0", "lengths", "bias"},
      .optional_inputs = 2,
      .attrs = lstm_cell().attrs(),
      .cost = [](const CostCall& call) { return cost_over_time(call, false); },
      .cell = &lstm_cell(),
      .gradient = [](const GradCall& call) { return gradient_over_time(lstm_cell(), call); },
      .compose = compose_lstm,
      .cases = {{.shapes = {{3, 2, 12}, {3, 12}, {2, 3}, {2, 3}, {12}}, .attrs = {{"bias", true}}},
                {.shapes = {{4, 3, 8}, {2, 8}, {3, 2}, {3, 2}, {3}, {8}},
                 .attrs = {{"reverse", true}, {"bias", true}},
                 .dtypes = {f32, f32, f32, f32, i32, f32}},
                {.shapes = {{3, 2, 12}, {3, 12}, {2, 3}, {2, 3}},
                 .attrs = {{"bias", true}},
                 .error = "bias is missing"},
                {.shapes = {{3, 2, 12}, {3, 12}, {2, 3}, {2, 3}}},
                {.shapes = {{4, 3, 4}, {1, 4}, {3, 1}, {3, 1}, {3}}, .dtypes = {f32, f32, f32, f32, i32}},
                {.shapes = {{2, 1, 8}, {2, 8}, {1, 2}, {1, 2}}, .attrs = backwards},
                {.shapes = {{4, 3, 8}, {2, 8}, {3, 2}, {3, 2}, {3}},
                 .attrs = backwards,
                 .dtypes = {f32, f32, f32, f32, i32}},
                {.shapes = {{1, 2, 20}, {5, 20}, {2, 5}, {2, 5}}},
                {.shapes = {{3, 2, 16}, {2, 2, 4, 2, 2}, {2, 4}, {2, 4}}},
                {.shapes = {{3, 2, 16}, {2, 2, 3, 2, 2}, {2, 4}, {2, 4}}, .error = "needed is [4, 16]"},
                {.shapes = {{0, 2, 8}, {2, 8}, {2, 2}, {2, 2}}},
                {.shapes = {{3, 0, 8}, {2, 8}, {0, 2}, {0, 2}}},
                {.shapes = {{3, 2, 0}, {0, 0}, {2, 0}, {2, 0}}},
                {.shapes = {{3, 2, 10}, {3, 12}, {2, 3}, {2, 3}}, .error = "xw has shape [3, 2, 10]"},
                {.shapes = {{3, 2, 12}, {3, 8}, {2, 3}, {2, 3}}, .error = "u has shape [3, 8], needed is [3, 12]"},
                {.shapes = {{3, 2, 12}, {3, 12}, {3}, {2, 3}}, .error = "h0 has shape [3], needed is [2, 3]"},
                {.shapes = {{3, 2, 12}, {3, 12}, {2, 3}, {2, 3}, {3}},
                 .dtypes = {f32, f32, f32, f32, i32},
                 .error = "lengths has shape [3], needed is [2]"},
                {.shapes = {{3, 2, 12}, {3, 12}, {2, 3}, {2, 3}, {2}},
                 .dtypes = {f32, f32, f32, f32, i64},
                 .error = "lengths is i64, needed is i32"}},
  });

  // ---- lstm_recurrence_grad ----
  const auto given = [](bool states, bool last_h, bool last_c, bool is_reverse) {
    return Attrs{{"states", states}, {"last_h", last_h}, {"last_c", last_c}, {"reverse", is_reverse}};
  };
  register_op({
      .name = "lstm_recurrence_grad",
      .summary = "gradients of lstm_recurrence: for xw, h0 and c0, from those of its results that are given",
      .kind = OpKind::composed,
      .inputs = {"u", "gates", "cells", "dstates", "dlast_h", "dlast_c", "lengths"},
      .optional_inputs = 4,
      .attrs = lstm_cell().gradient_attrs(),
      .cost = [](const CostCall& call) { return cost_over_time(call, true); },
      .cell = &lstm_cell(),
      .is_cell_gradient = true,
      .gradient = composition_gradient,
      .compose = compose_lstm_grad,
      .cases = {{.shapes = {{3, 12}, {3, 2, 12}, {4, 2, 3}, {3, 2, 3}, {2, 3}, {2, 3}},
                 .attrs = given(true, true, true, false)},
                {.shapes = {{1, 4}, {4, 3, 4}, {5, 3, 1}, {4, 3, 1}, {3, 1}, {3}},
                 .attrs = given(true, true, false, false),
                 .dtypes = {f32, f32, f32, f32, f32, i32}},
                {.shapes = {{2, 8}, {2, 1, 8}, {3, 1, 2}, {1, 2}}, .attrs = given(false, false, true, true)},
                {.shapes = {{2, 8}, {3, 2, 8}, {4, 2, 2}, {3, 2, 2}}, .attrs = {{"states", true}, {"sums", true}}},
                {.shapes = {{2, 8}, {4, 3, 8}, {5, 3, 2}, {4, 3, 2}, {3}},
                 .attrs = given(true, false, false, true),
                 .dtypes = {f32, f32, f32, f32, i32}},
                {.shapes = {{2, 8}, {0, 2, 8}, {1, 2, 2}, {2, 2}}, .attrs = given(false, true, false, false)},
                {.shapes = {{2, 8}, {3, 0, 8}, {4, 0, 2}, {3, 0, 2}}, .attrs = given(true, false, false, false)},
                {.shapes = {{3, 12}, {3, 2, 12}, {3, 2, 3}, {3, 2, 3}},
                 .attrs = given(true, false, false, false),
                 .error = "cells has shape [3, 2, 3], needed is [4, 2, 3]"},
                {.shapes = {{3, 12}, {3, 2, 12}, {4, 2, 3}},
                 .attrs = given(true, false, false, false),
                 .error = "dstates is missing"}},
  });
}

LstmRecurrence lstm_recurrence(const Value& xw, const Value& u, const Value& h0, const Value& c0, const Value& lengths,
                               bool reverse) {
  const Values made = call_over_time(lstm_cell(), {xw, u, h0, c0}, lengths, reverse);
  return {made[kLstmStates], made[kLstmCells], made[kLstmGates], made[kLstmLastH], made[kLstmLastC]};
}

}  // namespace paoding
