// SPDX-License-Identifier: Apache-2.0
// rnn_recurrence: the part of a plain recurrent layer that depends on the state, over all steps, and its gradient over
// time. Both are ops like lstm_recurrence, so that a kernel may claim either whole, composed of a scan.
#include "base/check.h"
#include "ops/composition_gradient.h"
#include "ops/families.h"
#include "ops/recurrence/packed_weights.h"
#include "ops/recurrence/steps.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

enum RnnOutput : std::size_t { kRnnStates, kRnnLastH };

const CellDescriptor& rnn_cell() {
  static const CellDescriptor made{.op = "rnn_recurrence",
                                   .gates = 1,
                                   .inputs = 3,
                                   .h0 = 2,
                                   .read = {kRnnStates},
                                   .last = {kRnnLastH},
                                   .internal = {},
                                   .has_relu = true};
  return made;
}

// One call a statement below: the order of nodes must not depend on the compiler's order of evaluation.

Values compose_rnn(std::span<const Value> in, const Attrs& attrs) {
  const Value &xw = in[0], &h0 = in[2], u = plain_weights(in[1], 1);
  const OptionalInputs given("rnn_recurrence", in, attrs, 3);
  const Value& lengths = given.lengths;
  const RecurrenceShape shape("rnn_recurrence", "xw", xw, 1, u, 1);
  shape.check("h0", h0, {shape.rows, shape.hidden}, shape.dtype);
  shape.check_lengths(lengths), shape.check_bias(given.bias, shape.hidden);
  const bool is_reverse = attrs.get_bool("reverse"), is_relu = attrs.get_bool("relu");
  Values sequences = {xw};
  if (lengths.valid()) sequences.push_back(shape.counted(lengths));
  const StepResult made = scan(
      {h0}, sequences,
      [&](const Values& carry, const Values& element) {
        const Value counts = element.size() > 1 ? element[1] : Value();
        const Value product = matmul(carry[0], u), from_x = with_bias(element[0], given.bias, shape.wide);
        const Value total = from_x + cast(product, shape.wide);
        const Value new_h = cast(is_relu ? maximum(total, 0.0) : tanh(total), shape.dtype);
        const Value output = zero_unless_counted(counts, new_h);
        return step({where_counted(counts, new_h, carry[0])}, {output});
      },
      is_reverse);
  return {with_start(h0, made.outputs[0], is_reverse), made.carries[0]};
}

Values compose_rnn_grad(std::span<const Value> in, const Attrs& attrs) {
  const Value &u = in[0], &states = in[1];
  const bool is_reverse = attrs.get_bool("reverse"), is_relu = attrs.get_bool("relu");
  if (states.shape().rank() != 3 || states.shape()[0] == 0) {
    fail(ErrorKind::shape, "rnn_recurrence_grad: states have shape {}, needed is [T + 1, B, H]",
         to_string(states.shape()));
  }
  const Value behind = behind_steps(states, is_reverse);
  const RecurrenceShape shape("rnn_recurrence_grad", "states", behind, 1, u, 1);
  GivenGradients given(shape, in, attrs, 2);
  const Value dstates = given.take("states", behind.shape(), shape.dtype);
  const Value dlast_h = given.take("last_h", {shape.rows, shape.hidden}, shape.dtype);
  const Value lengths = given.take_lengths();

  Values sequences = {behind};
  if (dstates.valid()) sequences.push_back(dstates);
  if (lengths.valid()) sequences.push_back(shape.counted(lengths));
  const StepResult made = scan(
      {dlast_h.valid() ? dlast_h : zeros_of(u.graph(), shape.dtype, {shape.rows, shape.hidden})}, sequences,
      [&](const Values& carry, const Values& element) {
        const Value h = cast(element[0], shape.wide), counts = lengths.valid() ? element.back() : Value();
        Value dh = cast(carry[0], shape.wide);
        if (dstates.valid()) dh = dh + cast(element[1], shape.wide);
        const Value slope = is_relu ? cast(greater(h, 0.0), shape.wide) : slope_of_tanh(h);
        const Value dxw = zero_unless_counted(counts, cast(dh * slope, shape.dtype));
        const Value product = matmul(dxw, u, false, true);
        return step({where_counted(counts, product, carry[0])}, {dxw});
      },
      !is_reverse);
  return with_sums({made.outputs[0], made.carries[0]}, made.outputs[0], attrs, shape.wide);
}

}  // namespace

void register_rnn_recurrence() {
  const Attrs backwards{{"reverse", true}};

  // ---- rnn_recurrence ----
  register_op({
      .name = "rnn_recurrence",
      .summary = "the plain recurrence over time: h' = tanh(xw_t + h u), or relu of the sum",
      .kind = OpKind::composed,
      .inputs = {"xw", "u", "h0", "lengths", "bias"},
      .optional_inputs = 2,
      .attrs = rnn_cell().attrs(),
      .cost = [](const CostCall& call) { return cost_over_time(call, false); },
      .cell = &rnn_cell(),
      .gradient = [](const GradCall& call) { return gradient_over_time(rnn_cell(), call); },
      .compose = compose_rnn,
      .cases = {{.shapes = {{3, 2, 3}, {3, 3}, {2, 3}, {3}}, .attrs = {{"bias", true}}},
                {.shapes = {{4, 3, 2}, {2, 2}, {3, 2}, {3}, {2}},
                 .attrs = {{"reverse", true}, {"bias", true}},
                 .dtypes = {f32, f32, f32, i32, f32}},
                {.shapes = {{3, 2, 3}, {3, 3}, {2, 3}}, .attrs = {{"bias", true}}, .error = "bias is missing"},
                {.shapes = {{3, 2, 3}, {3, 3}, {2, 3}}},
                {.shapes = {{3, 2, 3}, {3, 3}, {2, 3}}, .attrs = {{"relu", true}}},
                {.shapes = {{4, 3, 1}, {1, 1}, {3, 1}, {3}}, .dtypes = {f32, f32, f32, i32}},
                {.shapes = {{2, 1, 2}, {2, 2}, {1, 2}}, .attrs = backwards},
                {.shapes = {{4, 3, 2}, {2, 2}, {3, 2}, {3}}, .attrs = backwards, .dtypes = {f32, f32, f32, i32}},
                {.shapes = {{0, 2, 2}, {2, 2}, {2, 2}}},
                {.shapes = {{3, 0, 2}, {2, 2}, {0, 2}}},
                {.shapes = {{3, 2, 0}, {0, 0}, {2, 0}}},
                {.shapes = {{3, 2}, {2, 2}, {3, 2}}, .error = "xw has shape [3, 2], needed is [T, B, H]"},
                {.shapes = {{3, 2, 3}, {3, 2}, {2, 3}}, .error = "u has shape [3, 2], needed is [3, 3]"}},
  });

  // ---- rnn_recurrence_grad ----
  const auto given = [](bool states, bool last_h, bool is_reverse, bool is_relu) {
    return Attrs{{"states", states}, {"last_h", last_h}, {"reverse", is_reverse}, {"relu", is_relu}};
  };
  register_op({
      .name = "rnn_recurrence_grad",
      .summary = "gradients of rnn_recurrence: for xw and h0, from those of its results that are given",
      .kind = OpKind::composed,
      .inputs = {"u", "states", "dstates", "dlast_h", "lengths"},
      .optional_inputs = 3,
      .attrs = rnn_cell().gradient_attrs(),
      .cost = [](const CostCall& call) { return cost_over_time(call, true); },
      .cell = &rnn_cell(),
      .is_cell_gradient = true,
      .gradient = composition_gradient,
      .compose = compose_rnn_grad,
      .cases = {{.shapes = {{3, 3}, {4, 2, 3}, {3, 2, 3}, {2, 3}}, .attrs = given(true, true, false, false)},
                {.shapes = {{3, 3}, {4, 2, 3}, {3, 2, 3}}, .attrs = given(true, false, true, true)},
                {.shapes = {{3, 3}, {4, 2, 3}, {3, 2, 3}}, .attrs = {{"states", true}, {"sums", true}}},
                {.shapes = {{1, 1}, {5, 3, 1}, {4, 3, 1}, {3, 1}, {3}},
                 .attrs = given(true, true, false, false),
                 .dtypes = {f32, f32, f32, f32, i32}},
                {.shapes = {{2, 2}, {5, 3, 2}, {3, 2}, {3}},
                 .attrs = given(false, true, true, false),
                 .dtypes = {f32, f32, f32, i32}},
                {.shapes = {{2, 2}, {1, 2, 2}, {2, 2}}, .attrs = given(false, true, false, false)},
                {.shapes = {{2, 2}, {2, 2}, {2, 2}},
                 .attrs = given(false, true, false, false),
                 .error = "states have shape [2, 2], needed is [T + 1, B, H]"},
                {.shapes = {{3, 3}, {4, 2, 3}},
                 .attrs = given(true, false, false, false),
                 .error = "dstates is missing"}},
  });
}

RnnRecurrence rnn_recurrence(const Value& xw, const Value& u, const Value& h0, const Value& lengths, bool reverse,
                             bool relu) {
  const Values made = call_over_time(rnn_cell(), {xw, u, h0}, lengths, reverse, relu);
  return {made[kRnnStates], made[kRnnLastH]};
}

}  // namespace paoding
