// SPDX-License-Identifier: Apache-2.0
// Fits a line to points with the installed library: y = 3 x - 1 comes back.
#include <paoding/paoding.h>
#include <paoding/version.h>

#include <cmath>
#include <iostream>
#include <vector>

namespace pd = paoding;

int main() {
  constexpr int kPoints = 64;
  pd::Graph g;
  const pd::Value x = g.input("x", pd::f32, {kPoints}), y = g.input("y", pd::f32, {kPoints});
  const pd::Value slope = g.parameter("slope", pd::f32, {}), offset = g.parameter("offset", pd::f32, {});
  const pd::Value loss = pd::mean(pd::square(slope * x + offset - y));
  pd::minimize(loss, pd::Adam{.learning_rate = 0.05});
  g.fetch("loss", loss);

  std::vector<double> xs(kPoints), ys(kPoints);
  for (std::size_t i = 0; i < xs.size(); ++i) {
    xs[i] = std::sin(static_cast<double>(i));
    ys[i] = 3 * xs[i] - 1;
  }
  const pd::Device device = pd::Device::best();
  pd::Parameters parameters(g, device);
  pd::Program program(g, {.device = device}, &parameters);
  program.set_input(program.input_index("x"), pd::Tensor::from(pd::f32, {kPoints}, xs));
  program.set_input(program.input_index("y"), pd::Tensor::from(pd::f32, {kPoints}, ys));
  for (int i = 0; i < 500; ++i) program.run();

  const double found_slope = parameters.get("slope").item<double>();
  const double found_offset = parameters.get("offset").item<double>();
  std::cout << "y = " << found_slope << " x + " << found_offset << ", found by paoding " << PAODING_VERSION << " on "
            << to_string(device) << "\n";
  return std::fabs(found_slope - 3) + std::fabs(found_offset + 1) < 0.05 ? 0 : 1;
}
