// SPDX-License-Identifier: Apache-2.0
// 07_load_and_predict [FOLDER]: adds numbers of eleven digits with the network that 06_train_and_save trained on
// numbers of five. The parameters know nothing of lengths, so the same tensors fit a longer recurrence.
#include <iostream>

#include "adder.h"

namespace pd = paoding;

int main(int argc, char** argv) try {
  constexpr int kDigits = 12, kCount = 200, kShown = 4;
  const auto path = adder::folder_of(argc, argv);
  if (!std::filesystem::exists(path)) {
    std::cerr << path.string() << ": nothing is saved there: run 06_train_and_save first\n";
    return 1;
  }
  const pd::Checkpoint checkpoint = pd::load_checkpoint(path);  // the best one

  pd::Graph g;
  const pd::Value pairs = g.input("pairs", pd::i32, {kDigits, kCount});
  g.fetch("digits", pd::argmax(adder::add_digits(g, pairs), -1));
  const pd::Device device = pd::Device::best();
  pd::Parameters parameters(g, device);
  // The optimizer's state is in the checkpoint too, and has no place here.
  pd::restore(&parameters, checkpoint.tensors, true);
  pd::Program program(g, {.device = device}, &parameters);

  std::mt19937_64 random(2026);
  const adder::Sums sums = adder::random_sums(kDigits, kCount, random);
  const pd::Tensor digits = program.run({{"pairs", sums.pairs}}).at("digits");
  int right = 0;
  for (int i = 0; i < kCount; ++i) {
    std::int64_t sum = 0;
    for (int place = kDigits - 1; place >= 0; --place) {
      sum = 10 * sum + digits.values<std::int64_t>()[static_cast<std::size_t>(place * kCount + i)];
    }
    const auto n = static_cast<std::size_t>(i);
    const bool is_right = sum == sums.first[n] + sums.second[n];
    right += is_right ? 1 : 0;
    if (i < kShown) {
      std::cout << sums.first[n] << " + " << sums.second[n] << " = " << sum << (is_right ? "" : " (wrong)") << "\n";
    }
  }
  std::cout << "right: " << right << " of " << kCount << ", with the parameters of step " << checkpoint.manifest.step
            << " (" << checkpoint.manifest.score_name << " " << checkpoint.manifest.score << ")\n";
} catch (const pd::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
