// SPDX-License-Identifier: Apache-2.0
// 13_slow_reader [MILLISECONDS [AHEAD [SUMS]]]: a training loop that waits for its data, and how a report says so
// (docs/howto/read_data_faster.md). Reading a batch takes so long, 5 ms where nothing is said; 0 is a reader that is
// not slow. AHEAD batches are read in advance by a thread of their own; none where nothing is said. A batch has SUMS
// sums, 16 where nothing is said: a step takes longer with more.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "adder.h"

namespace pd = paoding;

namespace {

adder::Sums read_a_batch(int milliseconds, int sums, std::mt19937_64& random) {
  const pd::ProfileRange range("read a batch");
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  return adder::random_sums(8, sums, random);
}

}  // namespace

int main(int argc, char** argv) try {
  const int milliseconds = argc > 1 ? std::atoi(argv[1]) : 5, ahead = argc > 2 ? std::atoi(argv[2]) : 0;
  const int count = argc > 3 ? std::max(1, std::atoi(argv[3])) : 16;
  constexpr int kFirst = 5, kSteps = 25;
  pd::Graph g;
  const pd::Value pairs = g.input("pairs", pd::i32, {8, count}), digits = g.input("digits", pd::i32, {8, count});
  pd::minimize(pd::cross_entropy(adder::add_digits(g, pairs), digits), pd::Adam{});
  const pd::Device device = pd::Device::best();
  pd::Parameters parameters(g, device);
  pd::Program program(g, {.device = device}, &parameters);

  std::mt19937_64 random(1);
  pd::data::Prefetch<adder::Sums> reader(
      kSteps, [&](std::int64_t) { return read_a_batch(milliseconds, count, random); }, static_cast<std::size_t>(ahead));
  pd::ProfiledSteps profiled({.first = kFirst, .end = kSteps});
  for (int i = 0; i <= kSteps; ++i) {
    profiled.before(i);
    if (i == kSteps) break;
    std::optional<adder::Sums> sums;
    {
      const pd::ProfileRange range("wait for a batch");
      sums = reader.next();
    }
    program.set_input(program.input_index("pairs"), sums->pairs);
    program.set_input(program.input_index("digits"), sums->digits);
    program.run();
    program.wait();
  }
  std::cout << profiled.profiler()->stop();
} catch (const pd::Error& error) {
  std::cerr << error.what() << "\n";
  return EXIT_FAILURE;
}
