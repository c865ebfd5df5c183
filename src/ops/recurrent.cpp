// SPDX-License-Identifier: Apache-2.0
// Recurrent cells, composed of other ops; scan runs them over time.
#include "base/check.h"
#include "base/one_line.h"
#include "ops/composing.h"
#include "ops/composition_gradient.h"
#include "ops/families.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

// h [B, P], u [P, gates * H], b [biases * H].
void check_cell(const char* cell, const Value& h, std::int64_t hidden, const Value& u, const Value& b,
                std::int64_t gates, std::int64_t biases) {
  const bool fits = hidden >= 0 && h.shape().rank() == 2 && u.shape() == Shape{h.shape()[1], gates * hidden} &&
                    b.shape() == Shape{biases * hidden};
  if (fits) return;
  fail(ErrorKind::shape, "{}: h has shape {}, u {}, b {}; needed are h [B, H], u [H, {}H], b [{}H]{}", cell,
       to_string(h.shape()), to_string(u.shape()), to_string(b.shape()), gates, biases, scope_text(h));
}

// Columns part * hidden .. (part + 1) * hidden of a matrix, or of a vector.
Value part_of(const Value& value, int part, std::int64_t hidden) {
  return slice(value, value.shape().rank() - 1, part * hidden, (part + 1) * hidden);
}

// One call a statement below: the order of nodes must not depend on the compiler's order of evaluation.

Values compose_lstm_cell(std::span<const Value> in, const Attrs&) {
  const Value &x = in[0], &h = in[1], &c = in[2], &w = in[3], &u = in[4], &b = in[5];
  const std::int64_t hidden = c.shape().rank() == 2 ? c.shape()[1] : -1;
  if (hidden < 0 || h.shape().rank() != 2 || h.shape()[0] != c.shape()[0] ||
      !(u.shape() == Shape{h.shape()[1], 4 * hidden}) || !(b.shape() == Shape{4 * hidden})) {
    fail(ErrorKind::shape,
         "lstm_cell: h has shape {}, c {}, u {}, b {}; needed are h [B, P], c [B, H], u [P, 4H], b [4H]{}",
         to_string(h.shape()), to_string(c.shape()), to_string(u.shape()), to_string(b.shape()), scope_text(h));
  }
  const Value from_x = matmul(x, w), from_h = matmul(h, u), gates = from_x + from_h + b;
  const Value i = sigmoid(part_of(gates, 0, hidden)), f = sigmoid(part_of(gates, 1, hidden));
  const Value g = tanh(part_of(gates, 2, hidden)), o = sigmoid(part_of(gates, 3, hidden));
  const Value kept = f * c, added = i * g, new_c = kept + added;
  return {o * tanh(new_c), new_c};
}

Values compose_gru_cell(std::span<const Value> in, const Attrs& attrs) {
  const Value &x = in[0], &h = in[1], &w = in[2], &u = in[3], &b = in[4];
  const bool reset_after = attrs.get_bool("reset_after");
  const std::int64_t hidden = h.shape().rank() == 2 ? h.shape()[1] : -1;
  check_cell("gru_cell", h, hidden, u, b, 3, reset_after ? 4 : 3);
  const Value from_x = matmul(x, w);
  Value n, z;
  if (reset_after) {
    const Value from_h = matmul(h, u);
    const auto gate = [&](int k) {
      const Value a = part_of(from_x, k, hidden), of_h = part_of(from_h, k, hidden), bias = part_of(b, k, hidden);
      return sigmoid(a + of_h + bias);
    };
    const Value r = gate(0);
    z = gate(1);
    const Value inner = part_of(from_h, 2, hidden) + part_of(b, 3, hidden);
    const Value outer = part_of(from_x, 2, hidden) + part_of(b, 2, hidden);
    n = tanh(outer + r * inner);
  } else {
    const Value u_rz = slice(u, 1, 0, 2 * hidden), u_n = part_of(u, 2, hidden);
    const Value from_h = matmul(h, u_rz);
    const auto gate = [&](int k) {
      const Value a = part_of(from_x, k, hidden), of_h = part_of(from_h, k, hidden), bias = part_of(b, k, hidden);
      return sigmoid(a + of_h + bias);
    };
    const Value r = gate(0);
    z = gate(1);
    const Value from_reset = matmul(r * h, u_n);
    const Value outer = part_of(from_x, 2, hidden) + part_of(b, 2, hidden);
    n = tanh(outer + from_reset);
  }
  return {n + z * (h - n)};
}

Values compose_rnn_cell(std::span<const Value> in, const Attrs& attrs) {
  const Value &x = in[0], &h = in[1], &w = in[2], &u = in[3], &b = in[4];
  check_cell("rnn_cell", h, h.shape().rank() == 2 ? h.shape()[1] : -1, u, b, 1, 1);
  const Value from_x = matmul(x, w), from_h = matmul(h, u), total = from_x + from_h + b;
  if (!attrs.get_bool("relu")) return {tanh(total)};
  return {maximum(total, full(total.graph(), {}, 0, total.dtype()))};
}

}  // namespace

void register_recurrent_ops() {
  // ---- lstm_cell ----
  register_op({
      .name = "lstm_cell",
      .summary = "one LSTM step: h' = o tanh(c'), c' = f c + i g; gates i, f, g, o of x w + h u + b",
      .kind = OpKind::composed,
      .inputs = {"x", "h", "c", "w", "u", "b"},
      .gradient = composition_gradient,
      .compose = compose_lstm_cell,
      .is_open_in_bodies = true,
      .cases = {{.shapes = {{3, 5}, {3, 4}, {3, 4}, {5, 16}, {4, 16}, {16}}},
                {.shapes = {{3, 5}, {3, 2}, {3, 4}, {5, 16}, {2, 16}, {16}}},
                {.shapes = {{0, 5}, {0, 4}, {0, 4}, {5, 16}, {4, 16}, {16}}},
                {.shapes = {{3, 5}, {3, 4}, {3, 4}, {5, 16}, {4, 12}, {16}}, .error = "u [4, 12]"}},
  });

  // ---- gru_cell ----
  register_op({
      .name = "gru_cell",
      .summary = "one GRU step: h' = (1 - z) n + z h; gates r, z, n of x w + h u + b",
      .kind = OpKind::composed,
      .inputs = {"x", "h", "w", "u", "b"},
      .attrs = {{.name = "reset_after", .example = true, .doc = "r scales h u_n + b_m (cuDNN), not h (Cho et al.)"}},
      .gradient = composition_gradient,
      .compose = compose_gru_cell,
      .is_open_in_bodies = true,
      .cases = {{.shapes = {{3, 5}, {3, 4}, {5, 12}, {4, 12}, {16}}},
                {.shapes = {{3, 5}, {3, 4}, {5, 12}, {4, 12}, {12}}, .attrs = {{"reset_after", false}}},
                {.shapes = {{3, 5}, {3, 4}, {5, 12}, {4, 12}, {12}}, .error = "b [4H]"}},
  });

  // ---- rnn_cell ----
  register_op({
      .name = "rnn_cell",
      .summary = "one step of the plain recurrence: h' = tanh(x w + h u + b), or relu of the sum",
      .kind = OpKind::composed,
      .inputs = {"x", "h", "w", "u", "b"},
      .attrs = {{.name = "relu", .example = false, .doc = "max(sum, 0) instead of tanh"}},
      .gradient = composition_gradient,
      .compose = compose_rnn_cell,
      .is_open_in_bodies = true,
      .cases = {{.shapes = {{3, 5}, {3, 4}, {5, 4}, {4, 4}, {4}}},
                {.shapes = {{3, 5}, {3, 4}, {5, 4}, {4, 4}, {4}}, .attrs = {{"relu", true}}},
                {.shapes = {{3, 5}, {3, 4}, {5, 4}, {3, 4}, {4}}, .error = "u [3, 4]"}},
  });
}

std::pair<Value, Value> lstm_cell(const Value& x, const Value& h, const Value& c, const Value& w, const Value& u,
                                  const Value& b) {
  const Values made = call(*find_op("lstm_cell"), std::vector{x, h, c, w, u, b});
  return {made[0], made[1]};
}

Value gru_cell(const Value& x, const Value& h, const Value& w, const Value& u, const Value& b, bool reset_after) {
  return call("gru_cell", {x, h, w, u, b}, {{"reset_after", reset_after}});
}

Value rnn_cell(const Value& x, const Value& h, const Value& w, const Value& u, const Value& b, bool relu) {
  return call("rnn_cell", {x, h, w, u, b}, {{"relu", relu}});
}

}  // namespace paoding
