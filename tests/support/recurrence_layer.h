// SPDX-License-Identifier: Apache-2.0
// A recurrent layer for tests of its kernels, and its results in float64.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "ops/recurrence/packed_weights.h"
#include "tests/reference/reference_evaluator.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {

enum Cell { lstm, gru, rnn, relu_rnn };

struct LayerCase {
  DType dtype;
  bool is_tf32;
  std::int64_t steps, batch, hidden;
  bool has_lengths = false, is_reverse = false, is_training = true;
  Cell cell = lstm;
  bool has_bias = false;     // forward only
  bool is_by_units = false;  // the weights, ops/recurrence/packed_weights.h; forward only

  // Whether gradients of biases are wanted, which are sums over steps and rows.
  bool has_sums() const { return is_training && dtype != f64 && batch % 2 != 0; }
  std::string op() const {
    return cell == lstm ? "lstm_recurrence" : cell == gru ? "gru_recurrence" : "rnn_recurrence";
  }
  std::string text() const {
    return fmt::format("{} of {}{} T {} B {} H {}{}{}{}{}", op(), to_string(dtype), is_tf32 ? " as TF32" : "", steps,
                       batch, hidden, has_lengths ? ", lengths" : "", is_reverse ? ", reverse" : "",
                       is_training ? ""
                       : has_bias  ? ", forward with bias"
                                   : ", forward",
                       is_by_units ? ", by units" : "");
  }
};

/// One CTA and CTA groups of several, weights in registers and in shared memory, odd extents, more rows than a tile
/// has.
inline const std::vector<LayerCase>& small_layers() {
  static const std::vector<LayerCase> cases = {
      {f32, true, 4, 6, 40, true, true},
      {bf16, false, 4, 3, 37, true},
      {f16, false, 2, 40, 24},
      {f32, false, 3, 2, 45, true, false, false},
      {f16, false, 1, 1, 1},
      {f32, false, 5, 3, 130, true, true, false},
      {f32, true, 3, 2, 130, true, true},
      {bf16, false, 2, 20, 100},
      {f32, true, 3, 5, 37, true, true, true, gru},
      {bf16, false, 3, 20, 72, false, false, true, gru},
      {f32, false, 3, 2, 45, true, false, false, gru},
      {f16, false, 3, 3, 130, true, true, true, rnn},
      {f32, true, 3, 9, 40, true, false, false, lstm, true},
      {bf16, false, 3, 2, 40, false, true, false, gru, true},
      {f32, true, 3, 9, 24, true, false, true, relu_rnn},
  };
  return cases;
}

/// Its weights are of a size that keeps the gates where they work. `suffix`: of the names of feeds and fetches. Without
/// the gradient for the weights, a library's product over all steps, it is all kernels of our own.
inline void add_layer(Graph* graph, const LayerCase& c, bool has_weight_gradient = false,
                      const std::string& suffix = "") {
  const auto input = [&](const char* name, DType dtype, const Shape& shape) {
    return graph->input(name + suffix, dtype, shape);
  };
  const auto fetch = [&](const std::string& name, const Value& value) { graph->fetch(name + suffix, value); };
  const DType wide = c.dtype == f64 ? f64 : f32;
  const std::int64_t gates = c.cell == lstm ? 4 : c.cell == gru ? 3 : 1;
  const Value xw = input("xw", c.dtype, {c.steps, c.batch, gates * c.hidden});
  const Value u = input("u", c.dtype, {c.hidden, gates * c.hidden});
  const Value by_columns = u * (1 / std::sqrt(static_cast<double>(c.hidden)));
  const Value scaled = c.is_by_units ? weights_by_units(by_columns) : by_columns;
  const Value h0 = input("h0", c.dtype, {c.batch, c.hidden});
  const Value lengths = c.has_lengths ? input("lengths", i32, {c.batch}) : Value();
  if (c.has_bias) {
    Values inputs = {xw, scaled};
    if (c.cell == gru) inputs.push_back(input("bm", c.dtype, {c.hidden}));
    inputs.push_back(h0);
    if (c.cell == lstm) inputs.push_back(input("c0", wide, {c.batch, c.hidden}));
    if (c.has_lengths) inputs.push_back(lengths);
    inputs.push_back(input("bias", c.dtype, {gates * c.hidden}));
    const Values made = call(*find_op(c.op()), inputs, {{"reverse", c.is_reverse}, {"bias", true}});
    fetch("states", made[0]), fetch("last", made.back());
    return;
  }
  Values results, wanted = {xw, h0};
  std::vector<std::string> names = {"dxw", "dh0"};
  if (c.cell == lstm) {
    const Value c0 = input("c0", wide, {c.batch, c.hidden});
    const LstmRecurrence made = lstm_recurrence(xw, scaled, h0, c0, lengths, c.is_reverse);
    fetch("last_h", made.last_h);
    results = {made.states, made.last_c};
    wanted.push_back(c0), names.emplace_back("dc0");
  } else if (c.cell == gru) {
    const Value bm = input("bm", c.dtype, {c.hidden});
    const GruRecurrence made = gru_recurrence(xw, scaled, bm, h0, lengths, c.is_reverse);
    results = {made.states, made.last_h};
    if (has_weight_gradient || c.has_sums()) wanted.push_back(bm), names.emplace_back("dbm");
  } else {
    const RnnRecurrence made = rnn_recurrence(xw, scaled, h0, lengths, c.is_reverse, c.cell == relu_rnn);
    results = {made.states, made.last_h};
  }
  fetch("states", results[0]), fetch("last", results[1]);
  if (!c.is_training) return;
  if (has_weight_gradient) wanted.push_back(scaled), names.emplace_back("du");
  const Values seeds = {input("dstates", c.dtype, {c.steps + 1, c.batch, c.hidden}),
                        input("dlast", results[1].dtype(), {c.batch, c.hidden})};
  const Values grads = gradients(results, wanted, seeds);
  for (std::size_t i = 0; i < names.size(); ++i) fetch(names[i], grads[i]);
  if (c.has_sums()) fetch("dbias", sum(grads[0], std::array<std::int64_t, 2>{0, 1}));
}
inline std::unique_ptr<Graph> graph_of(const LayerCase& c, bool has_weight_gradient = false) {
  auto graph = std::make_unique<Graph>();
  add_layer(graph.get(), c, has_weight_gradient);
  return graph;
}

/// It grows with the compared values: sums over a step's rounded products, carried on.
template <class Case>
double tolerance_of(const Case& c) {
  if (c.dtype == bf16) return 3e-2;
  return c.dtype == f16 || c.is_tf32 ? 4e-3 : 2e-6;
}

template <class Case>
void expect_near(const Case& c, const Graph& g, const Tensors& got, const Feeds& feeds) {
  for (const auto& [name, want] : evaluate_graph(g, feeds)) {
    const std::vector<double> values = got.at(name).to_doubles();
    double error = 0, size = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      error += (values[i] - want[i]) * (values[i] - want[i]);
      size += want[i] * want[i];
    }
    EXPECT_LE(std::sqrt(error), tolerance_of(c) * std::sqrt(size) + 1e-12) << c.text() << ": " << name;
  }
}

inline void expect_near(const LayerCase& c, const Tensors& got, const Feeds& feeds) {
  expect_near(c, *graph_of(c, got.contains("du")), got, feeds);
}

/// Lengths among them, of 0 and more.
inline Feeds feeds_of(const LayerCase& c, const Graph& graph, unsigned seed = 5) {
  Feeds feeds = make_feeds(graph, seed);
  for (auto& [name, values] : feeds) {
    for (std::size_t i = 0; i < values.size() && name.starts_with("lengths"); ++i) {
      values[i] = i == 0 ? 0 : static_cast<double>(1 + (i * 7 + seed - 5) % static_cast<std::size_t>(c.steps));
    }
  }
  // The feeds are rounded as the device rounds them.
  for (const auto& [name, tensor] : to_tensors(graph, feeds)) feeds.at(name) = tensor.to_doubles();
  return feeds;
}
inline Feeds feeds_of(const LayerCase& c) { return feeds_of(c, *graph_of(c)); }

}  // namespace paoding::testing_program
