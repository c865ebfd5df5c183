// SPDX-License-Identifier: Apache-2.0
// A recurrent cell of your own: write one step, scan() does the rest. The cell is the minimal gated unit (Zhou et al.
// 2016): f = sigmoid(x Wf + h Uf + bf), n = tanh(x Wn + (f h) Un + bn), h' = (1 - f) h + f n.
//
// Nothing here says so, but the products with x leave the loop as one product over all time steps, the weight gradients
// are one product each after it, and the rest of a step runs as one product and one kernel per gate.
#include <iostream>
#include <random>

#include "paoding/paoding.h"

namespace pd = paoding;

namespace {

constexpr int kTime = 50, kBatch = 16, kInputs = 64, kHidden = 96;

struct Unit {
  pd::Value wf, uf, bf, wn, un, bn;

  explicit Unit(pd::Graph& g) {
    const pd::Scope scope(g, "unit");
    wf = g.parameter("wf", pd::f32, {kInputs, kHidden});
    uf = g.parameter("uf", pd::f32, {kHidden, kHidden});
    bf = g.parameter("bf", pd::f32, {kHidden});
    wn = g.parameter("wn", pd::f32, {kInputs, kHidden});
    un = g.parameter("un", pd::f32, {kHidden, kHidden});
    bn = g.parameter("bn", pd::f32, {kHidden});
  }

  pd::Value operator()(const pd::Value& x, const pd::Value& h) const {
    const pd::Value f = pd::sigmoid(pd::matmul(x, wf) + pd::matmul(h, uf) + bf);
    const pd::Value n = pd::tanh(pd::matmul(x, wn) + pd::matmul(f * h, un) + bn);
    return pd::lerp(h, n, f);
  }
};

pd::Tensor normal(const pd::Type& type, std::mt19937& random) {
  std::normal_distribution<double> distribution(0, 0.1);
  std::vector<double> values(static_cast<std::size_t>(type.shape.elements()));
  for (double& value : values) value = distribution(random);
  return pd::Tensor::from(type.dtype, type.shape, values);
}

}  // namespace

int main() {
  pd::Graph g;
  const pd::Value xs = g.input("xs", pd::f32, {kTime, kBatch, kInputs});
  const pd::Value h0 = g.input("h0", pd::f32, {kBatch, kHidden});
  const Unit unit(g);
  const pd::StepResult made = pd::scan({h0}, {xs}, [&](const pd::Values& carry, const pd::Values& element) {
    const pd::Value h = unit(element[0], carry[0]);
    return pd::step({h}, {h});
  });
  const pd::Value loss = pd::sum(made.outputs[0] * made.outputs[0]);
  const pd::Values wanted{unit.wf, unit.uf, unit.bf, unit.wn, unit.un, unit.bn};
  const pd::Values grads = pd::gradients(loss, wanted);
  g.fetch("loss", loss);
  for (std::size_t i = 0; i < grads.size(); ++i) {
    g.fetch("d" + g.node(wanted[i].ref().node).name.str(), grads[i]);
  }

  const pd::Device device = pd::Device::best();
  std::mt19937 random(7);
  pd::Parameters parameters(g, device);
  for (const pd::Value& parameter : wanted) {
    parameters.set(g.node(parameter.ref().node).name.str(), normal(parameter.type(), random));
  }
  pd::Program program(g, {.device = device}, &parameters);
  const auto got = program.run({{"xs", normal(xs.type(), random)}, {"h0", normal(h0.type(), random)}});
  std::cout << "loss = " << got.at("loss").item<double>() << " on " << to_string(device) << "\n"
            << program.report().launches << " launches for " << kTime << " steps forward and backward\n\n"
            << program.plan_text();
}
