// SPDX-License-Identifier: Apache-2.0
// Section B, first part: gradients of biases, which are sums over all axes but one.
#include <algorithm>

#include "cli/bench/case.h"
#include "cli/bench/expected.h"
#include "cli/bench/floor.h"
#include "cli/numbers.h"
#include "io/json_text.h"
#include "paoding/ops.h"

namespace paoding::cli::bench {
namespace {

struct Sum {
  std::string name;
  Shape shape;
  std::vector<std::int64_t> axes;  // summed over
  double goal_f32, goal_bf16;      // us
};

std::vector<Sum> sums() {
  return {{"rows_6400x2048", {6400, 2048}, {0}, 14.5, 9},
          {"rows_6400x512", {6400, 512}, {0}, 6, 5},
          {"rows_65536x4096", {65536, 4096}, {0}, 245, 127},
          {"conv_1000x16x28x28", {1000, 16, 28, 28}, {0, 2, 3}, 14, 9},
          {"conv_256x64x112x112", {256, 64, 112, 112}, {0, 2, 3}, 200, 105}};
}

Shape kept(const Sum& s) { return s.axes.size() == 1 ? Shape{1, s.shape[1]} : Shape{1, s.shape[1], 1, 1}; }

std::string sizes_of(const Sum& s) {
  std::vector<std::string> shape, axes;
  for (int i = 0; i < s.shape.rank(); ++i) shape.push_back(std::to_string(s.shape[i]));
  for (const std::int64_t axis : s.axes) axes.push_back(std::to_string(axis));
  return JsonObject().add_json("shape", json_array(shape)).add_json("axes", json_array(axes)).text();
}

Case plain_sum(const Sum& s, DType dtype) {
  Case c;
  c.section = 'B';
  c.kind = "sum";
  c.name = fmt::format("sum/{}_{}", s.name, to_string(dtype));
  c.what = fmt::format("{} over axes {}", to_string(s.shape), fmt::join(s.axes, ", "));
  c.sizes = sizes_of(s);
  c.dtype = dtype;
  const double size = static_cast<double>(size_bytes(dtype));
  c.need = {.read = size * static_cast<double>(s.shape.elements()), .written = size * static_cast<double>(s.shape[1])};
  c.goal.cold = dtype == f32 ? s.goal_f32 : s.goal_bf16;
  c.on_cpu = s.shape.elements() < (1 << 26);
  c.build = [s](Graph& graph, DType type, const std::string& suffix) {
    graph.fetch("sum" + suffix, sum(graph.input("a" + suffix, type, s.shape), s.axes));
  };
  c.expected = [s](const Feeds& feeds) {
    const Tensor& a = feeds.at("a");
    return Expected{
        {"sum", sum_to(kept(s), s.shape, Shape{1}, [&](std::int64_t i, std::int64_t) { return element(a, i); })}};
  };
  return c;
}

// The gradient of a ReLU, by itself and with the bias gradient that could ride on its kernel.
void build_relu_gradient(Graph& graph, const Shape& shape, DType dtype, const std::string& suffix, bool sums) {
  const Value y = graph.input("y" + suffix, dtype, shape), dy = graph.input("dy" + suffix, dtype, shape);
  const Value dx = where(greater(y, 0), dy, 0);
  graph.fetch("dx" + suffix, dx);
  const std::vector<std::int64_t> axes = {0, 2, 3};
  if (sums) graph.fetch("sum" + suffix, sum(dx, axes));
}

// `sums`: the case also sums the gradient.
Case relu_gradient(const Sum& s, DType dtype, bool sums) {
  const double size = static_cast<double>(size_bytes(dtype)), elements = static_cast<double>(s.shape.elements());
  Case c;
  c.section = 'B';
  c.kind = sums ? "relu_grad_sum" : "relu_grad";
  c.name = fmt::format("{}/{}_{}", c.kind, s.name, to_string(dtype));
  c.what = fmt::format("{}{}", to_string(s.shape), sums ? ", with its sum over axes 0, 2, 3" : "");
  c.sizes = sizes_of(s);
  c.dtype = dtype;
  c.need = {.read = 2 * elements * size, .written = elements * size};
  // The sum may add 2 us to the kernel that makes the gradient, whose time is the floor with a launch.
  if (sums) c.goal.cold = c.need.bytes() / kMixedRate + kLaunchUs + 2;
  c.build = [shape = s.shape, sums](Graph& graph, DType type, const std::string& suffix) {
    build_relu_gradient(graph, shape, type, suffix, sums);
  };
  return c;
}

}  // namespace

Cases sum_cases() {
  Cases cases;
  for (const Sum& s : sums()) {
    for (const DType dtype : {f32, bf16}) cases.push_back(plain_sum(s, dtype));
  }
  for (const DType dtype : {f32, bf16}) {
    for (const bool sums_too : {false, true}) cases.push_back(relu_gradient(sums()[3], dtype, sums_too));
  }
  return cases;
}

}  // namespace paoding::cli::bench
