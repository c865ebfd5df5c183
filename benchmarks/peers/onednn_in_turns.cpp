// SPDX-License-Identifier: Apache-2.0
// A training step of an LSTM, ours and oneDNN's primitive in turns in one process, on the same threads: where a
// machine's speed changes from second to second, only neighbours in time compare. Prints medians [quartiles] and the
// least, in ms, and the same of the ratio of neighbours, ours / oneDNN's.
//   c++ -O2 -std=c++20 -Iinclude benchmarks/peers/onednn_in_turns.cpp -o in_turns -Lbuild -lpaoding -ldnnl -lfmt
//   LD_LIBRARY_PATH=build OMP_NUM_THREADS=2 taskset -c 0,1 ./in_turns [TURNS [T B H]]
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "onednn_layer.h"
#include "paoding/paoding.h"

namespace {

using namespace paoding;

struct Extents {
  std::int64_t steps = 50, batch = 32, hidden = 512;
};

// The gradients of sum(ys * dys) by inputs and weights, as `paoding bench` has them.
Program make_program(const Extents& e) {
  const std::int64_t T = e.steps, B = e.batch, H = e.hidden;
  Graph g;
  const Value xs = g.input("xs", f32, {T, B, H}), dys = g.input("dys", f32, {T, B, H});
  const Value w = g.input("w", f32, {H, 4 * H}), u = g.input("u", f32, {H, 4 * H}), b = g.input("b", f32, {4 * H});
  const RecurrentResult layer = lstm(xs, std::vector<RecurrentParameters>{{w, u, b}}, {});
  g.fetch("ys", layer.outputs);
  const Values grads = gradients(std::array{layer.outputs}, std::array{xs, w, u, b}, std::array{dys});
  for (std::size_t i = 0; i < grads.size(); ++i) g.fetch("grad" + std::to_string(i), grads[i]);
  Program program(g);
  std::mt19937 random(1);
  std::normal_distribution<double> normal(0, 1);
  for (const std::string& name : program.input_names()) {
    const int input = program.input_index(name);
    const Type& type = program.input_type(input);
    const double scale = name == "xs" || name == "dys" ? 1 : 1 / std::sqrt(static_cast<double>(H));
    std::vector<double> values(static_cast<std::size_t>(type.shape.elements()));
    for (double& value : values) value = scale * normal(random);
    program.set_input(input, Tensor::from(type.dtype, type.shape, values));
  }
  return program;
}

void print(const char* name, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  std::printf("%-18s %7.3f [%.3f, %.3f] least %.3f\n", name, values[n / 2], values[n / 4], values[n * 3 / 4],
              values[0]);
}

}  // namespace

int main(int count, char** arguments) {
  const auto number = [&](int i, std::int64_t otherwise) { return count > i ? std::atoll(arguments[i]) : otherwise; };
  Extents e;
  const auto turns = std::max<std::int64_t>(number(1, 40), 1);
  e = {number(2, e.steps), number(3, e.batch), number(4, e.hidden)};
  Program ours = make_program(e);
  Request request;
  request.kind = "lstm_training", request.dtype = "f32";
  request.steps = static_cast<int>(e.steps), request.batch = static_cast<int>(e.batch);
  request.hidden = static_cast<int>(e.hidden);
  OneDnnLayer theirs(request);
  for (int i = 0; i < 3; ++i) ours.run(), theirs.run();
  std::vector<double> our_ms, their_ms, forward_ms, backward_ms, ratio;
  for (std::int64_t i = 0; i < turns; ++i) {
    const double begin = microseconds();
    ours.run();
    const double between = microseconds();
    theirs.run_forward();
    const double behind_forward = microseconds();
    theirs.run_backward();
    const double end = microseconds();
    our_ms.push_back((between - begin) / 1e3), their_ms.push_back((end - between) / 1e3);
    forward_ms.push_back((behind_forward - between) / 1e3), backward_ms.push_back((end - behind_forward) / 1e3);
    ratio.push_back((between - begin) / (end - between));
  }
  print("ours", our_ms);
  print("oneDNN", their_ms);
  print("  its forward", forward_ms);
  print("  its gradients", backward_ms);
  print("ours / oneDNN", ratio);
}
