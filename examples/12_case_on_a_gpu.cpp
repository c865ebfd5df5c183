// SPDX-License-Identifier: Apache-2.0
// 12_case_on_a_gpu: the cost of a `case` over scalar predicates beside its branches, in three ways of running it
// (docs/howto/branch_on_a_gpu.md). Step by step the host reads every predicate; with the predicates on the CPU it reads
// none from the GPU, but hands one over; as it is run by default the GPU decides and only the results are copied.
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "paoding/paoding.h"

namespace pd = paoding;

namespace {

enum class Way { stepwise, predicates_on_cpu, on_the_gpu };

// Which of three values, by which of the fed numbers is smaller.
void build(pd::Graph& g, Way way) {
  std::optional<pd::OnCpu> on_cpu;
  if (way == Way::predicates_on_cpu) on_cpu.emplace(g);
  const pd::Value x = g.input("x", pd::f32, {1}), y = g.input("y", pd::f32, {1}), z = g.input("z", pd::f32, {1});
  const pd::Value first = pd::less(z, x), second = pd::less(x, y), third = pd::equal(x, y);
  on_cpu.reset();
  const auto ones = [&] { return pd::Values{pd::full(g, {1, 2}, 1, pd::f32)}; };
  const auto twos = [&] { return pd::Values{pd::full(g, {2, 2}, 2, pd::i32)}; };
  const auto threes = [&] { return pd::Values{pd::full(g, {3}, 3, pd::i32)}; };
  g.fetch("out_1", pd::case_variant({{first, ones}, {second, twos}}, threes));
  g.fetch("out_2", pd::case_variant({{second, twos}, {third, threes}}));
}

void run(const char* name, Way way) {
  constexpr int kIterations = 100;
  pd::Graph g;
  build(g, way);
  pd::CompileOptions options{.device = pd::Device::best()};
  if (way == Way::stepwise) options.execution = pd::Execution::stepwise;
  pd::Program program(g, options);
  const auto number = [](double value) { return pd::Tensor::from(pd::f32, {1}, {value}); };
  const std::map<std::string, pd::Tensor> feeds{{"x", number(0.3)}, {"y", number(0.1)}, {"z", number(0.2)}};
  program.run(feeds);
  pd::Profiler seen;
  for (int i = 0; i < kIterations; ++i) program.run(feeds);
  const std::string report = seen.stop();
  std::cout << "======== " << name << ", " << kIterations << " iterations ========\n"
            << report.substr(0, report.find("\n------------------------- Event Summary")) << "\n";
}

}  // namespace

int main() try {
  run("step by step", Way::stepwise);
  run("predicates on the CPU", Way::predicates_on_cpu);
  run("by default", Way::on_the_gpu);
} catch (const pd::Error& error) {
  std::cerr << error.what() << "\n";
  return EXIT_FAILURE;
}
