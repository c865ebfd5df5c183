// SPDX-License-Identifier: Apache-2.0
// Builds a graph, differentiates it, compiles it and runs it.
//
// out = lerp(x, y, w) with broadcasting, and the gradients of x and y for a given gradient of out. Both gradients come
// out of one kernel that reads dout once.
#include <iostream>

#include "paoding/paoding.h"

namespace pd = paoding;

int main() {
  pd::Graph g;
  const pd::Value x = g.input("x", pd::f32, {2, 1});
  const pd::Value y = g.input("y", pd::f32, {2, 3});
  const pd::Value w = g.input("w", pd::f32, {});
  const pd::Value dout = g.input("dout", pd::f32, {2, 3});

  const pd::Value out = pd::lerp(x, y, w);
  const pd::Values grads = pd::gradients({out}, {x, y}, {dout});
  g.fetch("out", out);
  g.fetch("dx", grads[0]);
  g.fetch("dy", grads[1]);

  pd::Program program(g, {.device = pd::Device::best()});
  const auto results = program.run({{"x", pd::Tensor::from({{0.0f}, {10.0f}})},
                                    {"y", pd::Tensor::from({{1.0f, 2.0f, 3.0f}, {4.0f, 5.0f, 6.0f}})},
                                    {"w", pd::Tensor::from(pd::f32, {}, {0.25})},
                                    {"dout", pd::Tensor::from({{1.0f, 1.0f, 1.0f}, {1.0f, 1.0f, 1.0f}})}});
  for (const auto& [name, value] : results) {
    std::cout << name << " " << pd::to_string(value.type()) << " =";
    for (double element : value.to_doubles()) std::cout << " " << element;
    std::cout << "\n";
  }
  std::cout << "\n" << program.plan_text();
}
