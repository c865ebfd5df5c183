// SPDX-License-Identifier: Apache-2.0
// An op of your own: one block with its formula. Shape check, broadcasting, dtypes, the gradient, fusion with its
// neighbours and kernels for every device are derived from it; it has a line in reports and can be written in graph
// source, like any op of the library.
#include <array>
#include <cmath>
#include <iostream>

#include "paoding/op.h"
#include "paoding/paoding.h"

namespace pd = paoding;

namespace {

// Mish (Misra 2019) with a slope: a * tanh(softplus(slope * a)). Scalar stands for one element.
void register_sloped_mish() {
  pd::register_op({.name = "sloped_mish",
                   .summary = "a * tanh(log(1 + e^(slope * a)))",
                   .kind = pd::OpKind::formula,
                   .inputs = {"a", "slope"},
                   .formula = pd::formula([](pd::Scalar a, pd::Scalar slope) {
                     const pd::Scalar x = slope * a;
                     // log(1 + e^x) without overflow for large x.
                     return a * tanh(maximum(x, x.constant(0)) + log1p(exp(-abs(x))));
                   }),
                   .cases = {{.shapes = {{4, 3}, {}}}}});
}

pd::Value sloped_mish(const pd::Value& a, const pd::Value& slope) { return pd::call("sloped_mish", {a, slope}); }

double sloped_mish(double a, double slope) { return a * std::tanh(std::log1p(std::exp(slope * a))); }

}  // namespace

int main() {
  register_sloped_mish();
  pd::Graph g;
  const pd::Value x = g.input("x", pd::f32, {4, 1000});
  const pd::Value slope = g.input("slope", pd::f32, {4, 1});  // broadcasts over the columns
  const pd::Value y = sloped_mish(x * 2.0, slope);
  const pd::Value loss = pd::sum(y * y);
  const pd::Values grads = pd::gradients(loss, {x, slope});
  g.fetch("loss", loss);
  g.fetch("dx", grads[0]);
  g.fetch("dslope", grads[1]);

  std::vector<double> xs(4000), slopes{0.5, 1, 1.5, 2};
  for (std::size_t i = 0; i < xs.size(); ++i) xs[i] = std::sin(static_cast<double>(i));
  pd::Program program(g);
  const auto got = program.run(
      {{"x", pd::Tensor::from(pd::f32, {4, 1000}, xs)}, {"slope", pd::Tensor::from(pd::f32, {4, 1}, slopes)}});

  // The derived gradient of the slope beside a central difference of the formula in C++.
  const auto loss_of = [&](double first_slope) {
    double sum = 0;
    for (std::size_t i = 0; i < 1000; ++i) sum += std::pow(sloped_mish(2 * xs[i], first_slope), 2);
    return sum;
  };
  const double difference = (loss_of(0.5 + 1e-5) - loss_of(0.5 - 1e-5)) / 2e-5;
  std::cout << "loss = " << got.at("loss").item<double>() << "\n"
            << "dslope[0] = " << got.at("dslope").values<float>()[0] << ", by differences " << difference << "\n"
            << program.report().launches << " kernels for the op, the loss and both gradients\n";
}
