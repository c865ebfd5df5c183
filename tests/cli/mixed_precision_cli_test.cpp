// SPDX-License-Identifier: Apache-2.0
// --dtype of train, predict, evaluate and run, as a user says it.
#include <algorithm>

#include "paoding/checkpoint.h"
#include "tests/cli/training_run.h"

namespace paoding {
namespace {

class MixedPrecisionCli : public TrainingRun {
 protected:
  static constexpr const char* kQuiet = " --no-test --show 0";
};

TEST_F(MixedPrecisionCli, TrainingInF16GoesOnWithTheSameBytes) {
  for (const char* dtype : {"f16", "bf16"}) {
    const std::string more = " --dropout 0.2 --save-minutes 0 --dtype " + std::string(dtype) + kQuiet;
    const std::string whole = std::string("whole_") + dtype, parts = std::string("parts_") + dtype;
    trained(whole, more);
    trained(parts, more);
    const std::vector<std::string> saved = checkpoints(parts);
    ASSERT_GE(saved.size(), 2u);
    fs::remove_all(folder_ / (parts + "/" + saved.back()));  // as if killed before it was saved
    const Ran rest = shell("paoding train g2p --out " + parts + " --resume --save-minutes 0" + kQuiet);
    EXPECT_EQ(rest.code, 0) << rest.err;
    const std::string file = "/" + saved.back() + "/parameters.safetensors";
    EXPECT_TRUE(slurp(folder_ / (whole + file)) == slurp(folder_ / (parts + file))) << dtype;
  }
}

TEST_F(MixedPrecisionCli, TheLossScaleAndSkippedStepsAreShown) {
  const Ran lines = trained("a", "--dtype f16 --json" + std::string(kQuiet));
  EXPECT_TRUE(has(lines.out, "\"loss_scale\":65536")) << lines.out;
  EXPECT_TRUE(has(lines.out, "\"skipped\":0")) << lines.out;
  const Ran text = trained("b", "--dtype f16" + std::string(kQuiet));
  EXPECT_TRUE(has(text.out, "loss scale 65536, 0 steps skipped")) << text.out;
  EXPECT_FALSE(has(trained("c", "--dtype bf16" + std::string(kQuiet)).out, "loss scale"));
}

TEST_F(MixedPrecisionCli, ALossThatOverflowsStopsTrainingAsInF32) {
  trained("a", "--steps 4 --dtype f16" + std::string(kQuiet));
  Checkpoint poisoned = load_checkpoint(folder_ / "a", true);
  Tensor& weight = poisoned.tensors.at("memory/weight");
  std::fill_n(weight.data<float>(), weight.shape().elements(), 3e38f);  // more than f16 holds
  CheckpointFolder(folder_ / "a").save(poisoned);
  const Ran ran = shell("paoding train g2p --resume --steps 0 --out a");
  EXPECT_EQ(ran.code, 1) << ran.out << ran.err;
  EXPECT_TRUE(has(ran.err, "training stopped at step")) << ran.err;
  EXPECT_TRUE(has(ran.err, "what was trained before is in a/step-")) << ran.err;
}

TEST_F(MixedPrecisionCli, ACheckpointFixesWhatItWasTrainedIn) {
  trained("a", "--dtype f16" + std::string(kQuiet));
  const Ran other = shell("paoding train g2p --out a --resume --epochs 3 --dtype bf16" + std::string(kQuiet));
  EXPECT_EQ(other.code, 1) << other.out;
  EXPECT_TRUE(has(other.err, "dtype was f16 when this training began, and cannot be bf16 now")) << other.err;
}

TEST_F(MixedPrecisionCli, PredictsAndScoresInAnyPrecision) {
  trained("a", kQuiet);
  folder_.write("words.txt", "badek\nlosat\n");
  for (const char* dtype : {"f32", "bf16", "f16"}) {
    const Ran said = shell("paoding predict g2p a words.txt --dtype " + std::string(dtype));
    EXPECT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(lines_of(said.out).size(), 2u) << said.out;
    const Ran scored = shell("paoding evaluate g2p a --tf32 --limit 5 --dtype " + std::string(dtype));
    EXPECT_EQ(scored.code, 0) << scored.err;
    EXPECT_TRUE(has(scored.out, "phoneme error rate")) << scored.out;
  }
}

TEST_F(MixedPrecisionCli, OtherDtypesAreRefused) {
  folder_.write("g.txt", "paoding graph 1\nx = input f32[4,4]\ny = matmul(x, x)\nfetch y\n");
  for (const char* command : {"run g.txt --random 1", "dump g.txt --plan", "predict g2p a"}) {
    const Ran ran = shell(std::string("paoding ") + command + " --dtype f64");
    EXPECT_EQ(ran.code, 2) << command << ran.out;
    EXPECT_TRUE(has(ran.err, "--dtype is 'f64', needs to be f32, bf16 or f16")) << ran.err;
  }
  EXPECT_EQ(shell(train("--dtype f64 --out b")).code, 2);
  const Ran run = shell("paoding run g.txt --random 1 --dtype bf16");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_TRUE(has(run.out, "f32[4,4]")) << run.out;
}

}  // namespace
}  // namespace paoding
