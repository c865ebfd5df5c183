// SPDX-License-Identifier: Apache-2.0
// Training that is stopped, killed or fails, at any moment: resumed from its checkpoints it ends with the same bytes as
// training that never stopped.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include "paoding/checkpoint.h"
#include "paoding/program.h"
#include "tests/cli/training_run.h"
#include "tests/support/thread_sanitizer.h"

namespace paoding {
namespace {

class TrainStops : public TrainingRun {
 protected:
  std::vector<std::string> arguments(const std::string& out, const std::string& epochs = "--epochs=2") const {
    std::vector<std::string> all{"train", "g2p",       "--hidden=16", "--layers=1",       "--batch-size=8",
                                 epochs,  "--no-test", "--show=0",    "--save-minutes=0", "--out",
                                 out};
    if (!device_.empty()) all.push_back("--device=" + device_);
    if (!checkpoints(out).empty()) all.push_back("--resume");
    return all;
  }
  // The whole of the last checkpoint: parameters, optimizer, random counters, scores, losses, place in the data.
  std::map<std::string, std::string> undisturbed() const {
    trained("whole", "--no-test --show 0" + (device_.empty() ? "" : " --device " + device_));
    return last("whole");
  }
  static void wait_ms(double ms) { std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms)); }

  std::string device_;
};

class TrainStopsOn : public TrainStops, public testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    device_ = GetParam();
    if (device_ == "cuda" && Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
    TrainStops::SetUp();
  }
};
INSTANTIATE_TEST_SUITE_P(Cpu, TrainStopsOn, testing::Values("cpu"));
INSTANTIATE_TEST_SUITE_P(Gpu, TrainStopsOn, testing::Values("cuda"));

void expect_same(const std::map<std::string, std::string>& got, const std::map<std::string, std::string>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (const auto& [name, bytes] : wanted) {
    ASSERT_TRUE(got.count(name)) << name;
    EXPECT_TRUE(got.at(name) == bytes) << name << " differs"
                                       << (name == "manifest.json" ? ":\n" + got.at(name) + bytes : "");
  }
}

TEST_F(TrainStops, TrainingTwiceGivesTheSameBytes) {
  const auto first = undisturbed();
  trained("again");
  expect_same(last("again"), first);
  // However often it is saved.
  trained("often", "--no-test --show 0 --save-minutes 0");
  expect_same(last("often"), first);
}

TEST_F(TrainStops, StepsAndValidateAreKeptForResuming) {
  trained("whole", "--no-test --show 0 --steps 30 --validate 2");
  trained("parts", "--no-test --show 0 --steps 30 --validate 2 --save-minutes 0");
  // Pretend that it was killed after step 29.
  fs::remove_all(folder_ / ("parts/" + checkpoints("parts").back()));
  const Ran ran = shell("paoding train g2p --out parts --resume --no-test --show 0");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, " of 30\n")) << ran.out;
  EXPECT_EQ(checkpoints("parts").back(), "step-00000030");
  expect_same(last("parts"), last("whole"));
}

TEST_F(TrainStops, ACheckpointOfTheLastStepWithoutScoresIsScoredWhenResumed) {
  const auto whole = undisturbed();
  trained("parts", "--no-test --show 0 --save-minutes 0");
  // Make the folder that a kill between the last step's own checkpoint and its scores leaves.
  Checkpoint checkpoint = load_checkpoint(folder_ / "parts", true);
  checkpoint.manifest.epoch = 1;
  checkpoint.manifest.batch = checkpoint.manifest.step - load_manifest(folder_ / "parts", true).scores[0].first;
  checkpoint.manifest.scores.pop_back();
  checkpoint.manifest.notes["scored_step"] = std::to_string(checkpoint.manifest.scores[0].first);
  checkpoint.manifest.score = std::nan("");
  CheckpointFolder(folder_ / "parts").save(checkpoint);
  trained("parts", "--resume --no-test --show 0");
  expect_same(last("parts"), whole);
}

TEST_P(TrainStopsOn, SignalsSaveAndExitAndResumingEndsWithTheSameBytes) {
  const auto words_of_run = [&](const char* out, const char* minutes) {
    std::vector<std::string> words = arguments(out, "--epochs=6");
    words[8] = minutes;
    return words;
  };
  ended(start(words_of_run("whole", "--save-minutes=5")));
  const auto whole = last("whole");
  std::mt19937 random(1);
  int stopped = 0;
  double slowest = 0;
  for (int round = 0; round < 6; ++round) {
    const int signal = round % 3 == 0 ? SIGINT : round % 3 == 1 ? SIGTERM : SIGHUP;
    const pid_t child = start(words_of_run("parts", round < 3 ? "--save-minutes=0" : "--save-minutes=5"));
    // Signals are caught from the first line of output on.
    for (int i = 0; i < 30'000 && !has(slurp(folder_ / ".out"), "checkpoints in"); ++i) wait_ms(1);
    if (round > 0) wait_ms(std::uniform_real_distribution<>(0, 30)(random));
    const auto begin = std::chrono::steady_clock::now();
    kill(child, signal);
    const Ran ran = ended(child);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (ran.code == 0) continue;  // it was done already
    slowest = std::max(slowest, seconds);
    ++stopped;
    EXPECT_EQ(ran.code, 128 + signal) << ran.out << ran.err;
    EXPECT_TRUE(has(ran.out, "this goes on: paoding train g2p --out parts --resume --save-minutes")) << ran.out;
    EXPECT_TRUE(has(ran.err, "interrupted")) << ran.err;
    EXPECT_FALSE(checkpoints("parts").empty());
    EXPECT_TRUE(fs::exists(folder_ / "parts/curve.svg"));
  }
  EXPECT_GE(stopped, 1);
  EXPECT_LT(slowest, 3);  // a second where the machine is quiet
  std::printf("%d stopped by a signal, within %.2f s\n", stopped, slowest);
  EXPECT_EQ(ended(start(words_of_run("parts", "--save-minutes=5"))).code, 0);
  expect_same(last("parts"), whole);
}

TEST_F(TrainStops, ASignalEndsItAlsoWhenNobodyReadsWhatItPrints) {
  for (const int signal : {SIGINT, SIGTERM}) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    ASSERT_GT(fcntl(ends[1], F_SETPIPE_SZ, 8192), 0);
    const std::string out = "unread" + std::to_string(signal);
    std::vector<std::string> words = arguments(out, "--epochs=100000");
    words.push_back("--json");
    const pid_t child = start(words, ends[1]);
    std::string before = "none";  // until the pipe is full, and no checkpoint follows the last
    for (int i = 0; i < 60; ++i) {
      const std::vector<std::string> now = checkpoints(out);
      if (!now.empty() && now.back() == before) break;
      if (!now.empty()) before = now.back();
      wait_ms(500);
    }
    kill(child, signal);
    int status = 0;
    for (int i = 0; i < 12'000 && waitpid(child, &status, WNOHANG) == 0; ++i) wait_ms(10);
    kill(child, SIGKILL);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 128 + signal) << status;
    EXPECT_TRUE(fs::exists(folder_ / out / "curve.svg")) << "it did not stop by itself";
    ASSERT_FALSE(checkpoints(out).empty());
    EXPECT_NO_THROW(load_checkpoint(folder_ / out / checkpoints(out).back()));
    close(ends[0]);
    close(ends[1]);
  }
}

// PAODING_KILLS=200 for more of them.
TEST_P(TrainStopsOn, KilledAtAnyMomentAndResumedEndsWithTheSameBytes) {
  const char* wanted = std::getenv("PAODING_KILLS");  // NOLINT(concurrency-mt-unsafe)
  const int kills = wanted != nullptr ? std::atoi(wanted) : 10;
  const auto whole = undisturbed();
  const std::string curve = slurp(folder_ / "whole/curve.svg");
  const auto begin = std::chrono::steady_clock::now();
  ended(start(arguments("timed")));
  double most_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  std::mt19937 random(7);
  int killed = 0, runs = 0, with_progress = 0, starts = 0;
  while (killed < kills || with_progress == 0) {
    const std::vector<std::string> before = checkpoints("parts");
    const pid_t child = start(arguments("parts"));
    ++starts;
    // From before it reads anything to the last steps; each run starts from where the last one came.
    wait_ms(std::uniform_real_distribution<>(0, most_ms)(random));
    kill(child, SIGKILL);
    const Ran ran = ended(child);
    if (ran.code < 0) ++killed;
    ASSERT_TRUE(ran.code < 0 || ran.code == 0) << ran.err;
    // Everything that has a checkpoint's name is whole.
    const std::vector<std::string> now = checkpoints("parts");
    for (const std::string& name : now) ASSERT_NO_THROW(load_checkpoint(folder_ / "parts" / name)) << name;
    with_progress += now != before;
    if (with_progress == 0) most_ms *= 1.1;  // other work on the machine may make starts longer than the whole run was
    ASSERT_TRUE(before.empty() || (!now.empty() && now.back() >= before.back()));
    if (ran.code == 0) {  // it came to its end: once more from the beginning
      ++runs;
      expect_same(last("parts"), whole);
      EXPECT_EQ(slurp(folder_ / "parts/curve.svg"), curve);
      fs::remove_all(folder_ / "parts");
    }
    ASSERT_LT(starts, 10 * kills + 100);
  }
  const Ran ran = ended(start(arguments("parts")));
  EXPECT_EQ(ran.code, 0) << ran.err;
  expect_same(last("parts"), whole);
  EXPECT_EQ(slurp(folder_ / "parts/curve.svg"), curve);
  EXPECT_GE(with_progress, 1);
  RecordProperty("killed", killed);
  if (wanted != nullptr) {
    std::printf("%d killed of %d starts, %d of them after a new checkpoint; %d runs ended with the same bytes\n",
                killed, starts, with_progress, runs + 1);
  }
}

TEST_F(TrainStops, AFullDiskKeepsTheLastCheckpoint) {
  if (kThreadSanitizer)
    GTEST_SKIP() << "NOT CHECKED: ThreadSanitizer writes a file larger than the limit when it starts";
  trained("a", "--no-test --show 0 --steps 4");
  const auto before = last("a");
  // Files may have 20 KiB: the parameters do not fit.
  Ran ran = shell("ulimit -f 20; paoding train g2p --out a --resume --steps 0 --no-test --show 0");
  EXPECT_EQ(ran.code, 1) << ran.out;
  EXPECT_TRUE(has(ran.err, "parameters.safetensors: cannot write: ")) << ran.err;
  EXPECT_EQ(checkpoints("a"), std::vector<std::string>{"step-00000004"});
  EXPECT_EQ(last("a"), before);
  EXPECT_EQ(load_checkpoint(folder_ / "a").manifest.step, 4);
  ran = shell("paoding train g2p --out a --resume --steps 0 --no-test --show 0");
  EXPECT_EQ(ran.code, 0) << ran.err;
  for (const auto& entry : fs::directory_iterator(folder_ / "a")) {
    const std::string name = entry.path().filename();
    EXPECT_TRUE(name == ".lock" || name == "curve.svg" || name.starts_with("step-")) << name << " was left over";
  }
}

TEST_F(TrainStops, OneTrainingAtATimeHasAFolder) {
  trained("a", "--no-test --show 0 --steps 4");
  const CheckpointFolder held(folder_ / "a");
  const Ran ran = shell("paoding train g2p --out a --resume");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "trains into this folder")) << ran.err;
}

// ---- non-finite values ----

TEST_F(TrainStops, WhatIsNotFiniteStopsTrainingAndIsNamed) {
  trained("a", "--no-test --show 0 --steps 4");
  Checkpoint poisoned = load_checkpoint(folder_ / "a", true);
  const auto stops = [&](const char* out, float value, const std::vector<const char*>& parts) {
    Tensor& weight = poisoned.tensors.at("memory/weight");
    std::fill_n(weight.data<float>(), weight.shape().elements(), value);
    CheckpointFolder(folder_ / out).save(poisoned);
    const auto before = last(out);
    const Ran ran = shell(std::string("paoding train g2p --resume --steps 0 --save-minutes 0 --out ") + out);
    EXPECT_EQ(ran.code, 1) << ran.out;
    for (const char* part : parts) EXPECT_TRUE(has(ran.err, part)) << part << "\n" << ran.err;
    // No step was made, so nothing was saved.
    EXPECT_EQ(checkpoints(out), std::vector<std::string>{"step-00000004"});
    EXPECT_EQ(last(out), before);
  };
  stops("nan", std::nanf(""), {"training stopped at step 5", "no parameter was changed", "memory/weight"});
  stops("large", 3e38f,
        {"training stopped at step 5", "the first non-finite value: sum in decoder/attention, time step "});
}

TEST_F(TrainStops, WhatWasTrainedBeforeAStepThatIsNotFiniteIsSaved) {
  // Only the word with a z meets the poisoned row, some steps after the checkpoint.
  folder_.write("data/g2p/cmudict-en-us.dict", dictionary(150) + "zoda Z O D A\n");
  trained("a", "--no-test --show 0 --steps 4");
  Checkpoint poisoned = load_checkpoint(folder_ / "a", true);
  const std::string& letters = poisoned.files.at("letters.txt");
  const auto row =
      std::count(letters.begin(), letters.begin() + static_cast<std::ptrdiff_t>(letters.find("z\n")), '\n');
  Tensor& table = poisoned.tensors.at("source/weight");
  const std::int64_t width = table.shape()[1];
  std::fill_n(table.data<float>() + row * width, width, std::nanf(""));
  for (const char* out : {"each", "rarely"}) CheckpointFolder(folder_ / out).save(poisoned);

  for (const std::string run : {"each --save-minutes 0", "rarely --save-minutes 1000"}) {
    const Ran ran = shell("paoding train g2p --resume --steps 0 --out " + run);
    EXPECT_EQ(ran.code, 1) << ran.out;
    EXPECT_TRUE(has(ran.err, "what was trained before is in " + run.substr(0, run.find(' ')) + "/step-")) << ran.err;
  }
  // One saved before the step was tried, the other after: nothing of the step is left.
  EXPECT_GT(load_manifest(folder_ / "rarely", true).step, 4);
  EXPECT_EQ(load_manifest(folder_ / "rarely", true).step, load_manifest(folder_ / "each", true).step);
  EXPECT_EQ(last("rarely").at("parameters.safetensors"), last("each").at("parameters.safetensors"));
}

TEST_F(TrainStops, ALearningRateFarTooLargeEndsInAMessageNotInRuin) {
  const Ran ran = shell(
      "paoding train g2p --hidden 16 --layers 1 --batch-size 8 --epochs 4 --clip-norm 0 --learning-rate "
      "100 --last-learning-rate 100 --out a --no-test --show 0 --save-minutes 0");
  // Adam's steps are as long as the rate whatever the gradients are: the loss may stay finite.
  EXPECT_TRUE(ran.code == 0 || (ran.code == 1 && has(ran.err, "training stopped at step "))) << ran.err;
  for (const auto& [name, tensor] : load_checkpoint(folder_ / "a", true).tensors) {
    for (const double value : tensor.to_doubles()) ASSERT_TRUE(std::isfinite(value)) << name;
  }
}

// ---- resuming elsewhere ----

TEST_F(TrainStops, OtherDataAndThreadsAreTold) {
  trained("a", "--no-test --show 0 --steps 4");
  folder_.write("data/g2p/cmudict-en-us.dict", dictionary(140));
  const Ran ran = shell("paoding train g2p --out a --resume --other-data --steps 0 --threads 1 --no-test --show 0");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, "note: examples were ")) << ran.out;
  EXPECT_TRUE(has(ran.out, "note: threads were 2, and are 1 now")) << ran.out;
}

}  // namespace
}  // namespace paoding
