// SPDX-License-Identifier: Apache-2.0
// gru_recurrence: the part of a GRU layer that depends on the state, over all steps, and its gradient over time. Both
// are ops like lstm_recurrence, so that a kernel may claim either whole, composed of a scan. In 16 bits the state,
// which adds up from step to step, is carried in f32; products and results have it rounded.
#include "base/check.h"
#include "ops/composition_gradient.h"
#include "ops/families.h"
#include "ops/recurrence/packed_weights.h"
#include "ops/recurrence/steps.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

enum GruOutput : std::size_t { kGruStates, kGruSaved, kGruLastH };

const CellDescriptor& gru_cell() {
  static const CellDescriptor made{.op = "gru_recurrence",
                                   .gates = 3,
                                   .inputs = 4,
                                   .h0 = 3,
                                   .bm = 2,
                                   .read = {kGruSaved, kGruStates},
                                   .last = {kGruLastH},
                                   .internal = {kGruSaved}};
  return made;
}

// One call a statement below: the order of nodes must not depend on the compiler's order of evaluation.

Values compose_gru(std::span<const Value> in, const Attrs& attrs) {
  const Value &xw = in[0], &bm = in[2], &h0 = in[3], u = plain_weights(in[1], 3);
  const OptionalInputs given("gru_recurrence", in, attrs, 4);
  const Value& lengths = given.lengths;
  const RecurrenceShape shape("gru_recurrence", "xw", xw, 3, u, 3);
  const std::int64_t hidden = shape.hidden;
  shape.check("bm", bm, {hidden}, shape.dtype);
  shape.check("h0", h0, {shape.rows, hidden}, shape.dtype);
  shape.check_lengths(lengths), shape.check_bias(given.bias, 3 * shape.hidden);
  const bool is_reverse = attrs.get_bool("reverse");
  Values sequences = {xw};
  if (lengths.valid()) sequences.push_back(shape.counted(lengths));
  const StepResult made = scan(
      {cast(h0, shape.wide)}, sequences,
      [&](const Values& carry, const Values& element) {
        const Value counts = element.size() > 1 ? element[1] : Value();
        const Value &h = carry[0], product = matmul(cast(h, shape.dtype), u);
        const Value from_x = given.bias.valid() ? with_bias(element[0], given.bias, shape.wide) : element[0];
        const auto of_x = [&](int k) { return cast(gate_of(from_x, k, hidden), shape.wide); };
        const auto of_h = [&](int k) { return cast(gate_of(product, k, hidden), shape.wide); };
        const Value x_r = of_x(0), r = sigmoid(x_r + of_h(0));
        const Value x_z = of_x(1), z = sigmoid(x_z + of_h(1));
        const Value inner = of_h(2), m = inner + cast(bm, shape.wide);
        const Value x_n = of_x(2), n = tanh(x_n + r * m);
        const Value kept = h - n, new_h = n + z * kept;
        Values gates;
        for (const Value& gate : {r, z, n, m}) gates.push_back(zero_unless_counted(counts, cast(gate, shape.dtype)));
        const Value saved = concat(gates, 1), output = zero_unless_counted(counts, cast(new_h, shape.dtype));
        return step({where_counted(counts, new_h, h)}, {output, saved});
      },
      is_reverse);
  return {with_start(h0, made.outputs[0], is_reverse), made.outputs[1], cast(made.carries[0], shape.dtype)};
}

Values compose_gru_grad(std::span<const Value> in, const Attrs& attrs) {
  const Value &u = in[0], &saved = in[1], &states = in[2];
  const RecurrenceShape shape("gru_recurrence_grad", "saved", saved, 4, u, 3);
  const std::int64_t hidden = shape.hidden;
  const bool is_reverse = attrs.get_bool("reverse");
  shape.check("states", states, {shape.steps + 1, shape.rows, hidden}, shape.dtype);
  GivenGradients given(shape, in, attrs, 3);
  const Value dstates = given.take("states", {shape.steps, shape.rows, hidden}, shape.dtype);
  const Value dlast_h = given.take("last_h", {shape.rows, hidden}, shape.dtype);
  const Value lengths = given.take_lengths();

  const Value before = states_before(states, start_of(states, is_reverse), lengths, is_reverse);
  Values sequences = {saved, before};
  if (dstates.valid()) sequences.push_back(dstates);
  if (lengths.valid()) sequences.push_back(shape.counted(lengths));
  const Value dh_end = dlast_h.valid() ? dlast_h : zeros_of(saved.graph(), shape.dtype, {shape.rows, hidden});
  const StepResult made = scan(
      {cast(dh_end, shape.wide)}, sequences,
      [&](const Values& carry, const Values& element) {
        const auto part = [&](int k) { return cast(gate_of(element[0], k, hidden), shape.wide); };
        const Value r = part(0), z = part(1), n = part(2), m = part(3), h = cast(element[1], shape.wide);
        const Value counts = lengths.valid() ? element.back() : Value();
        Value dh = carry[0];
        if (dstates.valid()) dh = dh + cast(element[2], shape.wide);
        const Value slope_r = slope_of_sigmoid(r), slope_z = slope_of_sigmoid(z), slope_n = slope_of_tanh(n);
        const Value kept = dh * z, made_n = dh - kept, d_n = made_n * slope_n;
        const Value change = h - n, d_z = dh * change * slope_z;
        const Value d_r = d_n * m * slope_r, d_m = d_n * r;
        Values parts;
        for (const Value& d : {d_r, d_z, d_n, d_m}) parts.push_back(zero_unless_counted(counts, cast(d, shape.dtype)));
        const Value dxw = concat(std::array{parts[0], parts[1], parts[2]}, 1);
        const Value dhu = concat(std::array{parts[0], parts[1], parts[3]}, 1);
        const Value product = cast(matmul(dhu, u, false, true), shape.wide);
        return step({where_counted(counts, product + kept, carry[0])}, {dxw, dhu});
      },
      !is_reverse);
  const Value &dxw = made.outputs[0], &dhu = made.outputs[1], dh0 = cast(made.carries[0], shape.dtype);
  const Value summed = attrs.get_bool("sums") ? concat(std::array{dxw, gate_of(dhu, 2, hidden)}, 2) : Value();
  return with_sums({dxw, dhu, dh0}, summed, attrs, shape.wide);
}

}  // namespace

void register_gru_recurrence() {
  const Attrs backwards{{"reverse", true}};

  // ---- gru_recurrence ----
  register_op({
      .name = "gru_recurrence",
      .summary = "a GRU over time: gates r, z of xw_t + h u, n = tanh(xw_n + r m), m = h u_n + bm; h' = n + z (h - n)",
      .kind = OpKind::composed,
      .inputs = {"xw", "u", "bm", "h0", "lengths", "bias"},
      .optional_inputs = 2,
      .attrs = gru_cell().attrs(),
      .cost = [](const CostCall& call) { return cost_over_time(call, false); },
      .cell = &gru_cell(),
      .gradient = [](const GradCall& call) { return gradient_over_time(gru_cell(), call); },
      .compose = compose_gru,
      .cases = {{.shapes = {{3, 2, 9}, {3, 9}, {3}, {2, 3}, {9}}, .attrs = {{"bias", true}}},
                {.shapes = {{4, 3, 6}, {2, 6}, {2}, {3, 2}, {3}, {6}},
                 .attrs = {{"reverse", true}, {"bias", true}},
                 .dtypes = {f32, f32, f32, f32, i32, f32}},
                {.shapes = {{3, 2, 9}, {3, 9}, {3}, {2, 3}}, .attrs = {{"bias", true}}, .error = "bias is missing"},
                {.shapes = {{3, 2, 9}, {3, 9}, {3}, {2, 3}}},
                {.shapes = {{4, 3, 3}, {1, 3}, {1}, {3, 1}, {3}}, .dtypes = {f32, f32, f32, f32, i32}},
                {.shapes = {{2, 1, 6}, {2, 6}, {2}, {1, 2}}, .attrs = backwards},
                {.shapes = {{4, 3, 6}, {2, 6}, {2}, {3, 2}, {3}},
                 .attrs = backwards,
                 .dtypes = {f32, f32, f32, f32, i32}},
                {.shapes = {{1, 2, 15}, {5, 15}, {5}, {2, 5}}},
                {.shapes = {{3, 2, 12}, {2, 2, 3, 2, 2}, {4}, {2, 4}}},
                {.shapes = {{0, 2, 6}, {2, 6}, {2}, {2, 2}}},
                {.shapes = {{3, 0, 6}, {2, 6}, {2}, {0, 2}}},
                {.shapes = {{3, 2, 0}, {0, 0}, {0}, {2, 0}}},
                {.shapes = {{3, 2, 10}, {3, 9}, {3}, {2, 3}}, .error = "xw has shape [3, 2, 10], needed is [T, B, 3H]"},
                {.shapes = {{3, 2, 9}, {3, 9}, {4}, {2, 3}}, .error = "bm has shape [4], needed is [3]"},
                {.shapes = {{3, 2, 9}, {3, 9}, {3}, {2, 3}, {2}},
                 .dtypes = {f32, f32, f32, f32, i64},
                 .error = "lengths is i64, needed is i32"}},
  });

  // ---- gru_recurrence_grad ----
  const auto given = [](bool states, bool last_h, bool is_reverse) {
    return Attrs{{"states", states}, {"last_h", last_h}, {"reverse", is_reverse}};
  };
  register_op({
      .name = "gru_recurrence_grad",
      .summary = "gradients of gru_recurrence: for xw, h u and h0, from those of its results that are given",
      .kind = OpKind::composed,
      .inputs = {"u", "saved", "states", "dstates", "dlast_h", "lengths"},
      .optional_inputs = 3,
      .attrs = gru_cell().gradient_attrs(),
      .cost = [](const CostCall& call) { return cost_over_time(call, true); },
      .cell = &gru_cell(),
      .is_cell_gradient = true,
      .gradient = composition_gradient,
      .compose = compose_gru_grad,
      .cases = {{.shapes = {{3, 9}, {3, 2, 12}, {4, 2, 3}, {3, 2, 3}, {2, 3}}, .attrs = given(true, true, false)},
                {.shapes = {{1, 3}, {4, 3, 4}, {5, 3, 1}, {4, 3, 1}, {3, 1}, {3}},
                 .attrs = given(true, true, false),
                 .dtypes = {f32, f32, f32, f32, f32, i32}},
                {.shapes = {{2, 6}, {2, 1, 8}, {3, 1, 2}, {1, 2}}, .attrs = given(false, true, true)},
                {.shapes = {{2, 6}, {3, 2, 8}, {4, 2, 2}, {3, 2, 2}}, .attrs = {{"states", true}, {"sums", true}}},
                {.shapes = {{2, 6}, {4, 3, 8}, {5, 3, 2}, {4, 3, 2}, {3}},
                 .attrs = given(true, false, true),
                 .dtypes = {f32, f32, f32, f32, i32}},
                {.shapes = {{2, 6}, {0, 2, 8}, {1, 2, 2}, {2, 2}}, .attrs = given(false, true, false)},
                {.shapes = {{3, 9}, {3, 2, 12}, {3, 2, 3}, {3, 2, 3}},
                 .attrs = given(true, false, false),
                 .error = "states has shape [3, 2, 3], needed is [4, 2, 3]"},
                {.shapes = {{3, 9}, {3, 2, 12}, {4, 2, 3}},
                 .attrs = given(true, false, false),
                 .error = "dstates is missing"}},
  });
}

GruRecurrence gru_recurrence(const Value& xw, const Value& u, const Value& bm, const Value& h0, const Value& lengths,
                             bool reverse) {
  const Values made = call_over_time(gru_cell(), {xw, u, bm, h0}, lengths, reverse);
  return {made[kGruStates], made[kGruSaved], made[kGruLastH]};
}

}  // namespace paoding
