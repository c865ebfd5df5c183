// SPDX-License-Identifier: Apache-2.0
// 14_slow_op: an op of one's own that is slow because of its work on the host, how a report says so, and how much is
// gained by mending it (docs/howto/mend_a_slow_op.md). The mean of all rows so far, once written as a loop that takes
// row by row, once as a sum over rows.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <limits>

#include "paoding/paoding.h"

namespace pd = paoding;

namespace {

constexpr std::int64_t kRows = 5000, kColumns = 8;

void register_means() {
  pd::register_op({.name = "my_slow_mean",
                   .summary = "row t is the mean of rows 0 to t",
                   .kind = pd::OpKind::composed,
                   .inputs = {"x"},
                   .compose =
                       [](std::span<const pd::Value> in, const pd::Attrs&) {
                         const pd::Value zero = pd::full(in[0].graph(), {kColumns}, 0);
                         const pd::Value none = pd::full(in[0].graph(), {}, 0);
                         const auto row = [](const pd::Values& carries, const pd::Values& elements) {
                           const pd::Value sum = carries[0] + elements[0], count = carries[1] + 1;
                           return pd::step({sum, count}, {sum / count});
                         };
                         return pd::Values{pd::scan({zero, none}, {in[0]}, row).outputs[0]};
                       },
                   .cases = {{.shapes = {{kRows, kColumns}}}}});
  pd::register_op({.name = "my_mean",
                   .summary = "row t is the mean of rows 0 to t",
                   .kind = pd::OpKind::composed,
                   .inputs = {"x"},
                   .compose =
                       [](std::span<const pd::Value> in, const pd::Attrs&) {
                         const pd::Value count = pd::cast(pd::iota(in[0].graph(), {kRows, 1}, 0) + 1, pd::f32);
                         return pd::Values{pd::cumsum(in[0], 0) / count};
                       },
                   .cases = {{.shapes = {{kRows, kColumns}}}}});
}

// The report of ten steps, and the time of the fastest of ten when nobody records.
void show(const char* op) {
  pd::Graph g;
  const pd::Value x = g.input("x", pd::f32, {kRows, kColumns});
  const pd::Value w = g.input("w", pd::f32, {kColumns, kColumns});
  g.fetch("y", pd::sum(pd::tanh(pd::matmul(pd::call(op, {x}), w))));
  const pd::Device device = pd::Device::best();
  pd::Program program(g, {.device = device});
  for (const char* name : {"x", "w"}) {
    const int input = program.input_index(name);
    const pd::Shape& shape = program.input_type(input).shape;
    std::vector<double> values(static_cast<std::size_t>(shape.elements()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 17) / 17 - 0.5;
    program.set_input(input, pd::Tensor::from(pd::f32, shape, values));
  }
  const auto run_ten = [&] {
    double least_us = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 10; ++i) {
      const auto start = std::chrono::steady_clock::now();
      program.run(), program.wait();
      const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
      least_us = std::min(least_us, took.count());
    }
    return least_us;
  };
  const double least_us = run_ten();
  pd::Profiler seen;
  run_ten();
  std::cout << "======== " << op << "\n"
            << seen.stop(pd::SortBy::total, "", {.width = 48}) << "A step of " << op << " takes " << least_us
            << " us; y = " << program.fetch(0).item<double>() << "\n\n";
}

}  // namespace

int main() try {
  register_means();
  show("my_slow_mean");
  show("my_mean");
} catch (const pd::Error& error) {
  std::cerr << error.what() << "\n";
  return EXIT_FAILURE;
}
