// SPDX-License-Identifier: Apache-2.0
// Names and texts of files that would give a terminal orders, or look like a line of the program's own, were they
// printed as they are.
#include "paoding/checkpoint.h"
#include "paoding/io.h"
#include "tests/cli/training_run.h"

namespace paoding {
namespace {

const std::string kOrder = "\x1b]0;owned\x07\x1b[2J\rgone\u009b31m\x7f\nforged\tline";
// The same in the quotes of graph text.
constexpr const char* kQuotedOrder = R"("\x1b]0;owned\x07\x1b[2J\x0dgone\xc2\x9b31m\x7f\nforged\tline)";

class ForeignText : public TrainingRun {
 protected:
  Ran runs(const std::string& command) const {
    const Ran ran = shell(command);
    for (const std::string& text : {ran.out, ran.err}) {
      for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        const bool is_second = byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
        EXPECT_FALSE((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f || is_second)
            << command << ": byte " << i << " is " << static_cast<int>(byte) << " of\n"
            << text;
      }
      EXPECT_FALSE(has("\n" + text, "\nforged") || has(text, "forged\t")) << command << " printed\n" << text;
    }
    return ran;
  }
};

TEST_F(ForeignText, OfGraphsReachesNobodyRaw) {
  const std::string name = kQuotedOrder;
  folder_.write("graph.txt", "paoding graph 1\n" + name + "\" = input f32[2]\ny = sin(" + name + "\") @" + name +
                                 "scope\"\nz = print(y) {message=" + name + "said\"}\nfetch " + name + "f\" = z\n");
  folder_.write("shapes.txt", "paoding graph 1\n" + name + "\" = input f32[2]\nw = input f32[3]\ny = add(" + name +
                                  "\", w) @" + name + "scope\"\nfetch y\n");
  folder_.write("log.txt", "paoding graph 1\n" + name + "\" = input f32[200]\ny = log(" + name + "\") @" + name +
                               "scope\" ~" + name + "origin\"\nfetch " + name + "f\" = y\n");
  const Ran ran = runs("paoding run graph.txt --random 1");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, "\\x1b]0;owned\\x07")) << ran.out;
  for (const char* more :
       {"run graph.txt --random 1 --json", "run graph.txt --random 1 --profile", "run graph.txt",
        "run graph.txt --random 1 --explain", "dump graph.txt --passes --plan --times",
        "run graph.txt --feed tensors.safetensors", "run graph.txt --feed tensors.safetensors --random 1",
        "dump graph.txt --kernels", "run graph.txt --random 1 --profile --detail instances",
        "run graph.txt --random 1 --profile --nest scope", "run shapes.txt --random 1",
        "run log.txt --random 1 --check-finite"}) {
    save_safetensors(folder_ / "tensors.safetensors", {{kOrder, Tensor::from(f32, {1}, std::vector<double>{1})}});
    runs(std::string("paoding ") + more);
  }
  // JSON is read as the name that it was.
  const Ran json = runs("paoding run graph.txt --random 1 --json");
  simdjson::dom::parser parser;
  const simdjson::padded_string padded(json.out);
  const simdjson::dom::element read = parser.parse(padded);
  EXPECT_EQ(std::string(std::string_view(read["fetches"].at(0)["name"])), kOrder + "f");
}

TEST_F(ForeignText, OfPathsAndWordsReachesNobodyRaw) {
  const std::string order = "$'\\x1b[2J\\x9b\\r'";
  for (const char* command : {"run ", "dump --plan ", "predict g2p ", "evaluate g2p ", "ops ", "train g2p --config ",
                              "train g2p --data ", "bench ", "run x.txt --device ", ""}) {
    const Ran ran = runs("paoding " + (command + order));
    EXPECT_NE(ran.code, 0) << command;
    EXPECT_TRUE(has(ran.err, "\\x1b[2J")) << command << ran.err;
  }
  folder_.write("bad.txt", "paoding graph 1\n" + kOrder + "\n");
  runs("paoding run bad.txt");
  folder_.write("config.txt", "hidden = 3\n" + kOrder + " = 4\n");
  EXPECT_TRUE(has(runs("paoding train g2p --config config.txt").err, "config.txt:2: "));
}

TEST_F(ForeignText, OfCheckpointsAndDataReachesNobodyRaw) {
  trained("a", "--no-test --show 0");
  const Checkpoint good = load_checkpoint(folder_ / "a", true);
  const auto with = [&](const auto& change, const std::vector<const char*>& commands) {
    Checkpoint bad = good;
    change(&bad);
    fs::remove_all(folder_ / "b");
    CheckpointFolder(folder_ / "b").save(bad);
    for (const char* command : commands) runs(std::string("printf 'bada\\nke\\x1b[2Jlo\\r\\n' | paoding ") + command);
  };
  const std::vector<const char*> all = {"train g2p --out b --resume",      "predict g2p b",
                                        "predict g2p b --beam 3 --best 3", "predict g2p b --json",
                                        "evaluate g2p b --show 3",         "evaluate lm b"};
  with([](Checkpoint* c) { c->manifest.model = kOrder; }, all);
  with([](Checkpoint* c) { c->manifest.score_name = kOrder; }, all);
  with([](Checkpoint* c) { c->manifest.options["hidden"] = kOrder; }, all);
  with([](Checkpoint* c) { c->manifest.notes["threads"] = c->manifest.notes["device"] = kOrder; }, all);
  with([](Checkpoint* c) { c->tensors[kOrder] = c->tensors.begin()->second; }, all);
  with(
      [](Checkpoint* c) {
        std::string& phonemes = c->files.at("phonemes.txt");
        for (std::size_t at = 0; (at = phonemes.find("\nA\n", at)) != std::string::npos;) {
          phonemes.replace(at, 3, "\nA\x1b[2J\u009b\tforged\t\n");
        }
      },
      all);
  folder_.write("data/g2p/cmudict-en-us.dict", "word W ER\x1b[2J D\n");
  runs("paoding train g2p --out c");
}

}  // namespace
}  // namespace paoding
