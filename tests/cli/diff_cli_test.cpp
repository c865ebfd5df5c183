// SPDX-License-Identifier: Apache-2.0
// paoding diff: recordings, rows of a benchmark, and commands in turns.
#include <cmath>

#include "cli_run.h"

namespace paoding::cli_run {
namespace {

class DiffCli : public Cli {
 protected:
  // The JSON that paoding bench --json writes.
  void write_rows(const std::string& name, double us, const std::string& more = "",
                  const std::string& machine = "m") const {
    write(name, "{\n\"paoding\":\"0\",\n\"device\":\"cpu\",\n\"machine\":\"" + machine +
                    "\",\n\"rows\":[\n{\"case\":\"x\",\"cache\":\"hot\",\"clock\":\"wall\",\"us\":" +
                    std::to_string(us) + "}" + more + "\n]\n}\n");
  }
  // Three processes a side.
  void write_sides(double factor) const {
    for (int i = 0; i < 3; ++i) {
      write_rows("a" + std::to_string(i) + ".json", 100 + 0.1 * i);
      write_rows("b" + std::to_string(i) + ".json", factor * (100 + 0.1 * i));
    }
  }
  static simdjson::dom::element parse(simdjson::dom::parser& parser, const std::string& text) {
    simdjson::dom::element json;
    EXPECT_EQ(parser.parse(simdjson::padded_string(text)).get(json), simdjson::SUCCESS) << text;
    return json;
  }
};

TEST_F(DiffCli, ComparesRowsOfTheBenchmark) {
  write_sides(1.2);
  const Ran slower = run("diff --before $D/a?.json --after $D/b?.json");
  EXPECT_EQ(slower.code, 1) << slower.err;
  EXPECT_TRUE(has(slower.out, "\nx hot wall  ")) << slower.out;
  EXPECT_TRUE(has(slower.out, "+20.00%")) << slower.out;
  EXPECT_TRUE(has(slower.out, "\nVerdict: B is slower\n")) << slower.out;
  EXPECT_EQ(run("diff --after $D/a?.json --before $D/b?.json").code, 0);
  EXPECT_TRUE(has(run("diff --before $D/a?.json --after $D/a?.json").out, "\nVerdict: same\n"));
  const Ran markdown = run("diff --markdown --before $D/a?.json --after $D/b?.json");
  EXPECT_TRUE(markdown.out.starts_with("### paoding diff: slower\n")) << markdown.out;
  simdjson::dom::parser parser;
  const auto json = parse(parser, run("diff --json --before $D/a?.json --after $D/b?.json").out);
  EXPECT_NEAR(double(json["rows"].at(0)["ratio"]), 1.2, 1e-9);
  EXPECT_NEAR(double(json["rows"].at(0)["a_ns"]), 100100, 1);
  // The change is below the floor then.
  EXPECT_EQ(run("diff --floor 25 --before $D/a?.json --after $D/b?.json").code, 0);
}

TEST_F(DiffCli, SaysWhichRowsHaveNoOther) {
  write_rows("a.json", 100, ",\n{\"case\":\"gone\",\"us\":5},\n{\"case\":\"waits\",\"us\":null}");
  write_rows("b.json", 100);
  const Ran ran = run("diff $D/a.json $D/b.json");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, "1 rows of A are not in every process of both sides: gone")) << ran.out;
  EXPECT_TRUE(has(ran.out, "one process a side says nothing")) << ran.out;
  EXPECT_TRUE(has(ran.out, "Verdict: inconclusive")) << ran.out;
  EXPECT_EQ(run("diff --strict $D/a.json $D/b.json").code, 2);
  write_rows("other.json", 1000, "", "another machine");
  EXPECT_TRUE(has(run("diff $D/a.json $D/other.json").out, "the machines differ"));
  EXPECT_EQ(run("diff $D/a.json $D/other.json").code, 0);
  EXPECT_EQ(run("diff --across-machines $D/a.json $D/other.json").code, 1);
}

TEST_F(DiffCli, ComparesRecordingsOpByOp) {
  for (const char* name : {"a", "b"}) {
    const Ran ran =
        run(std::string("profile --path $D/") + name + ".paoding run $D/scale.txt --random 1 --device cpu --repeat 9");
    ASSERT_EQ(ran.code, 0) << ran.err;
  }
  const Ran same = run("diff $D/a.paoding $D/a.paoding");
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_TRUE(has(same.out, "A step takes the same.")) << same.out;
  simdjson::dom::parser parser;
  const auto json = parse(parser, run("diff --json $D/a.paoding $D/b.paoding").out);
  double sum = double(json["change"]["unexplained_ns"]), parts = double(std::int64_t(json["parts_alike"]));
  for (const simdjson::dom::element part : json["parts"]) {
    sum += double(part["change_ns"]);
    parts += 1;
  }
  EXPECT_NEAR(sum, double(json["change"]["ns"]), 1e-3);
  EXPECT_GE(parts, 2);  // the group, and the remainder
  // A folder has a file of every process.
  fs::create_directory(path("both"));
  fs::copy_file(path("a.paoding"), path("both/1.paoding"));
  fs::copy_file(path("b.paoding"), path("both/2.paoding"));
  const auto folder = parse(parser, run("diff --json $D/both $D/both").out);
  EXPECT_EQ(std::int64_t(folder["a"]["processes"]), 2);
  EXPECT_EQ(std::string_view(folder["rows"].at(0)["name"]), "step");
}

// XLA writes a copy in JSON beside a profile; both would be two processes.
TEST_F(DiffCli, LeavesCopiesOfAProfileOut) {
  fs::create_directory(path("xla"));
  for (const char* file : {"jax_h200.xplane.pb.gz", "jax_2026.json.gz"}) {
    fs::copy_file(fs::path("tests/recordings/others") / file, path(std::string("xla/") + file));
  }
  simdjson::dom::parser parser;
  const Ran ran = run("diff --json $D/xla $D/xla");
  const auto json = parse(parser, ran.out);
  EXPECT_EQ(std::int64_t(json["a"]["processes"]), 1) << ran.err;
  EXPECT_EQ(std::int64_t(parse(parser, run("diff --json --before $D/xla/* --after $D/xla/*").out)["a"]["processes"]),
            2);
}

TEST_F(DiffCli, RunsCommandsInTurns) {
  const std::string a = "sh -c 'echo A >>$D/order'", b = "sh -c 'echo B >>$D/order'";
  simdjson::dom::parser parser;
  const Ran ran = run("diff --json --runs 3 -- " + a + " -- " + b);
  const auto json = parse(parser, ran.out);
  EXPECT_EQ(read_file(path("order")), "A\nB\nA\nB\nB\nA\nA\nB\n");  // after one of each that warms up
  EXPECT_EQ(std::string_view(json["rows"].at(0)["name"]), "process");
  EXPECT_EQ(std::int64_t(json["a"]["processes"]), 3);
  EXPECT_TRUE(has(ran.out, "no steps were recorded")) << ran.out;
  EXPECT_FALSE(has(run("diff --no-record --warm-up 0 --runs 2 -- " + a + " -- " + b).out, "no steps were recorded"));
}

TEST_F(DiffCli, RunsProgramsOfPaodingsUnderTheProfiler) {
  const std::string command = "run $D/scale.txt --random 1 --device cpu --repeat 9";
  simdjson::dom::parser parser;
  const Ran ran = run("diff --json --warm-up 0 --runs 2 -- " + command + " -- " + command + " --no-pass fuse_groups");
  const auto json = parse(parser, ran.out);
  EXPECT_EQ(std::string_view(json["rows"].at(0)["name"]), "step") << ran.err;
  bool is_split = false;
  for (const simdjson::dom::element part : json["parts"]) is_split |= std::string_view(part["how"]) == "split";
  EXPECT_TRUE(is_split) << ran.out;  // the group of A is its ops in B
}

TEST_F(DiffCli, AddsWhatReadsTheRowsOfTheBenchmark) {
  const std::string command = "bench --device cpu --quick --no-check --filter lerp_grad/3";
  simdjson::dom::parser parser;
  const Ran ran = run("diff --json --warm-up 0 --runs 1 -- " + command + " -- " + command);
  const auto json = parse(parser, ran.out);
  EXPECT_EQ(std::string_view(json["rows"].at(0)["name"]), "lerp_grad/3 cold wall") << ran.err;
  const Ran own = run("diff -- bench --json x.json -- bench");
  EXPECT_EQ(own.code, 2);
  EXPECT_TRUE(has(own.err, "leave --json out")) << own.err;
}

// A program that prints given times: two a side cannot tell 5%, four can.
TEST_F(DiffCli, GoesOnWhileItIsInconclusive) {
  write("paoding",
        "#!/bin/sh\nn=$(cat " + path("order") + " 2>/dev/null | wc -l)\necho $2 >>" + path("order") +
            "\nus=$(($2 + n % 2))\nfor file; do :; done\n"
            "echo \"{\\\"paoding\\\":\\\"0\\\",\\\"rows\\\":[{\\\"case\\\":\\\"x\\\",\\\"us\\\":$us}]}\" >$file\n");
  fs::permissions(path("paoding"), fs::perms::owner_all);
  const std::string a = " -- $D/paoding bench 100", b = " -- $D/paoding bench 105";
  const Ran few = run("diff --warm-up 0 --runs 2" + a + b);
  EXPECT_EQ(few.code, 0) << few.err;
  EXPECT_TRUE(has(few.out, "Verdict: inconclusive")) << few.out;
  fs::remove(path("order"));
  const Ran more = run("diff --warm-up 0 --runs 2 --most-runs 8" + a + b);
  EXPECT_EQ(more.code, 1) << more.err;
  EXPECT_TRUE(has(more.out, "Verdict: B is slower")) << more.out;
  EXPECT_EQ(read_file(path("order")), "100\n105\n105\n100\n100\n105\n105\n100\n");
}

TEST_F(DiffCli, ShowsTheEndOfACommandThatFails) {
  const Ran ran = run("diff --warm-up 0 -- true -- sh -c 'seq 100; echo it broke >&2; exit 7'");
  EXPECT_EQ(ran.code, 2);
  EXPECT_TRUE(has(ran.err, "B's command ended with exit code 7: sh -c ")) << ran.err;
  EXPECT_TRUE(has(ran.err, "\n100\nit broke\n")) << ran.err;
  EXPECT_FALSE(has(ran.err, "\n1\n")) << ran.err;
  const Ran none = run("diff -- $D/nothing -- true");
  EXPECT_EQ(none.code, 2);
  EXPECT_TRUE(has(none.err, "nothing cannot be started: No such file")) << none.err;
  EXPECT_TRUE(has(run("diff --warm-up 0 -- sh -c 'kill -9 $$' -- true").err, "exit code 137")) << ran.err;
}

// Rows measured until then are shown; the command that runs ends, with its children.
TEST_F(DiffCli, KeepsWhatWasMeasuredWhenInterrupted) {
  const Ran ran = shell(program().string() + " diff --no-record --warm-up 0 --runs 3 -- sh -c 'echo A >>" +
                        path("order") + "' -- sh -c 'echo B >>" + path("order") + "; test $(wc -l <" + path("order") +
                        ") -lt 3 || sleep 1000' & pid=$!; for i in $(seq 600); do test $(cat " + path("order") +
                        " 2>/dev/null | wc -l) -lt 3 || break; sleep 0.1; done; kill -TERM $pid; wait $pid");
  EXPECT_EQ(ran.code, 143) << ran.err;
  EXPECT_TRUE(has(ran.out, "interrupted: 2 of 6 processes were measured")) << ran.out << ran.err;
  EXPECT_TRUE(has(ran.out, "\nprocess  ")) << ran.out;
}

TEST_F(DiffCli, SaysWhatIsWrong) {
  write_rows("rows.json", 100);
  write("empty.json", "{\"paoding\":\"0\",\"rows\":[]}");
  write("cut.json", "{\"paoding\":\"0\",\"rows\":[{\"case\":");
  write("noise", std::string(5000, '\xff'));
  ASSERT_EQ(run("profile --path $D/a.paoding run $D/scale.txt --random 1 --device cpu").code, 0);
  struct Wrong {
    const char *arguments, *says;
  };
  for (const Wrong& wrong : {Wrong{"", "two files or folders"},
                             {"$D/rows.json", "two files or folders"},
                             {"$D/rows.json $D/gone.json", "gone.json"},
                             {"$D/rows.json $D/empty.json", "no row has a time"},
                             {"$D/rows.json $D/cut.json", "has no rows"},
                             {"$D/rows.json $D/noise", "noise"},
                             {"$D/rows.json $D/a.paoding", "they cannot be compared"},
                             {"--runs 3 $D/rows.json $D/rows.json", "--runs is about commands"},
                             {"--runs 0 -- true -- true", "--runs"},
                             {"--runs 5 --most-runs 2 -- true -- true", "fewer than --runs"},
                             {"--floor x $D/rows.json $D/rows.json", "--floor is 'x'"},
                             {"--json --markdown $D/rows.json $D/rows.json", "one of them"},
                             {"-- true", "B's command is missing"},
                             {"-- true --", "B's command is missing"},
                             {"-- -- true", "A's command is missing"},
                             {"-- true -- true -- true", "a third --"},
                             {"-- bench -- true", "they measure different things"},
                             {"--jsn -- true -- true", "there is no option '--jsn'"}}) {
    const Ran ran = run(std::string("diff ") + wrong.arguments);
    EXPECT_EQ(ran.code, 2) << wrong.arguments;
    EXPECT_TRUE(has(ran.err, wrong.says)) << wrong.arguments << ": " << ran.err;
    EXPECT_EQ(ran.out, "") << wrong.arguments;
  }
}

}  // namespace
}  // namespace paoding::cli_run
