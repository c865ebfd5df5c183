// SPDX-License-Identifier: Apache-2.0
// `paoding run`: where its values come from, inputs that it refuses, and how it looks for non-finite values.
#include <pty.h>
#include <sys/ioctl.h>

#include <limits>

#include "paoding/checkpoint.h"
#include "paoding/ops.h"
#include "paoding/optimizer.h"
#include "tests/cli/cli_run.h"

namespace paoding::cli_run {
namespace {

// ---- values ----

class RunFeeds : public Cli {
 protected:
  // A run's folder with two checkpoints; the first has the better score.
  void SetUp() override {
    Cli::SetUp();
    CheckpointFolder folder(path("run"));
    for (const auto& [step, w] : {std::pair(10, 2.0), std::pair(20, 3.0)}) {
      Checkpoint checkpoint;
      checkpoint.manifest.model = "mine";
      checkpoint.manifest.step = step;
      checkpoint.manifest.score = w;
      checkpoint.manifest.score_name = "loss";
      checkpoint.tensors = {{"w", floats({3}, {w, w, w})}, {"adam/m/w", floats({3}, {0, 0, 0})}};
      folder.save(checkpoint);
    }
    save("x.safetensors", {{"x", floats({2, 3}, {1, 1, 1, 1, 1, 1})}});
  }
  std::vector<double> result(const std::string& feeds) const {
    const Ran ran = run("run $D/scale.txt --device cpu --fetch $D/out.safetensors --feed " + feeds);
    EXPECT_EQ(ran.code, 0) << ran.err;
    return load_safetensors(path("out.safetensors")).at("y").to_doubles();
  }
};

TEST_F(RunFeeds, AreTakenFromACheckpointOrTheBestOfARun) {
  EXPECT_EQ(result("$D/run $D/x.safetensors --allow-surplus"), std::vector<double>(6, 2));
  EXPECT_EQ(result("$D/x.safetensors $D/run/step-00000020 --allow-surplus"), std::vector<double>(6, 3));
}

TEST_F(RunFeeds, MayHaveWhatTheGraphHasNoPlaceForWhenThatIsSaid) {
  const Ran ran = run("run $D/scale.txt --device cpu --feed $D/run $D/x.safetensors");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "'adam/m/w' of " + path("run") + " is no input or parameter of the graph")) << ran.err;
  EXPECT_TRUE(has(ran.err, "--allow-surplus")) << ran.err;
  // A tensor that the graph has a place for must still have its type.
  save("w.safetensors", {{"w", floats({2}, {1, 2})}, {"more", floats({1}, {1})}});
  const Ran wrong = run("run $D/scale.txt --device cpu --random 1 --allow-surplus --feed $D/w.safetensors");
  EXPECT_EQ(wrong.code, 1);
  EXPECT_TRUE(has(wrong.err, "parameter 'w' is f32[3] in the graph, but f32[2]")) << wrong.err;
  EXPECT_FALSE(has(wrong.err, "'more'")) << wrong.err;
}

// An optimizer's state begins as in training, and indices are in range: otherwise the second run would be an error, or
// its loss NaN.
TEST_F(RunFeeds, MadeUpForTrainingAreSuchAsItCanGoOnWith) {
  const Optimizer optimizers[] = {Sgd{.momentum = 0.9}, Adam{}, AdamW{}, RmsProp{.centered = true}, Lion{}, Lamb{},
                                  Adafactor{}};
  for (std::size_t i = 0; i < std::size(optimizers); ++i) {
    Graph g;
    const Value table = g.parameter("table", bf16, {3, 4}), w = g.parameter("w", f32, {4, 12}),
                u = g.parameter("u", f32, {3, 12}), b = g.parameter("b", f32, {12});
    const Value ids = g.input("ids", i32, {4, 5}), labels = g.input("labels", i64, {5}),
                lengths = g.input("n", i32, {5});
    const Value words = cast(embedding(table, reshape(ids, {4, 5})), f32);
    const RecurrentParameters parameters[] = {{w, u, b}};
    const RecurrentResult made = lstm(words, parameters, {.lengths = lengths});
    const Value variance = g.parameter("norm/running_variance", f32, {3});
    const Value loss = cross_entropy(made.last_h[0] * rsqrt(variance + 1e-5), cast(labels, i32));
    MinimizeOptions options{.frozen = {"norm/*"}, .master_weights = true, .average_decay = 0.9};
    if (i % 2 == 0) options.loss_scale = LossScale{};
    minimize(loss, optimizers[i], options);
    g.fetch("loss", loss);
    write("train.txt", to_text(g));
    for (const char* seed : {"1", "2", "3"}) {
      const Ran ran = run("run $D/train.txt --device cpu --repeat 4 --check-finite --random " + std::string(seed));
      EXPECT_EQ(ran.code, 0) << i << ": " << ran.err;
    }
  }
}

TEST_F(RunFeeds, OfAFolderWithoutACheckpointSayWhatIsMissing) {
  fs::create_directory(path("empty"));
  const Ran ran = run("run $D/scale.txt --feed $D/empty");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, path("empty"))) << ran.err;
  EXPECT_TRUE(has(ran.err, "checkpoint")) << ran.err;
}

TEST_F(RunFeeds, OfADamagedCheckpointAreRefused) {
  const fs::path file = fs::path(path("run")) / "step-00000020" / "parameters.safetensors";
  std::string bytes = read_file(file);
  bytes[bytes.size() - 1] ^= 1;
  std::ofstream(file) << bytes;
  const Ran ran = run("run $D/scale.txt --allow-surplus --feed $D/x.safetensors $D/run/step-00000020");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "checksum")) << ran.err;
}

TEST_F(Cli, ListsAFewOfManyFeedsThatDoNotFit) {
  std::string text = "paoding graph 1\n";
  for (int i = 0; i < 3000; ++i)
    text += "a_rather_long_name_of_a_parameter" + std::to_string(i) + " = parameter f32[2]\n";
  write("many.txt", text + "fetch a_rather_long_name_of_a_parameter0\n");
  const Ran ran = run("run $D/many.txt");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, ".. and 2980 more")) << ran.err;
  EXPECT_TRUE(has(ran.err, "--random SEED")) << ran.err;
  EXPECT_LT(ran.err.size(), 4000u);
}

// ---- words ----

TEST_F(Cli, ASeedIsAWholeNumberOf64Bits) {
  for (const char* seed : {"18446744073709551616", "-1", "1.5", "2^64", "seven", "1e3", "''", "0x10"}) {
    const Ran ran = run("run $D/scale.txt --device cpu --random " + std::string(seed));
    EXPECT_EQ(ran.code, 2) << seed << ran.out;
    EXPECT_TRUE(has(ran.err, "is no whole number from 0 to 18446744073709551615")) << ran.err;
  }
  EXPECT_EQ(run("run $D/scale.txt --device cpu --random 18446744073709551615").code, 0);
}

TEST_F(Cli, OptionsOfAReportNeedAReport) {
  for (const char* option : {"--sort calls", "--detail phases", "--nest scope", "--width 20", "--share-groups"}) {
    Ran ran = run("run $D/scale.txt --random 1 --device cpu " + std::string(option));
    EXPECT_EQ(ran.code, 2) << option;
    EXPECT_TRUE(has(ran.err, std::string(option).substr(0, std::string(option).find(' ')))) << ran.err;
    EXPECT_TRUE(has(ran.err, "none is asked for: --profile does")) << ran.err;
    ran = run("run $D/scale.txt --random 1 --device cpu --profile " + std::string(option));
    EXPECT_EQ(ran.code, 0) << ran.err;
    ran = run("bench g2p --quick " + std::string(option));
    EXPECT_EQ(ran.code, 2) << option;
    EXPECT_TRUE(has(ran.err, "none is asked for: --report does")) << ran.err;
  }
  EXPECT_EQ(run("run $D/scale.txt --random 1 --device cpu --sort calls --profile-path $D/t.json").code, 0);
}

TEST_F(Cli, SizesOfBenchesAreInTheirRanges) {
  for (const char* arguments :
       {"g2p --batch 0", "g2p --hidden -1", "g2p --source 0", "seq2seq --target 0", "seq2seq --dropout 1",
        "g2p --dropout -0.5", "g2p --dropout nan", "g2p --batch 99999999999999999999", "lstm_steps --hidden 0",
        "conv_net --size 0", "kernels --case nothing"}) {
    const Ran ran = run("bench " + std::string(arguments));
    EXPECT_EQ(ran.code, 2) << arguments << "\n" << ran.err;
    EXPECT_TRUE(ran.out.empty()) << ran.out;
  }
}

TEST_F(Cli, AReportIsNarrowAndItsRowsDiffer) {
  const Ran ran = run("run examples/graphs/lstm.txt --random 7 --device cpu --profile --detail instances --width 24");
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_FALSE(has(ran.out, "GPU Time")) << ran.out;
  EXPECT_FALSE(has(ran.out, "+...")) << ran.out;
  std::map<std::string, int> rows;
  std::istringstream lines(ran.out.substr(ran.out.find("\nEvent ") + 1));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) ++rows[line.substr(0, 24)];
  EXPECT_GT(rows.size(), 8u);
  for (const auto& [name, count] : rows) EXPECT_EQ(count, 1) << name << "\n" << ran.out;
}

// ---- texts ----

// On a terminal of 70 columns a report's lines fit in, and its titles stand out.
TEST_F(Cli, AReportFitsTheTerminal) {
  const std::string words = " --random 1 --device cpu --repeat 3 --profile --rates --self";
  const winsize size{.ws_row = 50, .ws_col = 70, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string command = "exec " + program().string() + " run " + path("scale.txt") + words;
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  std::string seen;
  char piece[4096];
  for (ssize_t count = 0; (count = read(terminal, piece, sizeof piece)) > 0;) {
    seen.append(piece, static_cast<std::size_t>(count));
  }
  close(terminal);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(has(seen, "\x1b[1m------------------------- Event Summary")) << seen;
  const std::string rows = seen.substr(seen.find("Event  "));
  for (std::size_t at = 0; at < rows.find("Records: ");) {
    const std::size_t end = rows.find('\n', at);
    EXPECT_LE(end - at, 71u) << rows.substr(at, end - at);  // with the terminal's carriage return
    at = end + 1;
  }
  EXPECT_TRUE(has(seen, "without Min., Max.")) << seen;
  EXPECT_FALSE(has(run("run $D/scale.txt" + words).out, "without Min."));
}

TEST_F(Cli, GraphTextMayHaveTheLineEndsOfWindows) {
  std::string text = read_file(path("scale.txt")), windows = "\xef\xbb\xbf";
  for (const char c : text) windows += c == '\n' ? std::string("\r\n") : std::string(1, c);
  write("windows.txt", windows);
  EXPECT_EQ(run("dump $D/windows.txt").out, run("dump $D/scale.txt").out);
  write("wrong.txt", "paoding graph 1\r\nx = input f32[3]\r\ny = mull(x, x)\r\n");
  const Ran ran = run("run $D/wrong.txt");
  EXPECT_TRUE(has(ran.err, ":3:5: there is no op 'mull'")) << ran.err;
  EXPECT_FALSE(has(ran.err, "\r")) << ran.err;
}

TEST_F(Cli, ErrorsQuoteLittleOfWhatIsLong) {
  std::string zeros = "0";
  for (int i = 0; i < 1'000'000; ++i) zeros += ",0";
  write("axes.txt", "paoding graph 1\nx = input f32[2]\ny = sum(x) {axes=[" + zeros + "]}\nfetch y\n");
  const std::string name(60'000, 'n');
  write("name.txt", "paoding graph 1\n" + name + " = input f32[2]\ny = sum(" + name + ") {axes=[7]}\nfetch y\n");
  write("scope.txt", "paoding graph 1\nx = input f32[2]\ny = sum(x) {axes=[7]} @\"" + name + "\"\nfetch y\n");
  const std::string word(100'000, 'w');
  for (const std::string& arguments :
       {std::string("run $D/axes.txt"), std::string("run $D/name.txt"), std::string("run $D/scope.txt"), word,
        "run --" + word, "run $D/scale.txt --repeat " + word, "run $D/scale.txt --no-pass " + word,
        "run $D/scale.txt --device " + word, "run $D/scale.txt --random " + word, "run " + word, "ops " + word,
        "dump $D/scale.txt --after " + word, "bench " + word, "run $D/scale.txt --sort " + word + " --profile"}) {
    const Ran ran = run(arguments);
    EXPECT_NE(ran.code, 0);
    EXPECT_FALSE(ran.err.empty());
    EXPECT_LT(ran.err.size(), 10'000u) << arguments.substr(0, 60);
  }
}

// ---- non-finite values ----

TEST_F(Cli, CheckFiniteFollowsBackToTheFirstValueThatIsNot) {
  Ran ran = run("run examples/graphs/log_of_negative.txt --random 1 --device cpu --check-finite");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err,
                  "check-finite: the first non-finite value: log in score, element [0] = NaN (8 NaN and "
                  "0 infinite of the 8 elements of f32[8])"))
      << ran.err;
  EXPECT_TRUE(has(ran.err, "followed back from: fetch 'l'")) << ran.err;
  ran = run("run $D/scale.txt --random 1 --device cpu --check-finite");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, "check-finite: the results, and the parameters after the run, are finite")) << ran.out;
  EXPECT_TRUE(has(run("run $D/scale.txt --random 1 --device cpu --check-finite --json").out, "\"check_finite\":true"));
}

TEST_F(Cli, CheckFiniteNamesWhatWasFed) {
  save("x.safetensors", {{"x", floats({2, 3}, {1, 2, 3, 4, std::numeric_limits<double>::infinity(), 6})}});
  const Ran ran = run("run $D/scale.txt --random 1 --device cpu --check-finite --feed $D/x.safetensors");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "input 'x', as it was fed, element [1, 1] = inf")) << ran.err;
}

// A mask of infinities that no result has is nothing to fail for: the search is that of find_nonfinite().
TEST_F(Cli, CheckFiniteLeavesAloneWhatReachesNoResult) {
  write("mask.txt",
        "paoding graph 1\nx = input f32[2,3]\nmask = input f32[3]\ns = add(x, mask)\ny = softmax(s)\nfetch y\n");
  save("mask.safetensors", {{"mask", floats({3}, {0, -std::numeric_limits<double>::infinity(), 0})}});
  const Ran ran = run("run $D/mask.txt --random 1 --device cpu --check-finite --feed $D/mask.safetensors");
  EXPECT_EQ(ran.code, 0) << ran.err;
}

TEST_F(Cli, CheckFiniteLooksAtParametersAfterTheRun) {
  write("step.txt",
        "paoding graph 1\nx = input f32[2]\nw = parameter f32[2]\nn = div(w, x) @\"update\"\nassign w = n\n"
        "y = sum(x)\nfetch y\n");
  save("f.safetensors", {{"x", floats({2}, {1, 0})}, {"w", floats({2}, {1, 2})}});
  const Ran ran = run("run $D/step.txt --device cpu --check-finite --feed $D/f.safetensors");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "div in update, element [1] = inf")) << ran.err;
  EXPECT_TRUE(has(ran.err, "parameter 'w' after the run")) << ran.err;
}

TEST_F(Cli, CheckFiniteCountsTimeStepsInsideAScan) {
  // h doubles its exponent at every step: 2, 4, 16 ... 2^64, then 2^128 is infinite in f32, at time step 6.
  write("grow.txt",
        "paoding graph 1\n"
        "xs = input f32[10,4]\nh0 = input f32[4]\n"
        "h, ys = scan(h0, xs) {carries=1, sequences=1, length=10} [\n"
        "  h = input f32[4]\n  x = input f32[4]\n"
        "  n = mul(h, h)\n  z = mul(x, n)\n"
        "  fetch n = n\n  fetch z = z\n]\n"
        "fetch ys\n");
  save("f.safetensors", {{"h0", floats({4}, {2, 2, 2, 2})}, {"xs", floats({10, 4}, std::vector<double>(40, 1))}});
  const Ran ran = run("run $D/grow.txt --device cpu --check-finite --feed $D/f.safetensors");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "time step 6 of 10")) << ran.err;
}

}  // namespace
}  // namespace paoding::cli_run
