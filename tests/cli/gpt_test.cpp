// SPDX-License-Identifier: Apache-2.0
// `paoding train gpt`: texts that it draws while it is trained and after, the same in a run that was stopped, in a file
// of the model, and for a line whatever stands beside it; weight decay, which leaves biases and norms alone.
#include "paoding/checkpoint.h"
#include "tests/cli/training_run.h"
#include "tests/support/small_corpora.h"

namespace paoding {
namespace {

class GptRun : public TrainingRun {
 protected:
  Ran train_gpt(const std::string& out, const std::string& more) const {
    const Ran ran = shell(
        "paoding train gpt --hidden=16 --heads=2 --layers=1 --context=32 --batch-size=16 --continue 12 --validate 8 "
        "--no-test --out " +
        out + " --data " + small_corpora::all().path().string() + " " + more);
    EXPECT_EQ(ran.code, 0) << ran.err;
    return ran;
  }
  static std::vector<std::string> samples(const std::string& out) {
    std::vector<std::string> found;
    for (const std::string& line : lines_of(out)) {
      if (line.starts_with("  sample: ")) found.push_back(line);
    }
    return found;
  }
  std::vector<std::string> answers(const std::string& command) const {
    const Ran ran = shell(command);
    EXPECT_EQ(ran.code, 0) << ran.err;
    return lines_of(ran.out);
  }
};

TEST_F(GptRun, DrawsTheSameTextsWhenItGoesOn) {
  const Ran whole = train_gpt("whole", "--steps 60 --learning-rate 0.01 --last-learning-rate 0.01");
  train_gpt("parts", "--steps 40 --learning-rate 0.01 --last-learning-rate 0.01");
  const Ran rest = train_gpt("parts", "--steps 60 --resume");
  ASSERT_EQ(samples(whole.out).size(), 1U) << whole.out;
  EXPECT_EQ(samples(rest.out), samples(whole.out));
  EXPECT_TRUE(has(whole.out, "validation: bits per byte ")) << whole.out;
  const Ran json = train_gpt("json", "--steps 3 --json");
  EXPECT_TRUE(has(json.out, R"({"event":"sample","step":3,"text":")")) << json.out;
  EXPECT_TRUE(samples(train_gpt("none", "--steps 3 --show 0").out).empty());

  const std::string asked = "printf 'And the\\nthe light\\nAnd\\n' | paoding predict ";
  const auto searched = answers(asked + "gpt whole"), drawn = answers(asked + "gpt whole --temperature 1 --seed 3");
  ASSERT_EQ(drawn.size(), 3U);
  EXPECT_NE(drawn, searched);
  EXPECT_EQ(answers(asked + "gpt whole --temperature 1 --seed 3 --each-line"), drawn);
  EXPECT_NE(answers(asked + "gpt whole --temperature 1 --seed 4"), drawn);
  ASSERT_EQ(shell("paoding export whole whole.pd").code, 0);
  EXPECT_EQ(answers(asked + "whole.pd --temperature 1 --seed 3"), drawn);
  EXPECT_EQ(answers(asked + "whole.pd"), searched);
  const Ran two = shell(asked + "gpt whole --temperature 1 --beam 2 --best 2");
  EXPECT_EQ(two.code, 2);
  EXPECT_TRUE(has(two.err, "--temperature draws one prediction per input")) << two.err;
}

TEST_F(GptRun, OtherModelsDoNotDraw) {
  trained("a");
  const Ran ran = shell("echo bada | paoding predict g2p a --temperature 1");
  EXPECT_EQ(ran.code, 2);
  EXPECT_TRUE(has(ran.err, "--temperature is for models that write texts; g2p searches")) << ran.err;
}

TEST_F(GptRun, OnlyMatricesDecay) {
  train_gpt("with", "--steps 1 --learning-rate 0.1 --warmup 0 --dropout 0 --weight-decay 0.5");
  train_gpt("without", "--steps 1 --learning-rate 0.1 --warmup 0 --dropout 0 --weight-decay 0");
  const Checkpoint with = load_checkpoint(path("with")), without = load_checkpoint(path("without"));
  int matrices = 0, others = 0;
  for (const auto& [name, tensor] : with.tensors) {
    if (!is_float(tensor.dtype()) || name.starts_with("adam/")) continue;
    const bool is_same = tensor.to_doubles() == without.tensors.at(name).to_doubles();
    EXPECT_EQ(is_same, tensor.shape().rank() < 2) << name;
    ++(is_same ? others : matrices);
  }
  EXPECT_EQ(matrices, 6);
  EXPECT_EQ(others, 10);
}

}  // namespace
}  // namespace paoding
