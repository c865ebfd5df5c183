// SPDX-License-Identifier: Apache-2.0
// 09_profile_a_loop [FILE.json]: where the time of a training loop goes. Ten of thirty steps are recorded, when caches
// are warm. The report names the ops that take longest; the timeline, every launch of every step, goes to FILE for
// Perfetto or chrome://tracing. The report's total is set beside a clock around the same steps.
#include <chrono>
#include <filesystem>
#include <iostream>

#include "adder.h"

namespace pd = paoding;

int main(int argc, char** argv) try {
  constexpr int kDigits = 12, kBatch = 256, kFirst = 10, kEnd = 20, kSteps = 30;
  const std::string timeline =
      argc > 1 ? argv[1] : (std::filesystem::temp_directory_path() / "paoding_loop.json").string();
  pd::Graph g;
  const pd::Value pairs = g.input("pairs", pd::i32, {kDigits, kBatch});
  const pd::Value digits = g.input("digits", pd::i32, {kDigits, kBatch});
  pd::Value loss;
  {
    const pd::Scope scope(g, "adder");  // rows of the report can be told apart by where their op stands
    loss = pd::cross_entropy(adder::add_digits(g, pairs), digits);
  }
  pd::minimize(loss, pd::Adam{});
  g.fetch("loss", loss);
  const pd::Device device = pd::Device::best();
  pd::Parameters parameters(g, device);
  pd::Program program(g, {.device = device}, &parameters);

  std::mt19937_64 random(1);
  const auto step = [&] {
    const adder::Sums sums = adder::random_sums(kDigits, kBatch, random);
    program.set_input(program.input_index("pairs"), sums.pairs);
    program.set_input(program.input_index("digits"), sums.digits);
    program.run();
    program.wait();
  };
  for (int i = 0; i < kFirst; ++i) step();
  pd::Profiler seen;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = kFirst; i < kEnd; ++i) step();
  const auto end = std::chrono::steady_clock::now();
  const std::string report = seen.stop(pd::SortBy::total, timeline);
  for (int i = kEnd; i < kSteps; ++i) step();  // nothing is recorded any more

  std::cout << report << "\nA clock around the steps saw "
            << std::chrono::duration<double, std::milli>(end - begin).count() << " ms for " << kEnd - kFirst
            << " of them.\nThe timeline is in " << timeline << "\n";
} catch (const pd::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
