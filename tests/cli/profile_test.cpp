// SPDX-License-Identifier: Apache-2.0
// paoding profile and paoding report: whole commands under the profiler, and recordings read again.
#include <pty.h>
#include <time.h>

#include <map>
#include <sstream>

#include "cli_run.h"

namespace paoding::cli_run {
namespace {

using Profile = Cli;

TEST_F(Profile, RecordsACommandOfPaodingsWithoutAChangeToIt) {
  const Ran alone = run("run $D/scale.txt --random 1 --device cpu --repeat 3");
  const Ran ran = run("profile run $D/scale.txt --random 1 --device cpu --repeat 3");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, "\nfetch  type")) << ran.out;
  EXPECT_TRUE(has(ran.out, "\n  Compiling ")) << ran.out;
  EXPECT_TRUE(has(ran.out, "4 steps: p50 ")) << ran.out;
  // The sections on compile time and memory, and the last line.
  EXPECT_TRUE(has(ran.out, "\npass fuse_groups ")) << ran.out;
  EXPECT_TRUE(has(ran.out, "\nCPU, program of ")) << ran.out;
  EXPECT_TRUE(has(ran.out, "  most at once ")) << ran.out;
  EXPECT_TRUE(has(ran.out, " received, 0 dropped, 0 without a time, 0 outside of the window, 0 of no op\n")) << ran.out;
  EXPECT_TRUE(has(ran.out, "thread0::group: ")) << ran.out;
  EXPECT_EQ(ran.out.substr(ran.out.find("dw "), 60), alone.out.substr(alone.out.find("dw "), 60));
}

TEST_F(Profile, CallsACommandOfPaodingsByItsName) {
  const Ran ran = run("profile --html $D/run.html run $D/scale.txt --random 1 --device cpu --repeat 3");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(read_file(path("run.html")), "<title>paoding · Profiling Report</title>"));
}

TEST_F(Profile, RecordsSomeRunsOnly) {
  const Ran ran =
      run("profile --steps 2:8 --format json --path $D/w.paoding run $D/scale.txt --random 1 --device cpu --repeat 9");
  EXPECT_EQ(ran.code, 0) << ran.err;
  const std::string json = ran.out.substr(ran.out.find("{\n\"report\""));
  simdjson::dom::parser parser;
  const simdjson::padded_string text(json);
  EXPECT_EQ(std::int64_t(parser.parse(text)["steps"]["count"]), 6) << json;
  // The same from the recording, in every form.
  EXPECT_EQ(run("report $D/w.paoding --format json").out, json);
  EXPECT_TRUE(has(run("report $D/w.paoding --sort max --path $D/w.pftrace").out, "Sorted by maximum"));
  EXPECT_GT(fs::file_size(folder_ / "w.pftrace"), 100u);
  EXPECT_EQ(run("report $D/w.paoding --path $D/w.json").code, 0);
  EXPECT_TRUE(is_json(read_file(folder_ / "w.json")));
  EXPECT_TRUE(run("report $D/w.paoding --format csv").out.starts_with("table,of,depth,name,calls,total_ns,"));
}

// From before the first program is made: nothing is held at the start.
TEST_F(Profile, ShowsKernelsAndWhatIsHeldOverTime) {
  const Ran ran = run("profile --kernels --path $D/k.paoding run $D/scale.txt --random 1 --device cpu --repeat 3");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, "\n  kernel ")) << ran.out;
  const std::size_t held = ran.out.find("\nHeld, MB ");
  ASSERT_NE(held, std::string::npos) << ran.out;
  std::istringstream lines(ran.out.substr(held + 1));
  std::string line, name;
  std::getline(lines, line);
  double at_start = -1, most = 0, first_at = 0, at_end = -1;
  lines >> name >> at_start >> most >> first_at >> at_end;
  EXPECT_EQ(name, "CPU");
  EXPECT_EQ(at_start, 0);
  EXPECT_GT(most, 0);
  EXPECT_GT(first_at, 0);
  EXPECT_LE(at_end, most);
  EXPECT_TRUE(has(run("report $D/k.paoding --kernels").out, "\n  kernel "));
  EXPECT_FALSE(has(run("report $D/k.paoding").out, "\n  kernel "));
  EXPECT_EQ(run("report $D/k.paoding --path $D/k.json").code, 0);
  EXPECT_TRUE(has(read_file(folder_ / "k.json"), "\"name\":\"memory: arenas\""));
}

TEST_F(Profile, HasTheSameWindowInRun) {
  const Ran ran =
      run("run $D/scale.txt --random 1 --device cpu --profile-steps 2:8 --repeat 10 --profile-path $D/r.paoding");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, "\n6 steps: p50 ")) << ran.out;
  EXPECT_TRUE(has(ran.out, "\n10 more runs, ")) << ran.out;
  const std::string report = run("report $D/r.paoding --state cpu").out;
  EXPECT_TRUE(has(ran.out, report)) << report;
}

int occurrences(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++found;
  return found;
}

std::int64_t system_ns() {
  timespec at{};
  clock_gettime(CLOCK_MONOTONIC, &at);
  return std::int64_t{at.tv_sec} * 1'000'000'000 + at.tv_nsec;
}

// Two ranks one after the other: each of their events lies where this process, by the system's clock, saw the rank run.
TEST_F(Profile, SetsRanksBesideEachOtherInOneTimeline) {
  const std::string words = "run $D/scale.txt --random 1 --device cpu --repeat 3 --profile --profile-path $D/rank";
  std::vector<std::pair<std::int64_t, std::int64_t>> ran;
  for (const char* rank : {"1", "0"}) {
    const std::int64_t from = system_ns();
    ASSERT_EQ(run(words + rank + ".paoding", std::string("RANK=") + rank).code, 0);
    ran.emplace_back(from, system_ns());
  }
  const Ran both = run("report $D/rank1.paoding $D/rank0.paoding --path $D/all.json");
  EXPECT_EQ(both.code, 0) << both.err;
  for (const char* part : {"rank 0 thread0::", "rank 1 thread0::", "\nNot seen: nothing known to be missing"}) {
    EXPECT_TRUE(has(both.out, part)) << part << both.out;
  }
  simdjson::dom::parser parser;
  const simdjson::padded_string text(read_file(folder_ / "all.json"));
  const simdjson::dom::element line = parser.parse(text);
  const auto start = std::stoll(std::string(std::string_view(line["otherData"]["startNs"])));
  std::map<std::int64_t, std::string> places;
  std::map<std::string, int> events;
  for (const simdjson::dom::element event : simdjson::dom::array(line["traceEvents"])) {
    const std::int64_t pid(event["pid"]);
    if (std::string_view(event["name"]) == "process_name") places[pid] = std::string_view(event["args"]["name"]);
    if (std::string_view(event["ph"]) != "X") continue;
    const auto [from, to] = ran[places.at(pid) == "rank 1 host" ? 0 : 1];
    const std::int64_t at = start + std::int64_t(1e3 * double(event["ts"]));
    EXPECT_GE(at, from) << places[pid];
    EXPECT_LE(at, to) << places[pid];
    ++events[places[pid]];
  }
  EXPECT_EQ(events.size(), 2u);
  EXPECT_EQ(events["rank 0 host"], events["rank 1 host"]);
  const Ran twice = run("report $D/rank1.paoding $D/rank1.paoding");
  EXPECT_NE(twice.code, 0);
  EXPECT_TRUE(has(twice.err, "are both of rank 1")) << twice.err;
  EXPECT_TRUE(has(run("report $D/rank1.paoding $D/scale.txt").err, "it is no trace that can be read"));
  EXPECT_TRUE(has(run("report tests/recordings/version_2_cpu.paoding $D/rank0.paoding").err,
                  "files of before version 3 do not"));
}

TEST_F(Profile, ReportsAllProcessesOfAProgramAtOnce) {
  const Ran ran = run("profile --path $D/all.json sh -c '" + program().string() + " run " + folder_.string() +
                      "/scale.txt --random 1 --device cpu; " + program().string() + " run " + folder_.string() +
                      "/scale.txt --random 1 --device cpu --repeat 4'");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(occurrences(ran.out, "Profiling Report"), 2) << ran.out;  // of all, and thread by thread
  const std::string line = read_file(folder_ / "all.json");
  EXPECT_EQ(occurrences(line, "\"name\":\"process_name\""), 2);
  EXPECT_EQ(occurrences(line, "\"cat\":\"run\""), 6);
}

// A program that has a profiler of its own goes on as if nobody looked: its report says where all is.
TEST_F(Profile, RecordsAProgramThatProfilesItself) {
  const std::string words = "run $D/scale.txt --random 1 --device cpu --repeat 9 --profile --profile-path $D/own.json";
  const Ran ran = run("profile " + words);
  EXPECT_EQ(ran.code, 0) << ran.err;
  const std::string elsewhere =
      "\nNot seen: everything: `paoding profile` records this program, and its report has it\n";
  EXPECT_EQ(occurrences(ran.out, elsewhere), 1) << ran.out;
  EXPECT_TRUE(has(ran.out.substr(ran.out.find(elsewhere)), "\n10 steps: p50 ")) << ran.out;
  EXPECT_TRUE(is_json(read_file(folder_ / "own.json")));
  // Where its own recording began first it has that, whole, and the window asked for from outside does not end it.
  const Ran window = run("profile --steps 3:5 " + words);
  EXPECT_NE(window.code, 0);
  EXPECT_TRUE(has(window.out, "\n9 steps: p50 ")) << window.out;
  EXPECT_TRUE(has(window.err,
                  "nothing was recorded: run is no program of paoding's, or ended before it began, or recorded "
                  "itself then"))
      << window.err;
}

// A report on a terminal fits into its width, and has titles in bold type.
TEST_F(Profile, FitsATerminalAndHasColoursThereOnly) {
  const std::string path = (folder_ / "t.paoding").string(), paoding = program().string();
  ASSERT_EQ(run("run $D/scale.txt --random 1 --device cpu --repeat 9 --profile --profile-path $D/t.paoding").code, 0);
  const std::string plain = run("report $D/t.paoding --kernels --rates").out;
  EXPECT_FALSE(has(plain, "\x1b"));
  for (const int columns : {80, 120}) {
    winsize size = {};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = 20;
    int terminal = -1;
    const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
    if (child == 0) {
      execl(paoding.c_str(), "paoding", "report", path.c_str(), "--kernels", "--rates", nullptr);
      _exit(99);
    }
    ASSERT_GT(child, 0);
    std::string out;
    char piece[4096];
    for (ssize_t bytes = 0; (bytes = read(terminal, piece, sizeof piece)) > 0;) {
      out.append(piece, static_cast<std::size_t>(bytes));
    }
    close(terminal);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << out;
    EXPECT_TRUE(has(out, "\x1b[1m-----")) << out;
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) {
      for (const char* order : {"\r", "\x1b[1m", "\x1b[0m"}) {
        if (const std::size_t at = line.find(order); at != line.npos) line.erase(at, std::string(order).size());
      }
      EXPECT_LE(line.size(), static_cast<std::size_t>(columns)) << line;
    }
  }
}

// Commands that print a report write it as a page too, with the same values.
TEST_F(Profile, WritesAPage) {
  const Ran ran =
      run("profile --html $D/a.html --path $D/a.paoding run $D/scale.txt --random 1 --device cpu --repeat 3");
  EXPECT_EQ(ran.code, 0) << ran.err;
  const Ran report = run("report $D/a.paoding --format json --html $D/b.html");
  EXPECT_EQ(report.code, 0) << report.err;
  const std::string page = read_file(folder_ / "a.html");
  EXPECT_TRUE(page.starts_with("<!doctype html>\n<!-- paoding report -->\n"));
  EXPECT_EQ(page, read_file(folder_ / "b.html"));
  EXPECT_TRUE(is_json(report.out));
  EXPECT_EQ(run("run $D/scale.txt --random 1 --device cpu --profile --html $D/c.html").code, 0);
  EXPECT_TRUE(has(read_file(folder_ / "c.html"), "id=\"paoding-spans0\""));
  // One page for each case.
  const std::string bench =
      "bench --device cpu --quick --no-check --report --html $D/d.html --filter lstm/forward/t64_b1_h128_f32";
  EXPECT_EQ(run(bench).code, 0);
  EXPECT_TRUE(has(read_file(folder_ / "d.html"), "lstm_recurrence"));
  write("mine.html", "<p>mine</p>");
  const Ran refused = run("report $D/a.paoding --html $D/mine.html");
  EXPECT_NE(refused.code, 0);
  EXPECT_EQ(read_file(folder_ / "mine.html"), "<p>mine</p>");
}

TEST_F(Profile, SaysWhatIsWrong) {
  for (const auto& [words, problem] : {
           std::pair{"profile", "what is to be run is missing"},
           {"profile --steps 8:2 run x", "steps are '8:2', needs to be as 2:8"},
           {"profile --path x.txt run x", "needs to end in .json, .json.gz, .pftrace, .paoding or .html"},
           {"profile --html x.txt run x", "--html is 'x.txt', needs to end in .html"},
           {"run $D/scale.txt --random 1 --html $D/x.html", "--html says how a report looks, but none is asked for"},
           {"profile --state tpu run x", "state is 'tpu'"},
           {"run $D/scale.txt --random 1 --profile-steps 3:3", "needs to be as 2:8"},
           {"report $D/scale.txt", "it is no trace that can be read"},
           {"report $D/missing.paoding", "missing.paoding"},
           {"profile /no/such/program", "/no/such/program cannot be started"},
           {"profile true", "nothing was recorded: true is no program of paoding's"},
       }) {
    const Ran ran = run(words);
    EXPECT_NE(ran.code, 0) << words;
    EXPECT_TRUE(has(ran.err, problem)) << words << ": " << ran.err;
  }
}

// Files that a command writes: a symbolic link stays one, another program's file is not overwritten, and the error
// comes before any work.
TEST_F(Profile, WritesOverNothingButItsOwnFiles) {
  write("letter", "dear reader");
  const std::string work = "run $D/scale.txt --random 1 --device cpu ";
  ASSERT_EQ(run(work + "--profile --profile-path $D/seen.paoding").code, 0);
  for (const std::string& command :
       {work + "--profile-path $D/x.json", work + "--profile-path $D/x.json.gz", work + "--profile-path $D/x.pftrace",
        work + "--profile-path $D/x.paoding", work + "--fetch $D/x.pd",
        std::string("report $D/seen.paoding --path $D/x.json"), "profile --path $D/x.paoding " + work,
        std::string("bench kernels --quick --no-check --device cpu --json $D/x.json")}) {
    const std::size_t at = command.find("$D/x."), end = std::min(command.find(' ', at), command.size());
    const std::string name = command.substr(at + 3, end - at - 3);
    write(name, "dear reader");
    const Ran ran = run(command);
    EXPECT_NE(ran.code, 0) << command;
    EXPECT_TRUE(has(ran.err, name + ": is there and is no such file of paoding's: give another name, or delete it"))
        << command << ran.err;
    EXPECT_TRUE(ran.out.empty()) << command << ran.out;
    EXPECT_EQ(read_file(folder_ / name), "dear reader") << command;
    fs::remove(folder_ / name);
    if (command.starts_with("bench")) continue;  // its work takes long
    // A link to it is replaced; one more of the same is.
    fs::create_symlink(folder_ / "letter", folder_ / name);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(run(command).code, 0) << command;
    EXPECT_EQ(read_file(folder_ / "letter"), "dear reader") << command;
    EXPECT_FALSE(fs::is_symlink(folder_ / name)) << command;
    fs::remove(folder_ / name);
  }
}

TEST_F(Profile, HasTheCommandsExitCode) {
  EXPECT_EQ(run("profile run $D/missing.txt").code, run("run $D/missing.txt").code);
  EXPECT_EQ(run("profile sh -c 'exit 7'").code, 7);
  EXPECT_EQ(run("profile sh -c 'kill -9 $$'").code, 128 + 9);
}

}  // namespace
}  // namespace paoding::cli_run
