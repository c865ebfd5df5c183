// SPDX-License-Identifier: Apache-2.0
// The command line as its users meet it: the program beside this one is run, its output, errors and exit codes are
// looked at.
#include <limits>

#include "tests/cli/cli_run.h"

namespace paoding::cli_run {
namespace {

// ---- words of the command line ----

TEST_F(Cli, HelpTeachesEveryCommandWithExamples) {
  const Ran help = run("--help");
  EXPECT_EQ(help.code, 0);
  EXPECT_TRUE(has(help.out, "PAODING_EXPLAIN")) << help.out;
  for (const char* command : {"run", "dump", "ops", "doctor", "bench", "bench lerp_grad", "bench lstm_steps",
                              "bench g2p", "bench seq2seq", "bench kernels", "bench conv_net"}) {
    const Ran ran = run(std::string(command) + " --help");
    EXPECT_EQ(ran.code, 0) << command;
    EXPECT_TRUE(has(ran.out, "Examples:\n  paoding ")) << command << "\n" << ran.out;
  }
}

TEST_F(Cli, UnknownCommandsAndOptionsSuggestNearOnes) {
  Ran ran = run("dmup x");
  EXPECT_EQ(ran.code, 2);
  EXPECT_TRUE(has(ran.err, "no command 'dmup' (did you mean 'dump'?)")) << ran.err;
  ran = run("run $D/scale.txt --repaet 3");
  EXPECT_EQ(ran.code, 2);
  EXPECT_TRUE(has(ran.err, "no option '--repaet' (did you mean '--repeat'?)")) << ran.err;
  ran = run("");
  EXPECT_EQ(ran.code, 2);
  EXPECT_TRUE(has(ran.err, "a command is missing")) << ran.err;
  ran = run("bench lstm_stepz");
  EXPECT_EQ(ran.code, 2);
  EXPECT_TRUE(has(ran.err, "lstm_steps")) << ran.err;
  EXPECT_EQ(run("bench lerp_grad --case 1 --sort size").code, 2);
  EXPECT_EQ(run("run").code, 2);
  EXPECT_EQ(run("run a b").code, 2);
}

TEST_F(Cli, WrongWordsAreWrongUsage) {
  for (const char* arguments : {"--device cdua", "--device cuda:x", "--device cuda:", "--sort size", "--detail ops",
                                "--no-pass fuse_group", "--profile-path trace.txt", "--repeat -1", "--repeat many"}) {
    const Ran ran = run(std::string("run $D/scale.txt --random 1 ") + arguments);
    EXPECT_EQ(ran.code, 2) << arguments << "\n" << ran.err;
    EXPECT_TRUE(ran.out.empty()) << ran.out;
    EXPECT_FALSE(ran.err.empty());
  }
  EXPECT_TRUE(has(run("run $D/scale.txt --random 1 --no-pass fuse_group").err, "did you mean 'fuse_groups'"));
}

// ---- run ----

TEST_F(Cli, RunComputesWhatTheGraphSaysAndWritesFetches) {
  save("x.safetensors", {{"x", floats({2, 3}, {1, 2, 3, 4, 5, 6})}});
  save("w.safetensors", {{"w", floats({3}, {10, 100, -1000})}});
  const Ran ran =
      run("run --device cpu --feed $D/x.safetensors $D/w.safetensors --fetch $D/out.safetensors $D/scale.txt");
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(ran.err.empty()) << ran.err;
  EXPECT_TRUE(has(ran.out, "y ")) << ran.out;
  EXPECT_TRUE(has(ran.out, "-6000")) << ran.out;
  const auto out = load_safetensors(path("out.safetensors"));
  EXPECT_EQ(out.size(), 2u);
  EXPECT_EQ(out.at("y").to_doubles(), (std::vector<double>{10, 200, -3000, 40, 500, -6000}));
  EXPECT_EQ(out.at("dw").to_doubles(), (std::vector<double>{1 + 16, 4 + 25, 9 + 36}));  // sum of x * seed, seed = x
}

TEST_F(Cli, RunNamesEveryFeedThatDoesNotFit) {
  save("a.safetensors", {{"x", Tensor::from(f64, {2, 3}, std::vector<double>(6, 1))}, {"ww", floats({3}, {1, 2, 3})}});
  const Ran ran = run("run $D/scale.txt --feed $D/a.safetensors --fetch $D/out.safetensors");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "input 'x' is f32[2,3] in the graph, but f64[2,3] in " + path("a.safetensors"))) << ran.err;
  EXPECT_TRUE(has(ran.err, "'ww' of " + path("a.safetensors") + " is no input or parameter of the graph (did you mean"))
      << ran.err;
  EXPECT_TRUE(has(ran.err, "parameter 'w', f32[3], is not fed")) << ran.err;
  EXPECT_FALSE(has(ran.err, "'x', f32[2,3], is not fed")) << ran.err;
  EXPECT_FALSE(fs::exists(path("out.safetensors")));
  EXPECT_TRUE(ran.out.empty()) << ran.out;
}

TEST_F(Cli, RunRefusesTwoValuesForOneName) {
  save("a.safetensors", {{"x", floats({2, 3}, {1, 2, 3, 4, 5, 6})}});
  fs::copy_file(path("a.safetensors"), path("b.safetensors"));
  const Ran ran = run("run $D/scale.txt --random 1 --feed $D/a.safetensors --feed $D/b.safetensors");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "'x' is fed twice")) << ran.err;
}

TEST_F(Cli, RunSaysWhichFileIsMissingOrMalformed) {
  Ran ran = run("run $D/none.txt --random 1");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, path("none.txt") + ": No such file")) << ran.err;
  ran = run("run $D --random 1");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "directory")) << ran.err;
  ran = run("run $D/scale.txt --feed $D/none.safetensors");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "none.safetensors")) << ran.err;
  write("bad.safetensors", "nonsense");
  ran = run("run $D/scale.txt --feed $D/bad.safetensors");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "bad.safetensors")) << ran.err;
  ran = run("run $D/scale.txt --random 1 --fetch $D/no/such/folder.safetensors");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "no folder")) << ran.err;
}

TEST_F(Cli, RunShowsWhereGraphTextIsWrong) {
  write("bad.txt", "paoding graph 1\nx = input f32[3]\ny = mull(x, x)\nfetch y\n");
  Ran ran = run("run $D/bad.txt --random 1");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, path("bad.txt") + ":3:5: there is no op 'mull'")) << ran.err;
  write("shapes.txt", "paoding graph 1\nx = input f32[3]\ny = input f32[4]\nz = mul(x, y)\nfetch z\n");
  ran = run("run $D/shapes.txt --random 1");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, path("shapes.txt") + ": line 4: mul")) << ran.err;
  write("nothing.txt", "paoding graph 1\nx = input f32[3]\n");
  ran = run("run $D/nothing.txt --random 1");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "fetches nothing")) << ran.err;
}

TEST_F(Cli, RunReadsAGraphFromStdin) {
  const Ran ran = shell("cat " + path("scale.txt") + " | " + program().string() + " run - --random 1 --device cpu");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, "f32[2,3]")) << ran.out;
}

TEST_F(Cli, RandomFeedsDependOnTheSeedOnly) {
  const auto fetched = [&](const std::string& seed, const std::string& environment) {
    const Ran ran = run("run $D/scale.txt --device cpu --fetch $D/out.safetensors --random " + seed, environment);
    EXPECT_EQ(ran.code, 0) << ran.err;
    return load_safetensors(path("out.safetensors")).at("y").to_doubles();
  };
  const auto one = fetched("1", "OMP_NUM_THREADS=1");
  EXPECT_EQ(one, fetched("1", "OMP_NUM_THREADS=2"));
  EXPECT_NE(one, fetched("2", ""));
  EXPECT_NE(one[0], one[1]);
}

TEST_F(Cli, RunPrintsOneValidJsonObject) {
  const Ran ran = run("run $D/scale.txt --random 1 --device cpu --repeat 5 --profile --json");
  ASSERT_EQ(ran.code, 0) << ran.err;
  ASSERT_TRUE(is_json(ran.out)) << ran.out;
  simdjson::dom::parser parser;
  const simdjson::dom::element all = parser.parse(ran.out);
  EXPECT_EQ(std::string_view(all["device"]), "cpu");
  EXPECT_EQ(std::int64_t(all["runs"]), 5);
  EXPECT_LE(double(all["min_ms"]), double(all["median_ms"]));
  EXPECT_LE(double(all["median_ms"]), double(all["max_ms"]));
  EXPECT_EQ(std::string_view(all["fetches"].at(0)["name"]), "y");
  EXPECT_TRUE(has(std::string(std::string_view(all["profile"])), "Profiling Report"));
}

TEST_F(Cli, RunShowsWhatPrintHandsOverInTheFirstRun) {
  write("print.txt",
        "paoding graph 1\nx = input f32[2]\nxs = input f32[3,2]\nbig = input f32[100]\n"
        "last = scan(x, xs) {carries=1, sequences=1, length=3} [\n"
        "  c = input f32[2]\n  e = input f32[2]\n  n = add(c, e)\n"
        "  p = print(n) {message=\"sum\"} @\"cell\"\n  fetch p\n]\n"
        "whole = print(big) {message=\"all of \\\"it\\\"\"}\nfetch last\n");
  save("feeds.safetensors", {{"x", floats({2}, {1, 2})},
                             {"xs", floats({3, 2}, {1, 1, 1, 1, 1, 1})},
                             {"big", floats({100}, std::vector<double>(100, 0.5))}});
  const std::string arguments = "run $D/print.txt --device cpu --repeat 3 --feed $D/feeds.safetensors";
  Ran ran = run(arguments);
  ASSERT_EQ(ran.code, 0) << ran.err;
  for (const char* line :
       {"print \"sum\" in cell: f32[2] [2, 3]\n", "print \"sum\" in cell, time step 1: f32[2] [3, 4]\n",
        "print \"sum\" in cell, time step 2: f32[2] [4, 5]\n", "print \"all of \\\"it\\\"\": f32[100] [0.5, ",
        "0.5, ..] min 0.5, max 0.5, mean 0.5, norm 5\n"}) {
    const std::size_t at = ran.out.find(line);
    EXPECT_NE(at, std::string::npos) << line << "\n" << ran.out;
    EXPECT_EQ(ran.out.find(line, at + 1), std::string::npos) << "shown twice: " << line;
  }
  ran = run(arguments + " --json");
  EXPECT_TRUE(is_json(ran.out)) << ran.out;
  EXPECT_TRUE(has(ran.out, R"({"message":"sum","scope":"cell","instance":2,"dtype":"f32","shape":[2],"values":[4,5]})"))
      << ran.out;
  EXPECT_TRUE(has(run("run --help").out, "`print`"));
}

TEST_F(Cli, NanInAFetchKeepsJsonValid) {
  const Ran ran = run("run examples/graphs/log_of_negative.txt --random 1 --device cpu --json");
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(is_json(ran.out)) << ran.out;
  EXPECT_TRUE(has(ran.out, "\"nan\":8")) << ran.out;
}

TEST_F(Cli, ProfileCountsTheRepeatedRunsOnly) {
  const Ran ran =
      run("run $D/scale.txt --random 1 --device cpu --repeat 7 --no-pass fuse_groups --profile "
          "--profile-path $D/trace.json");
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, "Profiling Report")) << ran.out;
  const std::size_t row = ran.out.find("thread0::mul ");
  ASSERT_NE(row, std::string::npos) << ran.out;
  EXPECT_EQ(std::atoi(ran.out.c_str() + row + sizeof "thread0::mul"), 7) << ran.out;
  EXPECT_TRUE(is_json(read_file(path("trace.json"))));
}

TEST_F(Cli, StepwiseAndExplainComeFromTheEnvironmentToo) {
  const std::string arguments = "run $D/scale.txt --random 1 --device cpu --fetch $D/out.safetensors";
  Ran ran = run(arguments, "PAODING_EXPLAIN=1");
  EXPECT_EQ(ran.code, 0);
  EXPECT_TRUE(has(ran.err, "pass fuse_groups")) << ran.err;
  const std::string captured = read_file(path("out.safetensors"));
  ran = run(arguments, "PAODING_EXPLAIN=0 PAODING_STEPWISE=1");
  EXPECT_EQ(ran.code, 0);
  EXPECT_TRUE(ran.err.empty()) << ran.err;
  EXPECT_EQ(read_file(path("out.safetensors")), captured);
  EXPECT_TRUE(has(run(arguments + " --explain").err, "pass fuse_groups"));
}

// ---- dump, ops, doctor ----

TEST_F(Cli, DumpPrintsGraphsThatRunTheSame) {
  Ran ran = run("dump $D/scale.txt");
  ASSERT_EQ(ran.code, 0) << ran.err;
  ASSERT_TRUE(ran.out.starts_with("paoding graph 1\n")) << ran.out;
  write("read.txt", ran.out);
  EXPECT_EQ(run("dump $D/read.txt").out, ran.out);
  ran = run("dump $D/scale.txt --after drop_unused");
  ASSERT_EQ(ran.code, 0) << ran.err;
  write("after.txt", ran.out);
  run("run $D/scale.txt --random 1 --device cpu --fetch $D/a.safetensors");
  run("run $D/after.txt --random 1 --device cpu --fetch $D/b.safetensors");
  const auto a = load_safetensors(path("a.safetensors")), b = load_safetensors(path("b.safetensors"));
  EXPECT_EQ(a.at("dw").to_doubles(), b.at("dw").to_doubles());
}

TEST_F(Cli, DumpShowsStagesPlanAndTimes) {
  const std::string graph = "dump examples/graphs/lstm.txt ";
  EXPECT_TRUE(has(run(graph + "--passes").out, "\n# after hoist_products: ")) << run(graph + "--passes").out;
  EXPECT_TRUE(has(run(graph + "--passes").out, "# as read: "));
  EXPECT_TRUE(has(run(graph + "--plan").out, "plan for cpu: "));
  EXPECT_TRUE(has(run("dump examples/graphs/lerp_grad.txt --plan --device cuda").out, "plan for cuda: "));
#if PAODING_WITH_CUDA
  EXPECT_TRUE(has(run(graph + "--plan --device cuda").out, "(cublaslt)"));
#endif
  const Ran times = run(graph + "--times");
  EXPECT_TRUE(has(times.out, "fuse_groups")) << times.out;
  EXPECT_FALSE(has(run(graph + "--times --no-pass fuse_groups").out, "fuse_groups"));
  Ran ran = run(graph + "--after hoist_product");
  EXPECT_EQ(ran.code, 2);
  EXPECT_TRUE(has(ran.err, "did you mean 'hoist_products'")) << ran.err;
  EXPECT_EQ(run(graph + "--after merge_duplicates#4").code, 2);
  EXPECT_NE(run(graph + "--after merge_duplicates#1").out, run(graph + "--after merge_duplicates").out);
  EXPECT_EQ(run(graph + "--after fuse_groups --no-pass fuse_groups").code, 2);
}

TEST_F(Cli, DumpWritesKernelsWithoutAGpu) {
  const Ran ran = run("dump examples/graphs/lerp_grad.txt --kernels");
#if PAODING_WITH_CUDA
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, "__global__")) << ran.out;
#else
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "no GPU back end")) << ran.err;
#endif
}

TEST_F(Cli, OpsListsTheTable) {
  EXPECT_TRUE(has(run("ops").out, "matmul(a, b)"));
  const Ran one = run("ops matmul");
  EXPECT_TRUE(has(one.out, "transpose_a bool, default false")) << one.out;
  EXPECT_TRUE(is_json(run("ops --json").out));
  EXPECT_TRUE(is_json(run("ops lerp --json").out));
  EXPECT_TRUE(has(run("ops --markdown").out, "| `lerp` |"));
  const Ran wrong = run("ops lrp");
  EXPECT_EQ(wrong.code, 1);
  EXPECT_TRUE(has(wrong.err, "no op 'lrp' (did you mean 'lerp'?)")) << wrong.err;
}

TEST_F(Cli, DoctorIsContentWithoutAGpu) {
  const Ran ran = run("doctor", "PAODING_CACHE_DIR=" + path("cache") + " PAODING_CUDA_PATH=/nonexistent");
  EXPECT_EQ(ran.code, 0) << ran.err;
  for (const char* part : {"CPU", "SIMD", "GPUs", "PAODING_CUDA_PATH       \"/nonexistent\""}) {
    EXPECT_TRUE(has(ran.out, part)) << part << "\n" << ran.out;
  }
#if PAODING_WITH_CUDA
  EXPECT_TRUE(has(ran.out, path("cache") + ", not there yet")) << ran.out;
#endif
}

// ---- bench ----

TEST_F(Cli, BenchLstmChecksItsResultsAndWritesJson) {
  const Ran ran = run("bench lstm_steps --device cpu --quick --batch 1,3 --hidden 24 --steps 5 --json $D/l.json");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_FALSE(has(ran.out, "WRONG")) << ran.out;
  simdjson::dom::parser parser;
  const std::string text = read_file(path("l.json"));
  ASSERT_TRUE(is_json(text)) << text;
  const simdjson::dom::element all = parser.parse(text);
  ASSERT_EQ(simdjson::dom::array(all["rows"]).size(), 4u);  // two batches, forward and training
  for (const simdjson::dom::element row : simdjson::dom::array(all["rows"])) {
    EXPECT_GT(double(row["error"]), 0);  // float32 is not float64
    EXPECT_LT(double(row["error"]), 1e-4);
  }
  EXPECT_EQ(run("bench lstm_steps --dtype i32").code, 2);
  EXPECT_TRUE(has(run("bench lerp_grad --case 6").err, "--case: '6' is no whole number from 1 to 5"));
  EXPECT_TRUE(has(run("bench lstm_steps --batch 1,x").err, "--batch: 'x' is no whole number from 1 to 65536"));
  EXPECT_EQ(run("bench lerp_grad --case 1 --json $D/no/x.json").code, 1);
  const Ran nowhere = run("bench lstm --timelines $D/l.json/none");
  EXPECT_TRUE(nowhere.code == 1 && has(nowhere.err, "/none: cannot make the folder: ")) << nowhere.err;
}

TEST_F(Cli, BenchComparesTrainingStepsWithFloat64) {
  for (const char* command :
       {"g2p --hidden 16 --batch 4 --source 3 --target 3", "g2p --dtype bf16 --hidden 16 --batch 4",
        "conv_net --batch 4 --channels 3,5 --size 12"}) {
    const Ran ran = run(std::string("bench ") + command + " --device cpu --quick --json $D/t.json");
    EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
    simdjson::dom::parser parser;
    const simdjson::padded_string text(read_file(path("t.json")));
    for (const simdjson::dom::element row : simdjson::dom::array(parser.parse(text)["rows"])) {
      EXPECT_GT(double(row["error"]), 0) << command;
      EXPECT_LT(double(row["error"]), std::string_view(row["dtype"]) == "f32" ? 1e-4 : 1e-1) << command;
    }
  }
}

// A max pool chooses an element: another choice because of rounding is no error, however few images there are.
TEST_F(Cli, BenchKnowsChoicesThatRoundingMoves) {
  const Ran ran = run("bench conv_net --batch 1,8 --dtype bf16 --device cpu --quick");
  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_FALSE(has(ran.out, "WRONG")) << ran.out;
}

TEST_F(Cli, BenchListsEveryCaseWithWhatIsNotWrittenYet) {
  const Ran ran = run("bench --list --device cpu --json $D/cases.json");
  EXPECT_EQ(ran.code, 0) << ran.err;
  for (const char* part : {"lerp_grad/5", "seq2seq/tf32", "lstm/training/t1024_b16_h768_bf16", "adam/60m_f32",
                           "control/cases", "span/off", "gpt2/token_bf16", "waits for"}) {
    EXPECT_TRUE(has(ran.out, part)) << part << "\n" << ran.out;
  }
  simdjson::dom::parser parser;
  const simdjson::padded_string text(read_file(path("cases.json")));
  const simdjson::dom::element all = parser.parse(text);
  for (const simdjson::dom::element row : simdjson::dom::array(all["rows"])) {
    const bool is_written = std::string_view(row["waits_for"]).empty();
    EXPECT_TRUE(!is_written || simdjson::dom::object(row["sizes"]).size() > 0 || double(row["bytes"]) == 0)
        << simdjson::minify(row);
  }
  const Ran unknown = run("bench --filter lerp_gard/1");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_TRUE(has(unknown.err, "did you mean 'lerp_grad/1'")) << unknown.err;
}

TEST_F(Cli, BenchMeasuresCasesOfTheListAndSaysWhatARowWaitsFor) {
  const Ran ran =
      run("bench --device cpu --quick --json $D/r.json "
          "--filter 'control/cases,gpt2/token_bf16,xlnet_block,lstm/forward/t64_b1_h128_bf16'");
  EXPECT_EQ(ran.code, 0) << ran.err;
  simdjson::dom::parser parser;
  const simdjson::padded_string text(read_file(path("r.json")));
  int measured = 0, waiting = 0;
  for (const simdjson::dom::element row : simdjson::dom::array(parser.parse(text)["rows"])) {
    if (row["us"].is_null()) {
      EXPECT_FALSE(std::string_view(row["waits_for"]).empty());
      waiting += 1;
      continue;
    }
    EXPECT_LE(double(row["us_min"]), double(row["us"]));
    EXPECT_LE(double(row["us"]), double(row["us_max"]));
    EXPECT_TRUE(bool(row["right"]));
    measured += 1;
  }
  EXPECT_EQ(measured, 2);
  EXPECT_EQ(waiting, 2);
}

TEST_F(Cli, BenchFollowsNamesFromStdinAndAnswersEachWithJsonLines) {
  const Ran ran = shell("printf 'control/cases\\nno/such\\ncontrol/cases\\n' | " + program().string() +
                        " bench --follow --device cpu --quick");
  EXPECT_EQ(ran.code, 0) << ran.err;
  std::istringstream lines(ran.out);
  std::vector<std::string> answers = {""};
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) {
      answers.emplace_back();
    } else {
      EXPECT_TRUE(is_json(line)) << line;
      answers.back() += line;
    }
  }
  ASSERT_EQ(answers.size(), 4u) << ran.out;  // the last one is the text after the third answer
  EXPECT_TRUE(has(answers[0], "\"case\":\"control/cases\"")) << answers[0];
  EXPECT_TRUE(has(answers[1], "there is no case 'no/such'")) << answers[1];
  EXPECT_TRUE(has(answers[2], "\"us\":")) << answers[2];
}

// ---- the world around ----

TEST_F(Cli, AClosedPipeIsNoCrash) {
  // The reader is gone before the first byte is written.
  const Ran ran = shell("(sleep 0.2; " + program().string() + " ops --json; echo $? >" + path("code") + ") | true");
  EXPECT_EQ(read_file(path("code")), "0\n");
  EXPECT_TRUE(ran.err.empty()) << ran.err;
}

TEST_F(Cli, AFullDiskIsAnError) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "NOT CHECKED: needs /dev/full";
  const Ran ran = shell(program().string() + " ops > /dev/full");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "No space left")) << ran.err;
}

TEST_F(Cli, CtrlCEndsALongRun) {
  const Ran ran = shell("timeout --preserve-status -s INT 1 " + program().string() + " run " + path("scale.txt") +
                        " --random 1 --device cpu --repeat 1000000000");
  EXPECT_EQ(ran.code, 130) << ran.err;
  EXPECT_TRUE(has(ran.err, "interrupted")) << ran.err;
  EXPECT_TRUE(ran.out.empty()) << ran.out;
}

}  // namespace
}  // namespace paoding::cli_run
