// SPDX-License-Identifier: Apache-2.0
// One Ctrl-C, SIGTERM or hangup ends every command, whatever it is in the middle of, with the code that a shell
// expects; files that were written stay whole.
#include <chrono>
#include <csignal>
#include <thread>

#include "paoding/program.h"
#include "tests/cli/training_run.h"
#include "tests/support/thread_sanitizer.h"

namespace paoding {
namespace {

// The carry goes to zero, where it stays below every limit.
constexpr const char* kEndless = R"(paoding graph 1
x = input f32[4]
y = while(x) {carries=1} [
  carry0 = input f32[4]
  %1 = sum(carry0) : f32[]
  %2 = full() {value=1e30} : f32[]
  %3 = less(%1, %2) : bool[]
  fetch out0 = %3
] [
  carry0 = input f32[4]
  %1 = full() {value=0.5} : f32[]
  %2 = mul(carry0, %1) : f32[4]
  fetch out0 = %2
] : f32[4]
fetch y
)";

std::string many_assigns(int count) {
  std::string text = "paoding graph 1\nx = input f32[]\n";
  for (int i = 0; i < count; ++i) {
    text += "p" + std::to_string(i) + " = parameter f32[]\n";
    text += "y" + std::to_string(i) + " = add(p" + std::to_string(i) + ", x)\n";
    text += "assign p" + std::to_string(i) + " = y" + std::to_string(i) + "\n";
  }
  return text + "fetch x\n";
}

class Interruption : public TrainingRun {
 protected:
  void SetUp() override {
    TrainingRun::SetUp();
    folder_.write("endless.txt", kEndless);
    folder_.write("assigns.txt", many_assigns(40'000));
    ASSERT_EQ(mkfifo((folder_ / "fifo").c_str(), 0600), 0);
    open_fifo_ = open((folder_ / "fifo").c_str(), O_RDWR | O_CLOEXEC);  // a writer that says nothing
    ASSERT_EQ(mkfifo((folder_ / "nobody").c_str(), 0600), 0);           // nobody opens it to write
  }
  void TearDown() override { close(open_fifo_); }

  // Whether it has come so far that it handles the signal.
  static bool catches(pid_t child, int signal) {
    std::ifstream status("/proc/" + std::to_string(child) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("State:\tZ")) return true;  // it is over, and its code will say so
      if (!line.starts_with("SigCgt:")) continue;
      return (std::stoull(line.substr(line.find('\t') + 1), nullptr, 16) >> (signal - 1) & 1) != 0;
    }
    return true;
  }
  // Gives it time to come to its work, sends the signal, and waits for the end. -1: the signal itself ended it.
  int code_of_interrupted(const std::vector<std::string>& arguments, int signal, double after = 0.7) const {
    const pid_t child = start(arguments);
    while (!catches(child, signal)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::duration<double>(after));
    kill(child, signal);
    return ended(child).code;
  }

  // So many that a batch can be large.
  void write_long_words() const {
    std::string words;
    for (int i = 0; i < 20'000; ++i) {
      std::string word, said;
      for (int rest = i, syllable = 0; syllable < 6; ++syllable, rest /= 7) {
        const char letter = "bdklnst"[rest % 7];
        word += {letter, 'a'};
        said += {' ', static_cast<char>(letter - 'a' + 'A'), ' ', 'A'};
      }
      words += word + said + "\n";
    }
    folder_.write("data/g2p/cmudict-en-us.dict", words);
  }

  int open_fifo_ = -1;
};

TEST_F(Interruption, EndsEveryCommandOnTheFirstSignal) {
  trained("a", "--no-test --show 0 --steps 4");
  std::vector<std::vector<std::string>> commands = {
      {"run", "assigns.txt", "--random", "1"},
      {"dump", "assigns.txt", "--passes", "--plan"},
      {"run", "fifo"},
      {"dump", "fifo"},
      {"train", "g2p", "--config", "fifo"},
      {"predict", "g2p", "a", "fifo"},
      {"bench", "lstm_steps"},
  };
  if (!kThreadSanitizer) {  // it keeps a signal back until the next call of the C library, and here none comes
    commands.insert(commands.end(), {{"run", "endless.txt", "--random", "1"},
                                     {"run", "endless.txt", "--random", "1", "--stepwise"},
                                     {"run", "endless.txt", "--random", "1", "--fetch", "out.safetensors", "--json"},
                                     {"dump", "nobody"},
                                     {"predict", "g2p", "a", "nobody"}});
  }
  const int signals[] = {SIGINT, SIGTERM, SIGHUP};
  int next = 0;
  for (const std::vector<std::string>& command : commands) {
    const int signal = signals[next++ % 3];
    EXPECT_EQ(code_of_interrupted(command, signal), 128 + signal) << command[0] << " " << command[1];
    EXPECT_FALSE(fs::exists(folder_ / "out.safetensors"));
  }
  for (const auto& entry : fs::directory_iterator(folder_.path())) {
    EXPECT_FALSE(entry.path().filename().string().starts_with(".paoding-")) << entry.path() << " was left over";
  }
}

TEST_F(Interruption, CallsOffATrainingStepThatTakesSeconds) {
  write_long_words();
  const pid_t child = start({"train", "g2p", "--hidden=64", "--batch-size=16000", "--out", "a"});
  for (int i = 0; i < 6000 && !has(slurp(folder_ / ".out"), "checkpoints in"); ++i) usleep(10'000);
  usleep(1'500'000);
  kill(child, SIGINT);
  const Ran ran = ended(child);
  EXPECT_EQ(ran.code, 130) << ran.out << ran.err;
  EXPECT_TRUE(has(ran.out, "stopped after step 0 of ")) << ran.out;
  EXPECT_EQ(checkpoints("a"), std::vector<std::string>{"step-00000000"});
}

TEST_F(Interruption, EndsTrainingOnAGpuInTheMiddleOfALargeStep) {
  if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  if (std::getenv("PAODING_CUDA_PATH") != nullptr) GTEST_SKIP() << "NOT CHECKED: for a GPU that is pretended too large";
  write_long_words();
  const pid_t child = start({"train", "g2p", "--hidden=512", "--batch-size=16000", "--epochs=100000", "--validate=10",
                             "--device=cuda", "--out", "a"});
  for (int i = 0; i < 6000 && !has(slurp(folder_ / ".out"), "checkpoints in"); ++i) usleep(10'000);
  usleep(15'000'000);  // its kernels are compiled by then, and steps are under way
  const auto begin = std::chrono::steady_clock::now();
  kill(child, SIGINT);
  const Ran ran = ended(child);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_EQ(ran.code, 130) << ran.out << ran.err;
  EXPECT_LT(seconds, 3) << ran.out;  // a second where the machine is quiet
  EXPECT_TRUE(has(ran.out, "stopped after step ")) << ran.out;
  EXPECT_FALSE(has(ran.out, "stopped after step 0 of ")) << ran.out;
  EXPECT_FALSE(checkpoints("a").empty());
  const std::size_t at = ran.out.find("stopped after");
  std::printf("%s by one SIGINT within %.2f s\n", ran.out.substr(at, ran.out.find(" of ", at) - at).c_str(), seconds);
}

TEST_F(Interruption, WaitingForStdinEndsToo) {
  for (const char* command : {"run -", "dump -", "predict g2p a"}) {
    if (std::string(command).starts_with("predict")) trained("a", "--no-test --show 0 --steps 4");
    for (const auto& [signal, code] : {std::pair("INT", 130), std::pair("TERM", 143), std::pair("HUP", 129)}) {
      const Ran ran = shell("sleep 5 | timeout --preserve-status -s " + std::string(signal) + " 0.7 " +
                            program_.string() + " " + command);
      EXPECT_EQ(ran.code, code) << command << ran.err;
      EXPECT_TRUE(has(ran.err, "paoding: interrupted\n")) << ran.err;
    }
  }
}

TEST_F(Interruption, WhatWasWrittenEndsWithALine) {
  trained("a", "--no-test --show 0 --steps 4");
  std::string words;
  for (int i = 0; i < 20'000; ++i) words += "badakelo\n";
  folder_.write("words.txt", words);
  for (const double after : {0.3, 0.5, 0.8}) {
    const int code = code_of_interrupted({"predict", "g2p", "a", "words.txt", "--json"}, SIGTERM, after);
    EXPECT_TRUE(code == 143 || code == 0) << code;
    const std::string out = slurp(folder_ / ".out");
    EXPECT_TRUE(out.empty() || out.back() == '\n') << out.substr(out.size() - std::min<std::size_t>(80, out.size()));
  }
}

TEST_F(Interruption, ATerminalsEndIsNoConcernUnderNohup) {
  trained("a", "--no-test --show 0 --steps 4");
  const Ran ran = shell("trap '' HUP; (sleep 1; echo bada) | { " + program_.string() +
                        " predict g2p a & sleep 0.5; kill -HUP $!; wait $!; }");
  EXPECT_EQ(ran.code, 0) << ran.err;
}

}  // namespace
}  // namespace paoding
