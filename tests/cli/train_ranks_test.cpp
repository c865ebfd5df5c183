// SPDX-License-Identifier: Apache-2.0
// `paoding train --ranks` as processes that reach each other by Gloo: the losses are those of one rank, ranks that are
// killed end the others with their name, and training goes on with any number of ranks.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include "paoding/checkpoint.h"
#include "paoding/distributed.h"
#include "tests/cli/training_run.h"

namespace paoding {
namespace {

class TrainRanks : public TrainingRun {
 protected:
  static constexpr const char* kCommon = " --no-test --show 0 --dropout 0";

  void SetUp() override {
    TrainingRun::SetUp();
    missing_ = missing_for_ranks(DeviceKind::cpu);
    if (missing_.empty()) return;
    const Ran ran = shell(train("--out x --ranks 2"));
    EXPECT_EQ(ran.code, 1);
    EXPECT_TRUE(has(ran.err, missing_)) << ran.err;
  }
  // Without Gloo nothing but that is tested.
  bool is_missing() const { return !missing_.empty(); }

  Manifest manifest(const std::string& out) const { return load_manifest(folder_ / out, true); }

  // A loss a step, which all who train the same way have; and the same scores.
  void expect_same_losses(const std::string& out, const std::string& expected) const {
    const Manifest got = manifest(out), whole = manifest(expected);
    ASSERT_EQ(got.losses.size(), whole.losses.size());
    EXPECT_GT(got.losses.size(), 30u);
    for (std::size_t i = 0; i < whole.losses.size(); ++i) {
      EXPECT_EQ(got.losses[i].first, whole.losses[i].first);
      EXPECT_NEAR(got.losses[i].second, whole.losses[i].second, 1e-5 * whole.losses[i].second) << i;
    }
    EXPECT_EQ(got.scores.size(), whole.scores.size());
  }

  std::vector<std::string> arguments(const std::string& out, int ranks, const char* epochs = "--epochs=2") const {
    std::vector<std::string> all{"train",     "g2p",      "--hidden=16", "--layers=1",       "--batch-size=8", epochs,
                                 "--no-test", "--show=0", "--dropout=0", "--save-minutes=0", "--out",          out};
    if (ranks > 1) all.insert(all.end(), {"--ranks", std::to_string(ranks)});
    if (!checkpoints(out).empty()) all.push_back("--resume");
    return all;
  }

  // Processes below `launcher`, in the order of their ranks.
  static std::vector<pid_t> ranks_of(pid_t launcher) {
    const std::string text = slurp(fmt_path(launcher));
    std::vector<pid_t> found;
    for (std::size_t at = 0; at < text.size();) {
      found.push_back(std::atoi(text.c_str() + at));
      at = std::min(text.find(' ', at), text.size() - 1) + 1;
    }
    return found;
  }
  static std::string fmt_path(pid_t process) {
    const std::string number = std::to_string(process);
    return "/proc/" + number + "/task/" + number + "/children";
  }
  std::vector<pid_t> wait_for_ranks(pid_t launcher, std::size_t count) const {
    std::vector<pid_t> found;
    for (int i = 0; i < 500 && found.size() < count; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      found = ranks_of(launcher);
    }
    EXPECT_EQ(found.size(), count);
    return found;
  }

  std::string missing_;
};

TEST_F(TrainRanks, HaveTheLossesOfOne) {
  if (is_missing()) return;
  trained("one", kCommon);
  for (const int ranks : {2, 3, 4}) {
    const std::string out = "ranks" + std::to_string(ranks);
    const Ran ran = trained(out, kCommon + std::string(" --ranks ") + std::to_string(ranks));
    expect_same_losses(out, "one");
    EXPECT_TRUE(has(ran.out, std::to_string(ranks) + " ranks, each on gloo")) << ran.out;
    EXPECT_EQ(checkpoints(out), checkpoints("one")) << "each is written once";
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string log = slurp(folder_ / (out + "/ranks/rank" + std::to_string(rank) + ".log"));
      EXPECT_TRUE(has(log, "to train on")) << rank << ": " << log;
    }
  }
}

// Dropout that is drawn anew on each rank: the loss goes down as that of one rank does.
TEST_F(TrainRanks, DropOtherElements) {
  if (is_missing()) return;
  trained("one", "--no-test --show 0 --dropout 0.3");
  trained("two", "--no-test --show 0 --dropout 0.3 --ranks 2");
  EXPECT_NEAR(manifest("two").losses.back().second, manifest("one").losses.back().second,
              0.1 * manifest("one").losses.back().second);
}

TEST_F(TrainRanks, ThatAreKilledEndTheOthersWithinSecondsAndTrainingGoesOnWithAnyNumber) {
  if (is_missing()) return;
  const auto start_of_one = std::chrono::steady_clock::now();
  EXPECT_EQ(ended(start(arguments("one", 1))).code, 0);
  const std::chrono::duration<double, std::milli> whole = std::chrono::steady_clock::now() - start_of_one;
  const auto most_ms = static_cast<unsigned>(whole.count()) + 1;
  std::mt19937 random(11);
  int kills = 0;
  for (int turn = 0; turn < 12 && (checkpoints("k").empty() || manifest("k").epoch < 2); ++turn) {
    const int ranks = 2 + static_cast<int>(random() % 3);
    const pid_t launcher = start(arguments("k", ranks));
    const std::vector<pid_t> all = wait_for_ranks(launcher, static_cast<std::size_t>(ranks));
    ASSERT_EQ(all.size(), static_cast<std::size_t>(ranks));
    // The first is killed at once, so that one is, however fast the machine.
    if (turn > 0) std::this_thread::sleep_for(std::chrono::milliseconds(random() % most_ms));
    const std::size_t victim = random() % all.size();
    const auto begin = std::chrono::steady_clock::now();
    const bool was_there = kill(all[victim], SIGKILL) == 0;
    const Ran ran = ended(launcher);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    EXPECT_LT(seconds, 5);
    for (const pid_t rank : all) EXPECT_NE(kill(rank, 0), 0) << "a rank is left";
    if (!was_there || ran.code == 0) continue;  // it had ended
    ++kills;
    EXPECT_EQ(ran.code, 1) << ran.err;
    EXPECT_TRUE(
        has(ran.err, "rank " + std::to_string(victim) + " of " + std::to_string(ranks) + " was killed by signal 9"))
        << ran.err;
  }
  EXPECT_GE(kills, 1);
  if (checkpoints("k").empty() || manifest("k").epoch < 2) ended(start(arguments("k", 2)));
  expect_same_losses("k", "one");
}

TEST_F(TrainRanks, AreInterruptedTogetherAndSaveOnce) {
  if (is_missing()) return;
  constexpr int kEpochs = 40;
  const std::string epochs = "--epochs=" + std::to_string(kEpochs);
  const auto words = [&](const std::string& out, int ranks) {
    std::vector<std::string> all = arguments(out, ranks, epochs.c_str());
    std::ranges::replace(all, "--save-minutes=0", "--save-minutes=100");
    return all;
  };
  const auto start_of_one = std::chrono::steady_clock::now();
  EXPECT_EQ(ended(start(words("one", 1))).code, 0);
  const std::chrono::duration<double, std::milli> whole = std::chrono::steady_clock::now() - start_of_one;
  std::mt19937 random(3);
  int stops = 0;
  for (int turn = 0; turn < 12 && (checkpoints("s").empty() || manifest("s").epoch < kEpochs); ++turn) {
    const pid_t launcher = start(words("s", 2 + turn % 2));
    wait_for_ranks(launcher, static_cast<std::size_t>(2 + turn % 2));
    for (int i = 0; i < 5000 && !has(slurp(folder_ / ".out"), "parameters"); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    // The first is stopped before it can end, the others at a random moment.
    if (turn > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % (static_cast<unsigned>(whole.count()) + 1)));
    }
    kill(launcher, turn % 2 == 0 ? SIGINT : SIGTERM);
    const Ran ran = ended(launcher);
    if (ran.code == 0) continue;
    ++stops;
    EXPECT_EQ(ran.code, 128 + (turn % 2 == 0 ? SIGINT : SIGTERM)) << ran.err;
    EXPECT_TRUE(has(ran.out, "stopped after step")) << ran.out;
    EXPECT_TRUE(has(ran.out, "--resume")) << ran.out;
  }
  EXPECT_GE(stops, 1);
  if (checkpoints("s").empty() || manifest("s").epoch < kEpochs) ended(start(words("s", 3)));
  expect_same_losses("s", "one");
}

// Processes that are started by hand, with the variables of torchrun, and a store on a port of this machine.
TEST_F(TrainRanks, AreThoseThatAnotherLauncherStarts) {
  if (is_missing()) return;
  trained("one", kCommon);
  const std::string command =
      "paoding train g2p --hidden=16 --layers=1 --batch-size=8 --epochs=2 --out two" + std::string(kCommon);
  const std::string port = std::to_string(21000 + getpid() % 20000);
  for (const std::string& where :
       {"MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port, "PAODING_STORE=tcp:localhost:" + port}) {
    fs::remove_all(folder_ / "two");
    const Ran ran = shell("export WORLD_SIZE=2 " + where + "; RANK=1 LOCAL_RANK=1 " + command +
                          " >second 2>&1 & RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 " + where + " " + command +
                          "; code=$?; wait; exit $code");
    EXPECT_EQ(ran.code, 0) << ran.err << slurp(folder_ / "second");
    expect_same_losses("two", "one");
  }
}

TEST_F(TrainRanks, SayWhatDiffersBetweenThem) {
  if (is_missing()) return;
  const std::string port = std::to_string(21000 + (getpid() + 7) % 20000);
  const std::string two = "export WORLD_SIZE=2 PAODING_STORE=tcp:localhost:" + port + "; ";
  const std::string command = "paoding train g2p --hidden=16 --layers=1 --epochs=2 --out x --seed ";
  const Ran ran = shell(two + "RANK=1 " + command + "8 >second 2>&1 & RANK=0 " + two + "RANK=0 " + command +
                        "9; code=$?; wait; exit $code");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "ranks: option seed differs: '9' on rank 0, '8' on rank 1")) << ran.err;
}

TEST_F(TrainRanks, RefuseOptionsThatContradict) {
  const auto refused = [&](const std::string& environment, const std::string& more) {
    const Ran ran = shell("export " + environment + "; " + train(more));
    EXPECT_NE(ran.code, 0);
    return ran.err;
  };
  const std::string two = "RANK=0 WORLD_SIZE=2";
  EXPECT_TRUE(
      has(refused(two + " PAODING_STORE=tcp:localhost:1", ""), "--out is needed: all ranks train into one folder"));
  EXPECT_TRUE(has(refused(two, "--out x"), "nothing says where rank 0 is"));
  EXPECT_TRUE(has(refused(two + " PAODING_STORE=udp:x", "--out x --ranks 3"),
                  "says that there are 2 ranks, --ranks or --gpus 3"));
  EXPECT_TRUE(has(refused("RANK=2 WORLD_SIZE=2", "--out x"), "RANK is '2', needs to be a whole number from 0 to 1"));
  EXPECT_TRUE(has(refused("RANK=x WORLD_SIZE=2", "--out x"), "RANK is 'x'"));
  EXPECT_TRUE(has(refused(two + " OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 PAODING_STORE=tcp:a:1", "--out x"),
                  "contradict each other"));
  EXPECT_TRUE(has(refused("A=1", "--ranks 2 --gpus 3 --out x"), "--ranks and --gpus are both given, and differ"));
  EXPECT_TRUE(has(refused("A=1", "--ranks 0 --out x"), "--ranks"));
  if (is_missing()) return;
  EXPECT_TRUE(has(refused(two + " PAODING_STORE=udp:x", "--out x"), "needs to be file:/folder or tcp:host:port"));
  EXPECT_TRUE(
      has(refused(two + " PAODING_STORE=tcp:localhost:99999", "--out x"), "needs to be file:/folder or tcp:host:port"));
}

}  // namespace
}  // namespace paoding
