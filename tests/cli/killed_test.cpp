// SPDX-License-Identifier: Apache-2.0
// paoding profile of programs that a signal ends: the report has every span that they had recorded until then.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <future>
#include <map>
#include <optional>
#include <thread>

#include "cli_run.h"
#include "paoding/profile.h"

namespace paoding::cli_run {
namespace {

// ---- the program: this one, once more ----

int asked(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

// Two threads: so many ranges each, numbered, and one that never ends. A child that leaves the ranges around it.
TEST(KilledProgram, DISABLED_RecordsAndEndsBySignal) {
  const int count = asked("KILLED_RANGES"), pauses = asked("KILLED_PAUSES");
  const auto record = [&](const char* name) {
    for (int i = 0; i < count; ++i) {
      ProfileRange range(name);
      range.set("number", std::int64_t{i}).set("parity", i % 2 == 0 ? "even" : "odd");
      if (pauses > 0 && i % (count / pauses + 1) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(150));
    }
  };
  std::promise<void> is_there, never;
  std::thread other([&] {
    record("of another");
    const ProfileRange open("another's open one");
    is_there.set_value();
    never.get_future().wait();
  });
  is_there.get_future().wait();
  const ProfileRange open("open");
  record("own");
  std::optional<ProfileRange> inner("inner");
  const pid_t child = fork();
  if (child == 0) {
    inner.reset();
    { const ProfileRange range("a child's"); }
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  kill(getpid(), asked("KILLED_SIGNAL"));
  pause();
}

// ---- its report ----

class Killed : public Cli {
 protected:
  // Runs it under `paoding profile`, which reports as JSON.
  Ran profile(int signal, int ranges, int pauses) {
    const std::string own = fs::read_symlink("/proc/self/exe").string();
    return run("profile --format json --path $D/killed.paoding " + own +
                   " --gtest_also_run_disabled_tests --gtest_filter=KilledProgram.*",
               "KILLED_SIGNAL=" + std::to_string(signal) + " KILLED_RANGES=" + std::to_string(ranges) +
                   " KILLED_PAUSES=" + std::to_string(pauses));
  }
  static std::map<std::string, std::int64_t> calls_of(simdjson::dom::element report) {
    std::map<std::string, std::int64_t> calls;
    for (const simdjson::dom::element thread : simdjson::dom::array(report["threads"])) {
      for (const simdjson::dom::element row : simdjson::dom::array(thread["rows"])) {
        calls[std::string(std::string_view(row["name"]))] += std::int64_t(row["calls"]);
      }
    }
    return calls;
  }
};

// 25,000: three chunks that are full and a part of one; some of it is on its way to the file when the signal comes.
TEST_F(Killed, LeavesAllThatWasRecordedHoweverShortItWas) {
  for (const int signal : {SIGSEGV, SIGABRT, SIGKILL, SIGTERM}) {
    for (const auto& [ranges, pauses] : {std::pair{3, 0}, {25'000, 0}, {25'000, 3}}) {
      const Ran ran = profile(signal, ranges, pauses);
      EXPECT_EQ(ran.code, 128 + signal) << ran.err;
      const std::size_t begin = ran.out.find("{\n\"report\"");
      ASSERT_NE(begin, std::string::npos) << ran.out << ran.err;
      simdjson::dom::parser parser;
      const simdjson::padded_string text(ran.out.substr(begin));
      const simdjson::dom::element report = parser.parse(text);
      auto calls = calls_of(report);
      const std::string where = std::to_string(signal) + " " + std::to_string(ranges) + " " + ran.out.substr(begin);
      EXPECT_EQ(calls["own"], ranges) << where;
      EXPECT_EQ(calls["of another"], ranges) << where;
      EXPECT_EQ(calls["open"], 1) << where;
      EXPECT_EQ(calls["inner"], 1) << where;
      EXPECT_EQ(calls["another's open one"], 1) << where;
      EXPECT_EQ(calls["a child's"], 0) << where;
      std::map<std::string, double> sums;
      for (const simdjson::dom::element one : simdjson::dom::array(report["range_arguments"])) {
        const std::string of{std::string_view(one["range"])}, name{std::string_view(one["name"])};
        sums[of + " " + name] = name == "number" ? double(one["total"]) : double(std::int64_t(one["values"]));
      }
      const double all = 0.5 * ranges * (ranges - 1.0);
      EXPECT_EQ(sums["own number"], all) << where;
      EXPECT_EQ(sums["of another number"], all) << where;
      EXPECT_EQ(sums["own parity"], 2) << where;
      EXPECT_TRUE(has(ran.out, "the program ended before its recording was")) << ran.out;
      // A report of the kept recording is the same.
      EXPECT_EQ(run("report $D/killed.paoding --format json").out, ran.out.substr(begin)) << signal << " " << ranges;
      EXPECT_EQ(run("report $D/killed.paoding --path $D/killed.json").code, 0);
      EXPECT_TRUE(is_json(read_file(folder_ / "killed.json")));
    }
  }
}

// A command of paoding's, in the middle of its runs: once much of them is in the file.
TEST_F(Killed, SaysOfACommandWhatItDid) {
  fs::create_directory(folder_ / "tmp");
  write("kill.sh", program().string() + " run " + path("scale.txt") +
                       " --random 1 --device cpu --repeat 1000000000 &\n"
                       "until [ $(cat " +
                       path("tmp") +
                       "/*/*.paoding 2>/dev/null | wc -c) -gt 100000 ]; do sleep 0.05; done\n"
                       "kill -9 $!; wait $!\n");
  const Ran ran = run("profile sh $D/kill.sh", "TMPDIR=" + path("tmp"));
  EXPECT_EQ(ran.code, 128 + 9) << ran.err;
  EXPECT_TRUE(has(ran.out, " steps: p50 ")) << ran.out << ran.err;
  EXPECT_TRUE(has(ran.out, "thread0::group: ")) << ran.out;
  EXPECT_TRUE(has(ran.out, "the program ended before its recording was")) << ran.out;
  EXPECT_TRUE(fs::is_empty(folder_ / "tmp"));
}

}  // namespace
}  // namespace paoding::cli_run
