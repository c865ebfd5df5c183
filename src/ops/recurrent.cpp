// SPDX-License-Identifier: Apache-2.0
// Recurrent cells, composed of other ops; scan runs them over time.
#include "base/check.h"
#include "ops/families.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

Values compose_lstm_cell(std::span<const Value> in, const Attrs&) {
  const Value &x = in[0], &h = in[1], &c = in[2], &w = in[3], &u = in[4], &b = in[5];
  const std::int64_t hidden = h.shape().rank() == 2 ? h.shape()[1] : -1;
  const Shape four{4 * hidden};
  if (hidden < 0 || !(c.shape() == h.shape()) || u.shape().rank() != 2 || u.shape()[1] != 4 * hidden ||
      !(b.shape() == Shape{4 * hidden})) {
    fail(ErrorKind::shape,
         "lstm_cell: h has shape {}, c {}, u {}, b {}; needed are h and c [B, H], u [H, 4H], b [4H]{}",
         to_string(h.shape()), to_string(c.shape()), to_string(u.shape()), to_string(b.shape()),
         h.graph().scope.empty() ? "" : fmt::format(" (in {})", h.graph().scope.str()));
  }
  // One call a statement: the order of nodes must not depend on the compiler's order of evaluation.
  const Value from_x = matmul(x, w), from_h = matmul(h, u), gates = from_x + from_h + b;
  const auto gate = [&](int k) { return slice(gates, 1, k * hidden, (k + 1) * hidden); };
  const Value i = sigmoid(gate(0)), f = sigmoid(gate(1)), g = tanh(gate(2)), o = sigmoid(gate(3));
  const Value kept = f * c, added = i * g, new_c = kept + added;
  return {o * tanh(new_c), new_c};
}

}  // namespace

void register_recurrent_ops() {
  register_op({
      .name = "lstm_cell",
      .summary = "one LSTM step: h' = o tanh(c'), c' = f c + i g; gates i, f, g, o of x w + h u + b",
      .kind = OpKind::composed,
      .inputs = {"x", "h", "c", "w", "u", "b"},
      .compose = compose_lstm_cell,
      .cases = {{.shapes = {{3, 5}, {3, 4}, {3, 4}, {5, 16}, {4, 16}, {16}}},
                {.shapes = {{3, 5}, {3, 4}, {3, 4}, {5, 16}, {4, 12}, {16}}, .error = "u [4, 12]"}},
  });
}

std::pair<Value, Value> lstm_cell(const Value& x, const Value& h, const Value& c, const Value& w, const Value& u,
                                  const Value& b) {
  const Values made = call(*find_op("lstm_cell"), std::vector{x, h, c, w, u, b});
  return {made[0], made[1]};
}

}  // namespace paoding
