// SPDX-License-Identifier: Apache-2.0
// paoding verify: predictions of findings beside measurements of programs that run for real.
#include "cli_run.h"

namespace paoding::cli_run {
namespace {

class VerifyCli : public Cli {
 protected:
  // The JSON of a report with one finding.
  void write_report(const std::string& name, const std::string& verify, double low, double high,
                    const std::string& recorded_by = "") const {
    write(name, "{" + (recorded_by.empty() ? "" : "\"recorded_by\":\"" + recorded_by + "\",") +
                    "\"overhead\":{},\"findings\":{\"abstained\":\"\",\"list\":[{\"number\":1,\"kind\":\"late_data\","
                    "\"title\":\"The step waits for its data\",\"predicted_share\":" +
                    std::to_string((low + high) / 2) + ",\"share\":[" + std::to_string(low) + "," +
                    std::to_string(high) + "],\"op\":\"\",\"scope\":\"\",\"change\":\"read ahead\",\"verify\":\"" +
                    verify + "\"}]}}");
  }
  // Trains with a reader that takes so many ms a batch.
  static std::string slow_reader(int milliseconds) {
    const fs::path example = program().parent_path() / "examples" / "13_slow_reader";
    EXPECT_TRUE(fs::exists(example)) << example << " is not there: build all targets";
    return example.string() + " " + std::to_string(milliseconds);
  }
  // Threads that wait for each other on a busy machine would be slower than the reader.
  Ran run_alone(const std::string& arguments) const { return run(arguments, "OMP_NUM_THREADS=1"); }
  static constexpr int kLate = 20;
};

TEST_F(VerifyCli, MeasuresTheGainOfAChangedCommandAndHoldsItAgainstThePrediction) {
  const std::string commands = " 1 --runs 5 --warm-up 0 --json -- " + slow_reader(kLate) + " -- " + slow_reader(0);
  write_report("right.json", "", 0.5, 0.999);
  const Ran right = run_alone("verify $D/right.json" + commands);
  EXPECT_EQ(right.code, 0) << right.err << right.out;
  simdjson::dom::parser parser;
  simdjson::dom::element json;
  ASSERT_EQ(parser.parse(simdjson::padded_string(right.out)).get(json), simdjson::SUCCESS) << right.out;
  const auto finding = json["finding"];
  EXPECT_EQ(std::string_view(finding["outcome"]), "as predicted") << right.out;
  EXPECT_NEAR(double(finding["measured"]["gain"]), 1 - double(json["diff"]["rows"].at(0)["ratio"]), 1e-9);
  EXPECT_GT(double(finding["measured"]["gain"]), 0.5);  // some 20 ms of 21
  EXPECT_LE(double(finding["measured"]["low"]), double(finding["measured"]["gain"]));
  EXPECT_NEAR(double(finding["predicted"]["gain"]), 0.7495, 1e-9);
  // This change makes it slower.
  const Ran wrong =
      run_alone("verify $D/right.json 1 --runs 5 --warm-up 0 -- " + slow_reader(0) + " -- " + slow_reader(kLate));
  EXPECT_EQ(wrong.code, 1) << wrong.err;
  EXPECT_TRUE(has(wrong.out, "predicted 75.0 [50.0, 99.9]%, measured -")) << wrong.out;
  EXPECT_TRUE(has(wrong.out, "%: less than predicted\n")) << wrong.out;
}

TEST_F(VerifyCli, FlipsTheSwitchThatTheFindingNames) {
  write_report("pass.json", "pass fuse_groups", -0.9, 0.9);
  const std::string command = "run $D/scale.txt --random 1 --device cpu --repeat 9 --no-pass fuse_groups";
  const Ran ran = run("verify $D/pass.json 1 --runs 2 --warm-up 0 --json -- " + command);
  simdjson::dom::parser parser;
  simdjson::dom::element json;
  ASSERT_EQ(parser.parse(simdjson::padded_string(ran.out)).get(json), simdjson::SUCCESS) << ran.err << ran.out;
  EXPECT_EQ(std::string_view(json["switched"]), "PAODING_COMPILE=pass=fuse_groups");
  bool is_fused = false;
  for (const simdjson::dom::element part : json["diff"]["parts"]) is_fused |= std::string_view(part["how"]) == "fused";
  EXPECT_TRUE(is_fused) << ran.out;  // the ops of A are a group in B
}

// A reader that works ahead, in a program that does not ask for it; the words that A has stay.
TEST_F(VerifyCli, FlipsTheSwitchOfAReaderThatDoesNotWorkAhead) {
  write_report("reader.json", "reader-ahead", 0.5, 0.999);
  const Ran ran = run("verify $D/reader.json 1 --runs 5 --warm-up 0 --json -- " + slow_reader(kLate),
                      "OMP_NUM_THREADS=1 PAODING_RUN=pinned_feeds=1");
  EXPECT_TRUE(ran.code == 0 || ran.code == 1) << ran.err << ran.out;  // less, where a step takes as long as the reader
  simdjson::dom::parser parser;
  simdjson::dom::element json;
  ASSERT_EQ(parser.parse(simdjson::padded_string(ran.out)).get(json), simdjson::SUCCESS) << ran.err << ran.out;
  EXPECT_EQ(std::string_view(json["switched"]), "PAODING_RUN=read_ahead=8");
  // The gain is the few microseconds of a step beside 20 ms of reading: the clock of a busy machine may not see it.
  // That the step's thread no longer reads is seen.
  bool reads_elsewhere = false;
  for (const simdjson::dom::element part : json["diff"]["parts"]) {
    reads_elsewhere |=
        std::string_view(part["name"]) == "(read a batch)" && std::string_view(part["how"]) == "vanished";
  }
  EXPECT_TRUE(reads_elsewhere) << ran.out;
}

TEST_F(VerifyCli, KnowsTheSwitchesOfFeedsAndFetches) {
  for (const auto& [verify, word] :
       {std::pair("fetch-later", "PAODING_RUN=fetch_later=1"), std::pair("pinned-feeds", "PAODING_RUN=pinned_feeds=1"),
        std::pair("double-buffered-feeds", "PAODING_RUN=double_buffered_feeds=1")}) {
    write_report("feeds.json", verify, -0.9, 0.9);
    const Ran ran = run("verify $D/feeds.json 1 --runs 2 --warm-up 0 --json -- run $D/scale.txt --random 1 --repeat 9");
    EXPECT_TRUE(has(ran.out, std::string("\"switched\":\"") + word)) << ran.err << ran.out;
  }
}

// Recordings of a training whose reader is late, and of one whose reader is not. How late it is follows the machine.
TEST_F(VerifyCli, JudgesTheFindingOfARecordingByALaterOne) {
  for (const char* folder : {"late", "early"}) {
    fs::create_directory(path(folder));
    const std::string command = slow_reader(std::string(folder) == "late" ? kLate : 0);
    for (const char* file : {"/1.paoding", "/2.paoding", "/3.paoding", "/4.paoding", "/5.paoding"}) {
      const Ran ran = run_alone("profile --path $D/" + (folder + std::string(file)) + " " + command);
      ASSERT_EQ(ran.code, 0) << ran.err;
    }
  }
  const Ran made = run("diff $D/late $D/early --finding 1 --json");
  EXPECT_EQ(made.code, 0) << made.err << made.out;
  simdjson::dom::parser parser;
  simdjson::dom::element json;
  ASSERT_EQ(parser.parse(simdjson::padded_string(made.out)).get(json), simdjson::SUCCESS) << made.out;
  EXPECT_EQ(std::string_view(json["finding"]["kind"]), "late_data");
  EXPECT_EQ(std::string_view(json["finding"]["evidence"]), "gone");
  EXPECT_EQ(std::string_view(json["finding"]["conclusion"]), "confirmed") << made.out;
  EXPECT_GT(double(json["finding"]["measured"]["gain"]), 0.5);
  EXPECT_EQ(std::string_view(json["verdict"]), "faster");  // the diff is there too

  const Ran not_made = run("diff $D/late $D/late/2.paoding --finding 1");
  EXPECT_EQ(not_made.code, 1) << not_made.err;
  EXPECT_TRUE(has(not_made.out, "  Evidence in B: still there: finding 1: ")) << not_made.out;
  EXPECT_TRUE(has(not_made.out, "\n  not confirmed\n")) << not_made.out;
  const Ran markdown = run("diff $D/late $D/early --finding 1 --markdown");
  EXPECT_TRUE(has(markdown.out, "\n- Evidence in B: gone")) << markdown.out;
  EXPECT_TRUE(has(markdown.out, "\n- **confirmed**\n")) << markdown.out;

  const Ran missing = run("diff $D/early $D/late --finding 9");
  EXPECT_EQ(missing.code, 2);
  EXPECT_TRUE(has(missing.err, "finding")) << missing.err;
  EXPECT_EQ(run("diff --finding 1 -- true -- true").code, 2);
  // And from the recording itself by running both.
  const Ran verified =
      run_alone("verify $D/late/1.paoding 1 --runs 5 --warm-up 0 -- " + slow_reader(kLate) + " -- " + slow_reader(0));
  EXPECT_EQ(verified.code, 0) << verified.err << verified.out;
  EXPECT_TRUE(has(verified.out, "Gain: predicted ")) << verified.out;
  EXPECT_TRUE(has(verified.out, "%: as predicted\n") || has(verified.out, "%: more than predicted\n")) << verified.out;
}

TEST_F(VerifyCli, SaysWhatToDoWhereItCannotRunTheProgram) {
  write_report("torch.json", "", 0.1, 0.2, "PyTorch (Kineto)");
  const Ran ran = run("verify $D/torch.json 1");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, "read ahead")) << ran.out;
  EXPECT_TRUE(has(ran.out, "paoding diff " + path("torch.json") + " AFTER --finding 1")) << ran.out;
  EXPECT_TRUE(is_json(run("verify $D/torch.json 1 --json").out));
}

TEST_F(VerifyCli, RefusesWhatItCannotVerify) {
  write_report("own.json", "", 0.1, 0.2);
  const Ran without = run("verify $D/own.json 1");
  EXPECT_EQ(without.code, 2);
  EXPECT_TRUE(has(without.err, "the command is missing")) << without.err;
  const Ran no_switch = run("verify $D/own.json 1 -- run $D/scale.txt --random 1 --repeat 9");
  EXPECT_EQ(no_switch.code, 2);
  EXPECT_TRUE(has(no_switch.err, "has no switch")) << no_switch.err;
  EXPECT_TRUE(has(run("verify $D/own.json 7").err, "no finding 7, there are 1 to 1"));
  write_report("pass.json", "pass fuse_groups", 0.1, 0.2);
  const Ran no_steps = run("verify $D/pass.json 1 --runs 2 --warm-up 0 -- true");
  EXPECT_EQ(no_steps.code, 2);
  EXPECT_TRUE(has(no_steps.err, "recorded no steps")) << no_steps.err;
  write("empty.json", R"({"overhead":{},"findings":{"abstained":"losses","list":[]}})");
  EXPECT_TRUE(has(run("verify $D/empty.json 1").err, "nothing is said about gains: losses"));
  write("none.json", R"({"overhead":{}})");
  EXPECT_TRUE(has(run("verify $D/none.json 1").err, "without findings"));
}

}  // namespace
}  // namespace paoding::cli_run
