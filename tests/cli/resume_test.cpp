// SPDX-License-Identifier: Apache-2.0
// Resumed training: options that a checkpoint fixes, its messages, and folders that come from elsewhere.
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmath>

#include "paoding/checkpoint.h"
#include "tests/cli/training_run.h"

namespace paoding {
namespace {

class Resume : public TrainingRun {
 protected:
  static constexpr const char* kQuiet = " --no-test --show 0";
  // The values of `key` in JSON lines that have it.
  static std::vector<std::string> values_of(const std::string& lines, const std::string& key) {
    std::vector<std::string> values;
    for (const std::string& line : lines_of(lines)) {
      const std::size_t at = line.find("\"" + key + "\":");
      if (at == std::string::npos) continue;
      const std::size_t begin = at + key.size() + 3;
      values.push_back(line.substr(begin, line.find_first_of(",}", begin) - begin));
    }
    return values;
  }
};

TEST_F(Resume, SaysTheSameLossAsTrainingThatNeverStopped) {
  const std::string more = " --dropout 0.2 --save-minutes 0 --json" + std::string(kQuiet);
  const Ran whole = trained("whole", more);
  trained("parts", more);
  fs::remove_all(folder_ / ("parts/" + checkpoints("parts").back()));  // as if killed before it was saved
  const Ran rest = shell("paoding train g2p --out parts --resume" + std::string(" --save-minutes 0 --json") + kQuiet);
  EXPECT_EQ(rest.code, 0) << rest.err;
  ASSERT_FALSE(values_of(rest.out, "mean_loss").empty()) << rest.out;
  EXPECT_EQ(values_of(rest.out, "mean_loss").back(), values_of(whole.out, "mean_loss").back());
  EXPECT_EQ(values_of(rest.out, "loss").back(), values_of(whole.out, "loss").back());
}

TEST_F(Resume, SaysWhenNothingIsLeftToTrain) {
  trained("a");
  const Ran first = shell("paoding train g2p --out a --resume --show 0");
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_TRUE(has(first.out, "was the last: --epochs or --steps make this training longer")) << first.out;
  EXPECT_TRUE(has(first.out, "nothing was left to train; loss curve a/curve.svg")) << first.out;
  EXPECT_FALSE(has(first.out, "loss 0.0000")) << first.out;
  EXPECT_FALSE(has(first.out, " 0 words/s")) << first.out;
  // The loss is the one that was said when it was trained.
  trained("b", "--show 0");
  const auto loss_of = [](const std::string& out) {
    const std::size_t at = out.rfind(": loss ");
    return at == std::string::npos ? "none" : out.substr(at, 13);
  };
  EXPECT_EQ(loss_of(first.out), loss_of(shell("paoding train g2p --out b --resume --show 0").out));
  EXPECT_TRUE(has(loss_of(first.out), "loss ")) << first.out;
  const Ran none = shell("paoding train g2p --hidden 16 --layers 1 --epochs 0 --out c --show 0");
  EXPECT_FALSE(has(none.out, "loss 0.0000")) << none.out;
}

TEST_F(Resume, RefusesAMeanLossThatIsNoNumber) {
  trained("a", kQuiet);
  const Checkpoint good = load_checkpoint(folder_ / "a", true);
  for (const char* name : {"mean_loss_sum", "mean_loss_weight", "loss_sum"}) {
    for (const char* value : {"nan", "inf"}) {
      Checkpoint forged = good;
      forged.manifest.notes[name] = value;
      fs::remove_all(folder_ / "b");
      CheckpointFolder(folder_ / "b").save(forged);
      const Ran ran = shell("paoding train g2p --out b --resume --epochs 3 --show 0");
      EXPECT_EQ(ran.code, 1) << ran.out;
      EXPECT_TRUE(has(ran.err, std::string("b: its manifest: ") + name + " is " + value + ", must be a finite number"))
          << ran.err;
    }
  }
}

TEST_F(Resume, NamesTheOptionThatACheckpointFixes) {
  trained("a", kQuiet);
  folder_.write("wide.txt", "# wider\nhidden = 32\n");
  for (const auto& [more, message] :
       {std::pair("--hidden 64", "hidden was 16 when this training began, and cannot be 64"),
        std::pair("--layers 2", "layers was 1 when this training began"),
        std::pair("--config wide.txt", "hidden was 16 when")}) {
    const Ran ran = shell("paoding train g2p --out a --resume --epochs 3 " + std::string(more));
    EXPECT_EQ(ran.code, 1) << ran.out;
    EXPECT_TRUE(has(ran.err, message)) << ran.err;
    EXPECT_LT(ran.err.size(), 300u) << ran.err;
  }
  // Other options may change, and the user is told. Dropout comes and goes.
  Ran ran = shell("paoding train g2p --out a --resume --epochs 3 --hidden 16 --dropout 0 --weight-decay 0.1" +
                  std::string(kQuiet));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, "note: dropout was 0.1, and is 0 now")) << ran.out;
  EXPECT_FALSE(has(ran.out, "note: hidden")) << ran.out;
  ran = shell("paoding train g2p --out a --resume --epochs 4 --dropout 0.3 --batch-size 5" + std::string(kQuiet));
  EXPECT_EQ(ran.code, 0) << ran.err;
}

TEST_F(Resume, ComparesShapesBeforeItTakesMemory) {
  trained("a", kQuiet);
  Checkpoint boast = load_checkpoint(folder_ / "a", true);
  boast.manifest.options["hidden"] = "16384";
  CheckpointFolder(folder_ / "b").save(boast);
  for (const char* command : {"train g2p --out b --resume", "predict g2p b", "evaluate g2p b"}) {
    // Its parameters would take 20 GB.
    const Ran ran = shell("ulimit -t 20; echo bada | /usr/bin/env bash -c '" + program_.string() + " " + command +
                          " & p=$!; wait $p; c=$?; exit $c'");
    EXPECT_EQ(ran.code, 1) << command << ran.out;
    EXPECT_TRUE(has(ran.err, "the checkpoint is not one of this model")) << ran.err;
  }
  rusage used = {};
  getrusage(RUSAGE_CHILDREN, &used);
  EXPECT_LT(used.ru_maxrss, 2'000'000) << "KB";
}

TEST_F(Resume, CountsThatNoTrainingReachesAreRefused) {
  trained("a", kQuiet);
  const Checkpoint good = load_checkpoint(folder_ / "a", true);
  const auto refused = [&](const Checkpoint& bad) {
    fs::remove_all(folder_ / "b");
    CheckpointFolder(folder_ / "b").save(bad);
    const Ran ran = shell("paoding train g2p --out b --resume");
    EXPECT_EQ(ran.code, 1) << ran.out;
    EXPECT_TRUE(has(ran.err, "b: its manifest: ")) << ran.err;
  };
  Checkpoint bad = good;
  bad.manifest.epoch = std::int64_t{1} << 62;
  refused(bad);
  bad = good;
  bad.manifest.batch = std::int64_t{1} << 62;
  refused(bad);
  bad = good;
  bad.manifest.notes["loss_count"] = "9223372036854775807";
  refused(bad);
}

// ---- data that has changed ----

TEST_F(Resume, RefusesDataThatHasChangedUnlessTold) {
  trained("a", kQuiet);
  const std::string whole = slurp(folder_ / "data/g2p/cmudict-en-us.dict");
  // A word of the same letters, as long and said as before: no count sees it.
  std::string changed = whole;
  const std::size_t at = changed.find('\n', 200) + 1;
  std::swap(changed[at], changed[at + 1]);
  ASSERT_NE(changed, whole);
  folder_.write("data/g2p/cmudict-en-us.dict", changed);
  const std::string command = "paoding train g2p --out a --resume --epochs 3" + std::string(kQuiet);
  Ran ran = shell(command);
  EXPECT_EQ(ran.code, 1) << ran.out;
  EXPECT_TRUE(has(ran.err, "data: what is there for g2p is not what this run was trained on: its content is "))
      << ran.err;
  EXPECT_TRUE(has(ran.err, "hint: put the data of before back")) << ran.err;
  EXPECT_TRUE(has(ran.err, "--other-data goes on")) << ran.err;
  // Nothing was touched: with the data of before it goes on.
  folder_.write("data/g2p/cmudict-en-us.dict", whole);
  ran = shell(command);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_FALSE(has(ran.out, "is not what this run was trained on")) << ran.out;

  folder_.write("data/g2p/cmudict-en-us.dict", changed);
  ran = shell("paoding train g2p --out a --resume --epochs 4 --other-data" + std::string(kQuiet));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, "note: data: what is there for g2p is not what this run was trained on")) << ran.out;
  ran = shell("paoding train g2p --out a --resume --epochs 5" + std::string(kQuiet));
  EXPECT_EQ(ran.code, 0) << ran.err << "it is the run's data now";
  ran = shell("paoding train g2p --out b --other-data" + std::string(kQuiet));
  EXPECT_EQ(ran.code, 2) << ran.out;
  EXPECT_TRUE(has(ran.err, "--other-data goes with --resume")) << ran.err;
}

TEST_F(Resume, SaysWhereACheckpointDoesNotKnowItsData) {
  trained("a", kQuiet);
  Checkpoint old = load_checkpoint(folder_ / "a", true);
  ASSERT_EQ(old.manifest.notes.at("data").size(), 32u);
  old.manifest.notes.erase("data");
  CheckpointFolder(folder_ / "b").save(old);
  Ran ran = shell("paoding train g2p --out b --resume --epochs 3" + std::string(kQuiet));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, "note: the checkpoint does not say what data it was trained on")) << ran.out;
  ran = shell("paoding train g2p --out b --resume --epochs 4" + std::string(kQuiet));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_FALSE(has(ran.out, "does not say what data")) << "it does now: " << ran.out;
}

// ---- non-finite weights ----

TEST_F(Resume, AModelThatIsNotFinitePredictsNothing) {
  trained("a", kQuiet);
  struct Fill {
    const char* name;
    std::int64_t count;
    float value;
  };
  const auto refused = [&](const std::vector<Fill>& fills, const char* message) {
    Checkpoint bad = load_checkpoint(folder_ / "a", true);
    for (const Fill& fill : fills) {
      Tensor& tensor = bad.tensors.at(fill.name);
      std::fill_n(tensor.data<float>(), std::min(fill.count, tensor.shape().elements()), fill.value);
    }
    fs::remove_all(folder_ / "b");
    CheckpointFolder(folder_ / "b").save(bad);
    for (const char* command : {"predict g2p b", "predict g2p b --beam 3 --json", "evaluate g2p b"}) {
      const Ran ran = shell(std::string("echo bada | paoding ") + command);
      EXPECT_EQ(ran.code, 1) << command << ran.out;
      EXPECT_TRUE(ran.out.empty()) << ran.out;
      EXPECT_TRUE(has(ran.err, message)) << ran.err;
    }
    const Ran ran = shell("paoding train g2p --out b --resume --show 0");
    EXPECT_EQ(ran.code, 1) << ran.out;
  };
  constexpr std::int64_t kAll = 1 << 20;
  refused({{"memory/weight", kAll, std::nanf("")}}, "'memory/weight' has 256 NaN and 0 infinite of 256 elements");
  refused({{"output/weight", 1, std::nanf("")}}, "'output/weight' has 1 NaN");
  refused({{"source/weight", 1, INFINITY}}, "1 infinite");
  // Finite weights, and a sum that is not: 16 times 3e38, or -3e38.
  refused({{"attention/weight", kAll, 1e6f}, {"output/weight", kAll, 3e38f}},
          "non-finite: the model's parameters are damaged, or far too large");
}

// ---- a folder from elsewhere ----

TEST_F(Resume, ChangesNothingOutsideOfTheFolder) {
  trained("a", kQuiet);
  folder_.write("victim", "precious");
  const std::string command = "paoding train g2p --out a --resume --epochs 3" + std::string(kQuiet);
  fs::remove(folder_ / "a/.lock");
  fs::create_symlink(folder_ / "victim", folder_ / "a/.lock");
  Ran ran = shell(command);
  EXPECT_EQ(ran.code, 1) << ran.out;
  EXPECT_TRUE(has(ran.err, "a/.lock: is a link, must be a file that paoding made: delete it")) << ran.err;
  EXPECT_EQ(slurp(folder_ / "victim"), "precious");
  fs::remove(folder_ / "a/.lock");
  fs::remove(folder_ / "a/curve.svg");
  fs::create_symlink(folder_ / "victim", folder_ / "a/curve.svg");
  fs::create_directory_symlink(folder_ / "data", folder_ / "a/.new-step-00000001");
  ran = shell(command);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(slurp(folder_ / "victim"), "precious");
  EXPECT_TRUE(fs::exists(folder_ / "data/g2p/cmudict-en-us.dict"));
  EXPECT_TRUE(slurp(folder_ / "a/curve.svg").starts_with("<svg"));
  fs::remove(folder_ / "a/curve.svg");
  ASSERT_EQ(mkfifo((folder_ / "a/curve.svg").c_str(), 0600), 0);
  ran = shell(command);
  EXPECT_EQ(ran.code, 1) << "found before anything is trained";
  EXPECT_TRUE(has(ran.err, "a/curve.svg is there and is no file")) << ran.err;
  // Nor does a new training write where a link leads.
  fs::create_directory(folder_ / "b");
  fs::create_symlink(folder_ / "absent", folder_ / "b/curve.svg");
  ran = shell(train("--out b" + std::string(kQuiet)));
  EXPECT_EQ(ran.code, 1) << ran.out;
  EXPECT_TRUE(has(ran.err, "b/curve.svg is there already")) << ran.err;
}

}  // namespace
}  // namespace paoding
