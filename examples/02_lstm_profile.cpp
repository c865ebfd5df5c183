// SPDX-License-Identifier: Apache-2.0
// An LSTM written as its step and nothing else, its gradients, and a report of where the time goes.
//
// The compiler takes the recurrence apart: x w for all time steps is one product before the loop, the weight gradients
// are one product each after it, and the rest is an LSTM over time, which one kernel runs as a whole.
#include <iostream>
#include <random>
#include <vector>

#include "paoding/paoding.h"

namespace pd = paoding;

namespace {

pd::Tensor normal(const pd::Type& type, std::mt19937& random) {
  std::normal_distribution<double> distribution(0, 0.1);
  std::vector<double> values(static_cast<std::size_t>(type.shape.elements()));
  for (double& value : values) value = distribution(random);
  return pd::Tensor::from(type.dtype, type.shape, values);
}

}  // namespace

int main() {
  constexpr int kTime = 64, kBatch = 8, kInputs = 128, kHidden = 128;
  pd::Graph g;
  const pd::Value xs = g.input("xs", pd::f32, {kTime, kBatch, kInputs});
  const pd::Value h0 = g.input("h0", pd::f32, {kBatch, kHidden});
  const pd::Value c0 = g.input("c0", pd::f32, {kBatch, kHidden});
  const pd::Value w = g.parameter("w", pd::f32, {kInputs, 4 * kHidden});
  const pd::Value u = g.parameter("u", pd::f32, {kHidden, 4 * kHidden});
  const pd::Value b = g.parameter("b", pd::f32, {4 * kHidden});

  pd::StepResult lstm;
  {
    const pd::Scope scope(g, "lstm");
    lstm = pd::scan({h0, c0}, {xs}, [&](const pd::Values& carries, const pd::Values& elements) {
      const auto [h, c] = pd::lstm_cell(elements[0], carries[0], carries[1], w, u, b);
      return pd::step({h, c}, {h});
    });
  }
  const pd::Value loss = pd::sum(lstm.outputs[0] * lstm.outputs[0]);
  const pd::Values grads = pd::gradients(loss, {w, u, b});
  g.fetch("loss", loss);
  g.fetch("dw", grads[0]);
  g.fetch("du", grads[1]);
  g.fetch("db", grads[2]);

  const pd::Device device = pd::Device::best();
  std::mt19937 random(7);
  pd::Parameters parameters(g, device);
  for (const pd::Value& parameter : {w, u, b}) {
    parameters.set(g.node(parameter.ref().node).name.str(), normal(parameter.type(), random));
  }
  pd::Program program(g, {.device = device}, &parameters);
  for (const pd::Value& input : {xs, h0, c0}) {
    program.set_input(program.input_index(g.node(input.ref().node).name.str()), normal(input.type(), random));
  }

  program.run();  // the first run warms caches up
  program.wait();
  pd::Profiler seen;
  for (int i = 0; i < 10; ++i) program.run();
  program.wait();
  std::cout << seen.stop(pd::SortBy::total);
  std::cout << "loss = " << program.fetch(program.fetch_index("loss")).item<double>() << " on " << to_string(device)
            << ", compiled in " << program.report().milliseconds << " ms, " << program.report().launches
            << " launches per run\n";
}
