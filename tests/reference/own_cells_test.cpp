// SPDX-License-Identifier: Apache-2.0
// Recurrent cells that the library has no op for, written by a user as a scan: an LSTM that looks at its cell state
// (peepholes) and one whose sums are normalised, against loops over single elements, and their gradients.
#include <gtest/gtest.h>

#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

constexpr std::int64_t kCellSteps = 6, kCellRows = 3, kCellInputs = 5, kUnits = 4;
constexpr auto kCellCount = [](std::int64_t i) { return static_cast<std::size_t>(i); };

// [.., n] with mean 0 and deviation 1 over the last axis, times gain and plus shift.
Value normalised(const Value& x, const Value& gain, const Value& shift) { return layer_norm(x, gain, shift); }

struct Weights {
  Value w, u, b;
  Value peep = {};                                            // [3, H]: of i and f on c, of o on the next c
  Value gain_x = {}, gain_h = {}, gain_c = {}, shift_c = {};  // of the sums of x, of h, and of the cell state
};

Values peephole_cell(const Value& x, const Value& h, const Value& c, const Weights& p) {
  const Value of_x = matmul(x, p.w), of_h = matmul(h, p.u), sums = of_x + of_h + p.b;
  const auto gate = [&](int k) { return slice(sums, 1, k * kUnits, (k + 1) * kUnits); };
  const auto look = [&](int k) { return reshape(slice(p.peep, 0, k, k + 1), {kUnits}); };
  const Value i = sigmoid(gate(0) + look(0) * c), f = sigmoid(gate(1) + look(1) * c);
  const Value kept = f * c, added = i * tanh(gate(2)), next = kept + added;
  return {sigmoid(gate(3) + look(2) * next) * tanh(next), next};
}

Values normalised_cell(const Value& x, const Value& h, const Value& c, const Weights& p) {
  const Value zero = full(x.graph(), {4 * kUnits}, 0, f64);
  const Value of_x = normalised(matmul(x, p.w), p.gain_x, zero), of_h = normalised(matmul(h, p.u), p.gain_h, zero);
  const Value sums = of_x + of_h + p.b;
  const auto gate = [&](int k) { return slice(sums, 1, k * kUnits, (k + 1) * kUnits); };
  const Value kept = sigmoid(gate(1)) * c, added = sigmoid(gate(0)) * tanh(gate(2)), next = kept + added;
  return {sigmoid(gate(3)) * tanh(normalised(next, p.gain_c, p.shift_c)), next};
}

// ---- the same with loops ----

double logistic(double a) { return 1 / (1 + std::exp(-a)); }

Dense product(const Dense& x, const Dense& w, std::int64_t columns) {
  Dense y(kCellCount(columns), 0.0);
  for (std::size_t k = 0; k < x.size(); ++k) {
    for (std::size_t j = 0; j < y.size(); ++j) y[j] += x[k] * w[k * y.size() + j];
  }
  return y;
}

Dense normal(Dense x, const Dense& gain, const Dense& shift) {
  double mean = 0, square = 0;
  for (const double a : x) mean += a / static_cast<double>(x.size());
  for (const double a : x) square += (a - mean) * (a - mean) / static_cast<double>(x.size());
  for (std::size_t j = 0; j < x.size(); ++j)
    x[j] = (x[j] - mean) / std::sqrt(square + 1e-5) * gain[j] + (shift.empty() ? 0 : shift[j]);
  return x;
}

Dense expected(const Feeds& feeds, bool is_normalised) {
  Dense ys(kCellCount(kCellSteps * kCellRows * kUnits));
  const auto& b = feeds.at("b");
  for (std::size_t row = 0; row < kCellCount(kCellRows); ++row) {
    Dense h(kCellCount(kUnits), 0.0), c = h;
    for (std::size_t t = 0; t < kCellCount(kCellSteps); ++t) {
      const auto* x = feeds.at("xs").data() + (t * kCellCount(kCellRows) + row) * kCellCount(kCellInputs);
      Dense of_x = product(Dense(x, x + kCellInputs), feeds.at("w"), 4 * kUnits);
      Dense of_h = product(h, feeds.at("u"), 4 * kUnits);
      if (is_normalised) of_x = normal(of_x, feeds.at("gain_x"), {}), of_h = normal(of_h, feeds.at("gain_h"), {});
      const auto at = [&](std::size_t gate, std::size_t j) {
        const std::size_t k = gate * kCellCount(kUnits) + j;
        return of_x[k] + of_h[k] + b[k];
      };
      const auto look = [&](std::size_t k, std::size_t j) {
        return is_normalised ? 0 : feeds.at("peep")[k * kCellCount(kUnits) + j];
      };
      for (std::size_t j = 0; j < c.size(); ++j) {
        const double i = logistic(at(0, j) + look(0, j) * c[j]), f = logistic(at(1, j) + look(1, j) * c[j]);
        c[j] = f * c[j] + i * std::tanh(at(2, j));
      }
      const Dense seen = is_normalised ? normal(c, feeds.at("gain_c"), feeds.at("shift_c")) : c;
      for (std::size_t j = 0; j < c.size(); ++j) {
        h[j] = logistic(at(3, j) + look(2, j) * c[j]) * std::tanh(seen[j]);
        ys[(t * kCellCount(kCellRows) + row) * kCellCount(kUnits) + j] = h[j];
      }
    }
  }
  return ys;
}

void check(bool is_normalised) {
  Graph g;
  const Value xs = g.input("xs", f64, {kCellSteps, kCellRows, kCellInputs});
  const auto weight = [&](const char* name, const Shape& shape) { return g.input(name, f64, shape); };
  Weights p{weight("w", {kCellInputs, 4 * kUnits}), weight("u", {kUnits, 4 * kUnits}), weight("b", {4 * kUnits})};
  if (is_normalised) {
    p.gain_x = weight("gain_x", {4 * kUnits}), p.gain_h = weight("gain_h", {4 * kUnits});
    p.gain_c = weight("gain_c", {kUnits}), p.shift_c = weight("shift_c", {kUnits});
  } else {
    p.peep = weight("peep", {3, kUnits});
  }
  const Value start = expand(full(g, {}, 0, f64), {kCellRows, kUnits});
  const StepResult made = scan({start, start}, {xs}, [&](const Values& state, const Values& element) {
    const Values next = is_normalised ? normalised_cell(element[0], state[0], state[1], p)
                                      : peephole_cell(element[0], state[0], state[1], p);
    return step(next, {next[0]});
  });
  const Value loss = sum(made.outputs[0] * made.outputs[0]);
  g.fetch("ys", made.outputs[0]), g.fetch("loss", loss);
  Values inputs;
  for (NodeId id : g.inputs()) inputs.push_back(g.value({id, 0}));
  const Values grads = gradients(std::array{loss}, inputs);
  for (std::size_t i = 0; i < grads.size(); ++i) g.fetch("d_" + g.node(inputs[i].ref().node).name.str(), grads[i]);

  const Feeds feeds = make_feeds(g, 4);
  Program program(g, {.device = Device::cpu()});
  const Tensors got = program.run(to_tensors(g, feeds));
  expect_close("ys", got.at("ys").to_doubles(), expected(feeds, is_normalised), 1e-12);
  for (const auto& [name, values] : feeds) {
    const Dense gradient = got.at("d_" + name).to_doubles();
    for (const std::size_t element : {std::size_t{0}, values.size() - 1}) {
      const auto moved = [&, &name = name](double by) {
        Feeds other = feeds;
        other[name][element] += by;
        return program.run(to_tensors(g, other)).at("loss").to_doubles()[0];
      };
      EXPECT_NEAR(gradient[element], (moved(1e-5) - moved(-1e-5)) / 2e-5, 1e-6 * (1 + largest(gradient))) << name;
    }
  }
}

TEST(OwnCells, LookAtTheirCellState) { check(false); }
TEST(OwnCells, NormaliseTheirSums) { check(true); }

}  // namespace
}  // namespace paoding::testing_program
