// SPDX-License-Identifier: Apache-2.0
// `paoding predict` and `paoding evaluate`: forms of the input, of the output, and their order.
#include <cmath>
#include <set>

#include "tests/cli/training_run.h"

namespace paoding {
namespace {

class Predict : public TrainingRun {
 protected:
  void SetUp() override {
    TrainingRun::SetUp();
    // Learns something, so that words are told apart.
    train_out_ = shell(
                     "paoding train g2p --hidden=24 --layers=1 --batch-size=8 --epochs=30 --learning-rate 0.02 "
                     "--dropout 0 --show 0 --out a --json")
                     .out;
  }
  std::string train_out_;
};

TEST_F(Predict, EvaluateGivesTheScoresThatTrainingPrinted) {
  std::vector<std::string> scores;
  for (const std::string& line : lines_of(train_out_)) {
    if (has(line, "\"scores\"")) scores.push_back(line);
  }
  ASSERT_EQ(scores.size(), 31u) << train_out_;
  const auto shares = [](const std::string& json) {
    const std::size_t from = json.find("\"phoneme error rate\""), rate = json.find("\"word error rate\"");
    return json.substr(from, json.find_first_of(",}", rate) - from);
  };
  Ran ran = shell("paoding evaluate g2p a --latest --part validation --json");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(shares(ran.out), shares(scores[29]));
  ran = shell("paoding evaluate g2p a --json");  // the best, as the test part was scored with
  EXPECT_EQ(shares(ran.out), shares(scores[30]));
  ran = shell("paoding evaluate g2p a --limit 2 --show 3");
  EXPECT_TRUE(has(ran.out, "test: phoneme error rate ")) << ran.out;
  EXPECT_TRUE(has(ran.out, "in the dictionary")) << ran.out;
}

TEST_F(Predict, ManyLinesAreAnsweredAsOneByOneAndInOrder) {
  std::string words;
  for (const std::string& line : lines_of(dictionary(150))) words += line.substr(0, line.find(' ')) + "\n";
  words += "BADA\nbo\n\nxyz\n";
  folder_.write("words.txt", words);
  const Ran together = shell("paoding predict g2p a words.txt");
  EXPECT_EQ(together.code, 0) << together.err;
  const Ran each = shell("paoding predict g2p a --each-line < words.txt");
  EXPECT_EQ(each.out, together.out);
  const Ran piped = shell("cat words.txt | paoding predict g2p a");
  EXPECT_EQ(piped.out, together.out);
  const auto answers = lines_of(together.out), asked = lines_of(words);
  ASSERT_EQ(answers.size(), asked.size());
  for (const std::size_t i : {0u, 7u, 77u, 149u}) {
    EXPECT_EQ(shell("echo " + asked[i] + " | paoding predict g2p a").out, answers[i] + "\n") << asked[i];
  }
  EXPECT_GT(std::set<std::string>(answers.begin(), answers.end()).size(), 20u) << "it learned nothing";
  EXPECT_EQ(shell("echo bada | paoding predict g2p a").out, shell("echo BADA | paoding predict g2p a").out);
  EXPECT_EQ(answers[asked.size() - 2], "") << "an empty line has an empty answer";
}

TEST_F(Predict, BeamsGiveTheBestFirstWithProbabilities) {
  const Ran text = shell("printf 'bada\\nkelo\\n' | paoding predict g2p a --beam 5 --best 3");
  const auto lines = lines_of(text.out);
  ASSERT_EQ(lines.size(), 6u) << text.out;
  for (std::size_t i = 0; i < 6; ++i) EXPECT_TRUE(lines[i].starts_with(i < 3 ? "bada\t-" : "kelo\t-")) << lines[i];
  const Ran ran = shell("printf 'bada\\nke\"lo\\n' | paoding predict g2p a --beam 5 --best 3 --json");
  int count = 0;
  for (const std::string& line : lines_of(ran.out)) {
    simdjson::dom::parser parser;
    const simdjson::padded_string text_of_line(line);
    simdjson::dom::element json;
    ASSERT_EQ(parser.parse(text_of_line).get(json), simdjson::SUCCESS) << line;
    EXPECT_EQ(std::string(std::string_view(json["input"])), count == 0 ? "bada" : "ke\"lo");
    double before = 0;
    const simdjson::dom::array all = json["predictions"];
    EXPECT_EQ(all.size(), 3u);
    for (const simdjson::dom::element prediction : all) {
      EXPECT_LE(double(prediction["log_probability"]), before);
      before = double(prediction["log_probability"]);
    }
    ++count;
  }
  EXPECT_EQ(count, 2);
}

TEST_F(Predict, WhatTheModelCannotUseIsRemarkedAndWrongBytesAreNamed) {
  const std::string longest(60, 'b');
  Ran ran = shell("printf 'b\xc3\xa9x\\n" + longest + "\\n' | paoding predict g2p a");
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(lines_of(ran.out).size(), 2u) << ran.out;
  EXPECT_TRUE(has(ran.err, "<stdin>:1: never seen in training: '\xc3\xa9', 'x'")) << ran.err;
  EXPECT_TRUE(has(ran.err, "<stdin>:2: 60 letters, only the first 36 count")) << ran.err;
  folder_.write("bad.txt", "bada\nkelo\nb\xff\nbo\n");
  ran = shell("paoding predict g2p a bad.txt");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "bad.txt:3: the line is not UTF-8")) << ran.err;
  EXPECT_EQ(lines_of(ran.out).size(), 2u) << "what is in front of it is answered";
  ran = shell("paoding predict g2p a none.txt");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "none.txt: No such file")) << ran.err;
  EXPECT_TRUE(has(shell("paoding predict g2p a data").err, "data: Is a directory"));
  EXPECT_EQ(shell("printf 'bada\\r\\nkelo' | paoding predict g2p a").out,
            shell("printf 'bada\\nkelo\\n' | paoding predict g2p a").out);
  EXPECT_TRUE(shell("paoding predict g2p a").out.empty()) << "nothing in, nothing out";
}

TEST_F(Predict, ClosedStreamsAreNoRuin) {
  Ran ran = shell("paoding predict g2p a <&-");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "<stdin>: Bad file descriptor")) << ran.err;
  // Endless input ends with its reader.
  ran = shell("yes bada | timeout 120 " + program_.string() + " predict g2p a | head -1; echo ${PIPESTATUS[1]}");
  EXPECT_EQ(lines_of(ran.out).size(), 2u) << ran.out;
  EXPECT_EQ(lines_of(ran.out)[1], "0");
  EXPECT_EQ(shell("paoding predict g2p none 2>&-").code, 1);
  if (fs::exists("/dev/full")) {
    EXPECT_EQ(shell("paoding predict g2p none 2>/dev/full").code, 1);
  }
  // Nothing that is printed ends up in a file of the run.
  ran = shell(train("--out b --no-test --show 0") + " >&- 2>&-");
  EXPECT_EQ(ran.code, 1);
  trained("c");
  EXPECT_EQ(last("b"), last("c"));
}

TEST_F(Predict, CtrlCEndsWaitingForInput) {
  const Ran ran = shell("sleep 3 | timeout --preserve-status -s INT 0.5 " + program_.string() + " predict g2p a");
  EXPECT_EQ(ran.code, 130) << ran.err;
}

}  // namespace
}  // namespace paoding
