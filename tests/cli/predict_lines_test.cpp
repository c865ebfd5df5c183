// SPDX-License-Identifier: Apache-2.0
// Lines that no model was trained on, of g2p, translate and gpt, by `paoding predict` and `paoding serve`: one line out
// for every line in, in order, and nothing is made up of nothing.
#include "tests/cli/serving_run.h"
#include "tests/support/small_corpora.h"

namespace paoding {
namespace {

const std::vector<std::string> kLines{"bada",
                                      "",
                                      "\xf0\x9f\x99\x82",
                                      "bada\xf0\x9f\x99\x82",
                                      "\u202ebada",
                                      "e\u0301te\u0301",
                                      "BADA",
                                      "ba\tda",
                                      " ",
                                      "  bada  ",
                                      std::string(5000, 'a'),
                                      std::string("\0", 1),
                                      std::string("ba\0da", 5),
                                      "\x1b[31mred",
                                      "\ufeffbada",
                                      "\u2047",
                                      "<unk>",
                                      "<s>",
                                      "\u2581bada",
                                      "library and files",
                                      "",
                                      "\u65e5\u672c\u8a9e",
                                      "\u2028",
                                      "bada"};

class PredictLines : public ServingRun {
 protected:
  void odd_lines(const std::string& model, const std::string& training) {
    Ran ran = shell("paoding train " + model + " --layers=1 --no-test --show 0 --out a " + training);
    ASSERT_EQ(ran.code, 0) << ran.err;
    ASSERT_EQ(shell("paoding export a a.pd").code, 0);
    std::string text;
    for (const std::string& line : kLines) text += line + "\n";
    folder_.write("lines.txt", text);
    ran = shell("paoding predict " + model + " a lines.txt");
    EXPECT_EQ(ran.code, 0) << ran.err;
    const auto made = lines_of(ran.out);
    ASSERT_EQ(made.size(), kLines.size()) << ran.out;
    for (std::size_t i = 0; i < kLines.size(); ++i) {
      EXPECT_TRUE(made[i].empty() || !kLines[i].empty()) << i << made[i];
    }
    EXPECT_NE(made[0], "") << "it says something of what is there";
    EXPECT_EQ(made[0], made.back()) << "of the same line the same";
    EXPECT_TRUE(has(ran.err, "lines.txt:3: never seen in training: '\xf0\x9f\x99\x82'")) << ran.err;
    EXPECT_TRUE(has(ran.err, "lines.txt:22: never seen in training: '")) << ran.err;
    EXPECT_FALSE(has(ran.err, "lines.txt:2:") || has(ran.err, "lines.txt:21:")) << ran.err;
    for (const std::string& said : {ran.out, ran.err}) {
      for (const char c : said) {
        ASSERT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20) << "a control character: " << said;
      }
    }
    EXPECT_EQ(shell("paoding predict " + model + " a --each-line < lines.txt").out, ran.out);
    EXPECT_EQ(shell("printf '\\n' | paoding predict " + model + " a").out, "\n");
    EXPECT_EQ(shell("printf '\\n\\nbada\\n\\n' | paoding predict a.pd").out, "\n\n" + made[0] + "\n\n");
    EXPECT_EQ(shell("printf '\\n' | paoding predict " + model + " a --beam 3 --best 2").out, "\t0.0000\t\n");
    ServingRun::start("a.pd", {});
    EXPECT_EQ(body_of(ask("POST", "/predict", "\n")), "\n");
    EXPECT_EQ(body_of(ask("POST", "/predict", text)), ran.out);
    EXPECT_TRUE(has(ask("POST", "/predict", R"({"inputs": ["", "bada", ""]})", "application/json"),
                    R"({"predictions":[[{"text":"","log_probability":0}],[{"text":")"));
    EXPECT_EQ(end(), 0);
  }
};

TEST_F(PredictLines, OfG2pHaveOneLineEach) {
  odd_lines("g2p", "--hidden=24 --batch-size=8 --epochs=10 --learning-rate 0.02 --dropout 0");
}

TEST_F(PredictLines, OfTranslateHaveOneLineEach) {
  odd_lines("translate",
            "--hidden=16 --batch-size=16 --epochs=1 --vocabulary 100 --data " + small_corpora::all().path().string());
}

TEST_F(PredictLines, OfGptHaveOneLineEach) {
  odd_lines("gpt",
            "--hidden=16 --heads=2 --context=32 --batch-size=16 --steps=200 --learning-rate 0.01 --dropout 0 "
            "--continue 8 --data " +
                small_corpora::all().path().string());
}

}  // namespace
}  // namespace paoding
