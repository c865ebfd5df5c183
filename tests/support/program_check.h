// SPDX-License-Identifier: Apache-2.0
// Helpers that tests of whole programs share: feeds as doubles and as tensors, the names of all passes, comparing
// fetches with the float64 evaluator, an LSTM with its gradients.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "paoding/autodiff.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "paoding/program.h"
#include "passes/pass.h"
#include "tests/reference/reference_evaluator.h"

namespace paoding::testing_program {

using Dense = std::vector<double>;
using Feeds = std::map<std::string, Dense>;
using Ints = std::vector<std::int64_t>;
using Tensors = std::map<std::string, Tensor>;

/// Names of all passes, each once.
inline std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const Pass& pass : pipeline()) {
    if (std::find(names.begin(), names.end(), pass.name) == names.end()) names.emplace_back(pass.name);
  }
  return names;
}

/// The text of the Error that `work` throws, "no error" when it throws none.
template <class Work>
std::string message_of(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

inline bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

/// The distance from 1 to the next number.
inline double epsilon(DType dtype) {
  switch (dtype) {
    case DType::f64: return std::ldexp(1.0, -52);
    case DType::f32: return std::ldexp(1.0, -23);
    case DType::f16: return std::ldexp(1.0, -10);
    case DType::bf16: return std::ldexp(1.0, -7);
    default: return 0;
  }
}

/// The number nearest to `value` with the 10 bits of mantissa that TF32 keeps; halves go away from 0.
inline float to_tf32(float value) {
  return std::bit_cast<float>((std::bit_cast<unsigned>(value) + 0x1000u) & ~0x1fffu);
}

/// `values` as they are after they have been stored.
inline Dense rounded(const Type& type, const Dense& values) {
  return Tensor::from(type.dtype, type.shape, values).to_doubles();
}

/// A value for every input and parameter. Floats have magnitudes of 0.3 to 1.3, away from the poles of log and division
/// and from the kinks at 0, as their dtype holds them; integers are 0 to 4, bools 0 or 1.
inline Feeds make_feeds(const Graph& graph, unsigned seed, bool positive = false) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> magnitude(0.3, 1.3);
  Feeds feeds;
  for (const auto* list : {&graph.inputs(), &graph.parameters()}) {
    for (NodeId id : *list) {
      const Type& type = graph.node(id).types[0];
      Dense values(static_cast<std::size_t>(type.shape.elements()));
      for (double& value : values) {
        value = magnitude(random) * (positive || random() % 2 == 0 ? 1 : -1);
        if (type.dtype == DType::boolean) value = value > 0 ? 1 : 0;
        if (is_integer(type.dtype)) value = static_cast<double>(random() % 5);
      }
      feeds[graph.node(id).name.str()] = rounded(type, values);
    }
  }
  return feeds;
}

inline Tensors to_tensors(const Graph& graph, const Feeds& feeds) {
  Tensors tensors;
  for (NodeId id : graph.inputs()) {
    const Type& type = graph.node(id).types[0];
    const std::string& name = graph.node(id).name.str();
    tensors[name] = Tensor::from(type.dtype, type.shape, feeds.at(name));
  }
  return tensors;
}

/// The values of parameters, where `feeds` has any.
inline Tensors parameter_tensors(const Graph& graph, const Feeds& feeds) {
  Tensors tensors;
  for (NodeId id : graph.parameters()) {
    const Type& type = graph.node(id).types[0];
    const auto found = feeds.find(graph.node(id).name.str());
    if (found != feeds.end()) tensors[found->first] = Tensor::from(type.dtype, type.shape, found->second);
  }
  return tensors;
}

inline double largest(const Dense& values) {
  double most = 0;
  for (double value : values) {
    if (std::isfinite(value)) most = std::max(most, std::fabs(value));
  }
  return most;
}

/// Every element differs by at most `tolerance` times the largest magnitude (at least 1) of the expected values.
inline void expect_close(const std::string& what, const Dense& got, const Dense& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  const double limit = tolerance * std::max(1.0, largest(expected));
  int shown = 0;
  for (std::size_t i = 0; i < got.size() && shown < 3; ++i) {
    if (got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]))) continue;
    if (std::fabs(got[i] - expected[i]) <= limit) continue;
    ++shown;
    ADD_FAILURE() << what << ": element " << i << " of " << got.size() << " is " << got[i] << ", not " << expected[i]
                  << " (limit " << limit << ")";
  }
}

inline void expect_same_bits(const Tensors& a, const Tensors& b) {
  for (const auto& [name, tensor] : a) {
    const auto bytes = static_cast<std::size_t>(tensor.size_bytes());
    EXPECT_TRUE(bytes == 0 || std::equal(tensor.bytes(), tensor.bytes() + bytes, b.at(name).bytes()))
        << name << " is not what the same feeds gave before";
  }
}

/// One LSTM layer and, unless told otherwise, the gradients of sum(y * dy) for all its inputs. It also stacks a value
/// that is no state, so that it stays a loop (recognize_recurrences.cpp).
struct LstmSize {
  std::int64_t steps = 5, batch = 3, inputs = 6, hidden = 4;
  bool reverse = false;
  bool has_gradients = true;
  bool has_parameters = false;  // weights in a Parameters store
};

inline void build_lstm(Graph& g, const LstmSize& size) {
  const std::int64_t T = size.steps, B = size.batch, I = size.inputs, H = size.hidden;
  const auto weight = [&](const char* name, const Shape& shape) {
    return size.has_parameters ? g.parameter(name, f32, shape) : g.input(name, f32, shape);
  };
  const Value x = g.input("x", f32, {T, B, I}), h0 = g.input("h0", f32, {B, H}), c0 = g.input("c0", f32, {B, H});
  const Value w = weight("w", {I, 4 * H}), u = weight("u", {H, 4 * H}), b = weight("b", {4 * H});
  const StepResult made = scan(
      {h0, c0}, {x},
      [&](const Values& carry, const Values& element) {
        const auto [h, c] = lstm_cell(element[0], carry[0], carry[1], w, u, b);
        return step({h, c}, {h, h + c});
      },
      size.reverse);
  g.fetch("y", made.outputs[0]);
  if (!size.has_gradients) return;
  const Value dy = g.input("dy", f32, {T, B, H});
  const Values grads = gradients(std::array{made.outputs[0]}, std::array{x, h0, c0, w, u, b}, std::array{dy});
  const char* names[] = {"dx", "dh0", "dc0", "dw", "du", "db"};
  for (std::size_t i = 0; i < grads.size(); ++i) g.fetch(names[i], grads[i]);
}

}  // namespace paoding::testing_program
