// SPDX-License-Identifier: Apache-2.0
// 06_train_and_save [FOLDER]: trains a GRU to add numbers of up to five digits (adder.h) and saves checkpoints that 07
// loads. Run again, it goes on where it stopped: parameters, Adam's means, the learning rate and the stream of random
// sums, so that the bits are those of a run that was never interrupted.
#include <iostream>

#include "adder.h"

namespace pd = paoding;

int main(int argc, char** argv) try {
  constexpr int kDigits = 6, kBatch = 64, kSteps = 600, kEvery = 200;
  pd::Graph g;
  const pd::Value pairs = g.input("pairs", pd::i32, {kDigits, kBatch});
  const pd::Value digits = g.input("digits", pd::i32, {kDigits, kBatch});
  const pd::Value loss = pd::cross_entropy(adder::add_digits(g, pairs), digits);
  pd::minimize(loss, pd::Adam{.learning_rate = pd::cosine_decay(0.02, kSteps, 0.001)});
  g.fetch("loss", loss);

  const pd::Device device = pd::Device::best();
  pd::Parameters parameters(g, device, {.seed = 1});
  pd::CheckpointFolder folder(adder::folder_of(argc, argv));
  pd::Checkpoint checkpoint;
  if (!folder.latest().empty()) {
    checkpoint = pd::load_checkpoint(folder.latest());
    pd::restore(&parameters, checkpoint.tensors);
    std::cout << "goes on after step " << checkpoint.manifest.step << "\n";
  }
  pd::Manifest& manifest = checkpoint.manifest;
  manifest.model = "adder";
  manifest.options = {{"hidden", std::to_string(adder::kHidden)}};
  manifest.score_name = "loss of a batch";

  pd::Program program(g, {.device = device}, &parameters);
  const int pairs_at = program.input_index("pairs"), digits_at = program.input_index("digits");
  const int loss_at = program.fetch_index("loss");
  while (manifest.step < kSteps) {
    std::mt19937_64 random(static_cast<std::uint64_t>(manifest.step));  // every step has sums of its own
    const adder::Sums sums = adder::random_sums(kDigits, kBatch, random);
    program.set_input(pairs_at, sums.pairs);
    program.set_input(digits_at, sums.digits);
    program.run();
    if (++manifest.step % kEvery != 0) continue;
    manifest.score = program.fetch(loss_at).item<double>();
    manifest.losses.emplace_back(manifest.step, manifest.score);
    checkpoint.tensors = pd::values_of(parameters);
    std::cout << "step " << manifest.step << ": loss = " << manifest.score << ", saved in "
              << folder.save(checkpoint).string() << "\n";
  }
  std::cout << "trained for " << manifest.step << " steps on " << to_string(device)
            << "; 07_load_and_predict uses it\n";
} catch (const pd::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
