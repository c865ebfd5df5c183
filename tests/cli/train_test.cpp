// SPDX-License-Identifier: Apache-2.0
// `paoding train`: its output, its files, and its messages for wrong options and wrong data.
#include <pty.h>
#include <sys/ioctl.h>

#include <algorithm>

#include "paoding/checkpoint.h"
#include "tests/cli/training_run.h"

namespace paoding {
namespace {

class Train : public TrainingRun {};

TEST_F(Train, PrintsPlainLinesAndWritesCheckpointsAndTheCurve) {
  const Ran ran = trained("a", "--show 2");
  EXPECT_TRUE(ran.err.empty()) << ran.err;
  for (const char* part : {"to train on", "checkpoints in a", "epoch  1 of 2, step", "epoch  2 of 2, step",
                           "validation: phoneme error rate ", "test: phoneme error rate ", "in the dictionary",
                           "loss curve a/curve.svg"}) {
    EXPECT_TRUE(has(ran.out, part)) << part << "\n" << ran.out;
  }
  EXPECT_FALSE(has(ran.out, "\r")) << "a progress line outside of a terminal";
  EXPECT_FALSE(has(ran.out, "\x1b"));
  EXPECT_TRUE(slurp(folder_ / "a/curve.svg").starts_with("<svg")) << slurp(folder_ / "a/curve.svg").substr(0, 80);
  const Manifest manifest = load_manifest(folder_ / "a", true);
  EXPECT_EQ(manifest.model, "g2p");
  EXPECT_EQ(manifest.epoch, 2);
  EXPECT_EQ(manifest.batch, 0);
  EXPECT_EQ(manifest.scores.size(), 2u);
  EXPECT_EQ(manifest.options.at("hidden"), "16");
}

// Both change the time at which things are done, and no result.
TEST_F(Train, HasTheSameParametersHoweverFarItReadsAheadAndWhenItReadsItsLoss) {
  trained("ahead");
  trained("each", "--read-ahead 0 --no-test --show 0");
  ::setenv("PAODING_RUN", "read_ahead=0;fetch_later=0", 1);
  trained("waits");
  ::setenv("PAODING_RUN", "read_ahead=none", 1);
  const Ran wrong = shell(train("--out wrong"));
  ::unsetenv("PAODING_RUN");
  const auto parameters = [&](const std::string& out) { return last(out).at("parameters.safetensors"); };
  ASSERT_FALSE(parameters("ahead").empty());
  EXPECT_EQ(parameters("each"), parameters("ahead"));
  EXPECT_EQ(parameters("waits"), parameters("ahead"));
  EXPECT_NE(wrong.code, 0);
  EXPECT_TRUE(has(wrong.err, "PAODING_RUN: read_ahead is 'none'")) << wrong.err;
}

TEST_F(Train, RenewsALineOnATerminalAsWideAsThat) {
  winsize size = {};
  size.ws_col = 50;
  size.ws_row = 20;
  int terminal = -1;
  const std::string program = program_.string(), folder = folder_.path().string();
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    if (chdir(folder.c_str()) != 0) _exit(99);
    execl(program.c_str(), "paoding", "train", "g2p", "--hidden=16", "--layers=1", "--batch-size=1", "--epochs=40",
          "--out", "a", "--no-test", "--show=0", nullptr);
    _exit(99);
  }
  ASSERT_GT(child, 0);
  std::string out;
  char piece[4096];
  for (ssize_t count = 0; (count = read(terminal, piece, sizeof piece)) > 0;) {
    out.append(piece, static_cast<std::size_t>(count));
  }
  close(terminal);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << out;
  const std::string begin = "\r\x1b[Kepoch ";
  const std::size_t at = out.find(begin);
  ASSERT_NE(at, std::string::npos) << out.substr(0, 3000);
  const std::string line = out.substr(at + 4, out.find('\r', at + 4) - at - 4);
  EXPECT_LE(line.size(), 49u) << line;
  EXPECT_TRUE(has(line, "] ")) << line;
  EXPECT_TRUE(has(out, "validation: phoneme error rate"));
}

TEST_F(Train, JsonIsALineForEachEvent) {
  const Ran ran = trained("a", "--json --profile 3");
  std::map<std::string, int> events;
  for (const std::string& line : lines_of(ran.out)) {
    simdjson::dom::parser parser;
    const simdjson::padded_string text(line);
    simdjson::dom::element json;
    ASSERT_EQ(parser.parse(text).get(json), simdjson::SUCCESS) << line;
    const std::string event{std::string_view(json["event"])};
    ++events[event];
    if (event == "step") {
      EXPECT_GT(double(json["loss"]), 0);
      EXPECT_GT(std::int64_t(json["step"]), 0);
    } else if (event == "scores") {
      EXPECT_GE(double(json["phoneme error rate"]), 0);
    } else if (event == "checkpoint") {
      EXPECT_TRUE(fs::exists(folder_ / std::string(std::string_view(json["path"])))) << line;
    } else if (event == "end") {
      EXPECT_GE(double(json["word error rate"]), 0);
      EXPECT_TRUE(fs::exists(folder_ / std::string(std::string_view(json["checkpoint"])))) << line;
    }
  }
  EXPECT_GE(events["step"], 1);
  EXPECT_EQ(events["scores"], 3);  // two epochs, and the test part
  EXPECT_GE(events["checkpoint"], 2);
  EXPECT_EQ(events["end"], 1);
  EXPECT_TRUE(has(ran.out, "Profiling Report")) << ran.out;
}

TEST_F(Train, ShowsTheReportOfTheLastSteps) {
  const Ran ran = trained("a", "--no-test --show 0 --profile 3");
  EXPECT_TRUE(has(ran.out, "Profiling Report")) << ran.out;
  EXPECT_TRUE(has(ran.out, "decoder")) << ran.out;
}

TEST_F(Train, ConfigFilesAreReadAndTheCommandLineWins) {
  folder_.write("small.txt", "# a small one\nhidden = 8\nlayers=1\nepochs = 1  # one\nlearning-rate = 2e-3\n");
  Ran ran = shell("paoding train g2p --config small.txt --batch-size 8 --hidden 12 --out a --no-test --show 0");
  EXPECT_EQ(ran.code, 0) << ran.err;
  const auto options = load_manifest(folder_ / "a").options;
  EXPECT_EQ(options.at("hidden"), "12");
  EXPECT_EQ(options.at("layers"), "1");
  EXPECT_EQ(options.at("epochs"), "1");
  EXPECT_EQ(options.at("learning-rate"), "0.002");
  const std::pair<const char*, const char*> wrong[] = {
      {"hiden = 8\n", "wrong.txt:1: there is no option \"hiden\" (did you mean 'hidden'?)"},
      {"\n# many\r\nhidden = many\n", "wrong.txt:3: hidden is 'many', needed is a whole number from 1 to 65536"},
      {"layers = 1\nepochs = 1.5", "wrong.txt:2: epochs is '1.5'"},
      {"hidden = [1, 2]\n", "wrong.txt:1: hidden is '[1, 2]'"},
      {"dropout = nan\n", "wrong.txt:1: dropout is 'nan'"},
      {"layers = 1\nhidden 8\n", "wrong.txt:2: \"hidden 8\" is no line 'name = value'"},
      {"= 8\n", "wrong.txt:1: \"= 8\" is no line"},
      {"[model]\nhidden = 8\n", "wrong.txt:1: \"[model]\" is no line"},
      {"hidden =\n", "wrong.txt:1: hidden is ''"},
      {"hidden = 8\nlayers = 1\nhidden = 9\n", "wrong.txt:3: hidden is there already, in line 1"},
      {"hidden = '8\n", "wrong.txt:1: \"hidden = '8\": the quote is not closed"},
      {"\x01\xff\x1b = 8\n", "wrong.txt:1: there is no option \"\\x01\\xff\\x1b\"; there are: hidden"},
  };
  for (const auto& [text, message] : wrong) {
    folder_.write("wrong.txt", text);
    ran = shell("paoding train g2p --config wrong.txt --out b");
    EXPECT_EQ(ran.code, 1) << text;
    EXPECT_TRUE(has(ran.err, message)) << ran.err;
  }
  ran = shell("paoding train g2p --config none.txt --out b");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "none.txt: No such file")) << ran.err;
  EXPECT_EQ(shell("paoding train g2p --config data --out b").code, 1);
  ran = shell("paoding train g2p --config /dev/zero --out b");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "/dev/zero: is larger than 1048576 bytes, too large for what it should be")) << ran.err;
  folder_.write("quoted.txt", "\xef\xbb\xbfhidden = '8' # small\r\n\r\n\tlayers\t=\t\"1\"\r\nepochs=0");
  EXPECT_EQ(shell("paoding train g2p --config quoted.txt --out c --no-test --show 0").code, 0);
  EXPECT_EQ(load_manifest(folder_ / "c").options.at("hidden"), "8");
  fs::remove_all(folder_ / "c");
  EXPECT_FALSE(fs::exists(folder_ / "b")) << "nothing is made where nothing is trained";
}

TEST_F(Train, StepsEndTrainingAndSaveMinutesOfZeroSavesEachStep) {
  const Ran ran = trained("a", "--no-test --show 0 --steps 5 --save-minutes 0 --json");
  EXPECT_EQ(checkpoints("a").back(), "step-00000005");
  for (int step = 1; step <= 5; ++step) EXPECT_TRUE(has(ran.out, "a/step-0000000" + std::to_string(step))) << step;
  EXPECT_EQ(load_manifest(folder_ / "a", true).scores.size(), 1u);
}

TEST_F(Train, NothingIsOverwritten) {
  trained("a");
  const auto before = last("a");
  Ran ran = shell(train("--out a"));
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "a has checkpoints already\nhint: --resume")) << ran.err;
  EXPECT_EQ(last("a"), before);
  folder_.write("mine/curve.svg", "a picture");
  ran = shell(train("--out mine"));
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "mine/curve.svg is there already")) << ran.err;
  EXPECT_EQ(slurp(folder_ / "mine/curve.svg"), "a picture");
  ran = shell(train("--out data/g2p/cmudict-en-us.dict"));
  EXPECT_EQ(ran.code, 1) << "a file is no folder";
}

TEST_F(Train, WithoutOutFreeFoldersAreFound) {
  const Ran failed = shell(train("--data nowhere"));
  EXPECT_EQ(failed.code, 1);
  EXPECT_FALSE(fs::exists(folder_ / "runs")) << "a failed start leaves nothing";
  for (const char* name : {"runs/g2p", "runs/g2p-2", "runs/g2p-3"}) {
    const Ran ran = shell(train("--no-test --show 0"));
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_FALSE(checkpoints(name).empty()) << name;
  }
}

TEST_F(Train, ResumeNeedsACheckpoint) {
  Ran ran = shell("paoding train g2p --resume");
  EXPECT_EQ(ran.code, 2);
  EXPECT_TRUE(has(ran.err, "--resume needs --out")) << ran.err;
  ran = shell(train("--out none --resume"));
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "none: there is no such folder")) << ran.err;
  EXPECT_FALSE(fs::exists(folder_ / "none"));
  fs::create_directory(folder_ / "empty");
  ran = shell(train("--out empty --resume"));
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "empty: has no checkpoint")) << ran.err;
}

TEST_F(Train, CheckpointsThatDoNotFitAreNamed) {
  trained("a");
  const auto before = last("a");
  Checkpoint wide = load_checkpoint(folder_ / "a");
  wide.manifest.options["hidden"] = "32";
  CheckpointFolder(folder_ / "wide").save(wide);
  Ran ran = shell("paoding train g2p --out wide --resume");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "wide: the checkpoint is not one of this model")) << ran.err;
  EXPECT_TRUE(has(ran.err, "'attention/weight' is f32[32,16], must be f32[64,32]")) << ran.err;
  Checkpoint other = load_checkpoint(folder_ / "a");
  other.manifest.model = "lm";
  CheckpointFolder(folder_ / "b").save(other);
  ran = shell("paoding train g2p --out b --resume");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "b: the checkpoint is one of 'lm', not of 'g2p'")) << ran.err;
  EXPECT_EQ(last("a"), before);
}

TEST_F(Train, DamagedCheckpointsAreRefused) {
  trained("a");
  const fs::path tensors = folder_ / ("a/" + checkpoints("a").back() + "/parameters.safetensors");
  const std::string whole = slurp(tensors);
  std::string changed = whole;
  changed[changed.size() / 2] ^= 1;
  for (const std::string& bytes : {changed, whole.substr(0, whole.size() - 1), std::string()}) {
    spill(tensors, bytes);
    for (const char* command : {"train g2p --out a --resume", "predict g2p a --latest", "evaluate g2p a --latest"}) {
      const Ran ran = shell(std::string("paoding ") + command);
      EXPECT_EQ(ran.code, 1) << command;
      EXPECT_TRUE(has(ran.err, "parameters.safetensors")) << ran.err;
      EXPECT_TRUE(has(ran.err, "manifest says")) << ran.err;
    }
  }
  // Its checksums are right, its content is not.
  spill(tensors, whole);
  const Checkpoint good = load_checkpoint(folder_ / "a", true);
  const auto refused = [&](const Checkpoint& bad, const char* message) {
    CheckpointFolder(folder_ / "b").save(bad);
    for (const char* command : {"train g2p --out b --resume", "predict g2p b"}) {
      const Ran ran = shell(std::string("echo bada | paoding ") + command);
      EXPECT_EQ(ran.code, 1) << command << ran.out;
      EXPECT_TRUE(has(ran.err, message)) << ran.err;
    }
    fs::remove_all(folder_ / "b");
  };
  Checkpoint bad = good;
  bad.manifest.options["hidden"] = "99999999";
  refused(bad, "hidden is '99999999'");
  bad = good;
  bad.files.erase("letters.txt");
  refused(bad, "'letters.txt'");
  bad = good;
  bad.files["letters.txt"] = "a\nb";
  refused(bad, "'letters.txt'");
  bad = good;
  bad.tensors.erase("output/weight");
  refused(bad, "output/weight");
}

TEST_F(Train, SaysWhatIsWrongWithTheData) {
  Ran ran = shell(train("--data nowhere --out a"));
  EXPECT_EQ(ran.code, 1);
  if (!fs::exists("/usr/share/pocketsphinx") && !fs::exists("/usr/share/festival")) {
    EXPECT_TRUE(has(ran.err, "nowhere/g2p/cmudict-en-us.dict")) << ran.err;
    EXPECT_TRUE(has(ran.err, "paoding fetch g2p --data nowhere")) << ran.err;
  }
  const auto with = [&](const std::string& text) {
    folder_.write("other/g2p/cmudict-en-us.dict", text);
    return shell(train("--data other --out a"));
  };
  ran = with("caf\xe9 K AE F EY\n");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "cmudict-en-us.dict:1")) << ran.err;
  EXPECT_TRUE(has(ran.err, "UTF-8")) << ran.err;
  EXPECT_EQ(with("").code, 1);
  ran = with("word\n");
  EXPECT_TRUE(has(ran.err, "cmudict-en-us.dict:1")) << ran.err;
  if (geteuid() != 0) {
    fs::permissions(folder_ / "other/g2p", fs::perms::none);
    ran = shell(train("--data other --out a"));
    fs::permissions(folder_ / "other/g2p", fs::perms::owner_all);
    EXPECT_EQ(ran.code, 1);
    EXPECT_TRUE(has(ran.err, "Permission denied")) << ran.err;
  }
  EXPECT_FALSE(fs::exists(folder_ / "a"));
}

TEST_F(Train, AWordIsEnoughAndABatchMayBeLargerThanTheData) {
  folder_.write("one/g2p/cmudict-en-us.dict", "word W ER D\n");
  Ran ran = shell(train("--data one --out one_run"));
  if (ran.code == 0) {
    EXPECT_TRUE(has(ran.out, "1 words to train on")) << ran.out;
    EXPECT_FALSE(checkpoints("one_run").empty());
  } else {
    EXPECT_TRUE(has(ran.err, "no example to train on")) << ran.err;
  }
  ran =
      shell("paoding train g2p --hidden 16 --layers 1 --epochs 1 --out large --batch-size 1000000 --no-test --show 0");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_FALSE(checkpoints("large").empty());
}

TEST_F(Train, AsManyWordsAreTrainedOnAsAreAskedFor) {
  std::string twice;
  for (const std::string& line : lines_of(dictionary(150))) {
    const std::size_t blank = line.find(' ');
    twice += line + "\n" + line.substr(0, blank) + "(2) Z" + line.substr(blank) + "\n";
  }
  folder_.write("two/g2p/cmudict-en-us.dict", twice);
  const Ran ran = shell(train("--data two --out a --words 40 --no-test --show 0"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, "g2p: 40 words said in 80 ways to train on")) << ran.out;
  EXPECT_TRUE(has(shell(train("--out b --words 40 --no-test --show 0")).out, "g2p: 40 words to train on"));
}

TEST_F(Train, NoEpochsLeaveACheckpointThatCanBeGoneOnWith) {
  Ran ran = shell("paoding train g2p --hidden 16 --layers 1 --epochs 0 --out a --no-test --show 0");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(checkpoints("a"), std::vector<std::string>{"step-00000000"});
  ran = shell("paoding train g2p --epochs 1 --out a --resume --no-test --show 0");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(load_manifest(folder_ / "a", true).epoch, 1);
}

TEST_F(Train, WrongWordsAreExplained) {
  const std::pair<const char*, const char*> wrong[] = {
      {"train g3p", "(did you mean 'g2p'?); there are: fashion, g2p, gpt, lm, mlm, translate"},
      {"train", "a command is missing; there are: fashion, g2p, gpt, lm, mlm, translate"},
      {"train g2p --hiden 3", "no option '--hiden' (did you mean '--hidden'?)"},
      {"train g2p --hidden 0", "hidden is '0', needed is a whole number from 1 to 65536"},
      {"train g2p --epochs 99999999999999999999", "epochs is '99999999999999999999'"},
      {"train g2p --epochs 9223372036854775807", "epochs is '9223372036854775807'"},
      {"train g2p --learning-rate 1e30", "learning-rate is '1e30', needed is a number from 0 to 100"},
      {"train g2p --dropout nan", "dropout is 'nan'"},
      {"train g2p --seed 1 --seed 2", "--seed is given more than once"},
      {"train g2p --device gpu", "--device is 'gpu'"},
      {"train g2p --threads -1", "--threads"},
      {"train g2p --save-minutes nan", "--save-minutes: 'nan' is no number from 0 to 1e+06"},
      {"train g2p --save-minutes -1", "--save-minutes: '-1' is no number from 0 to 1e+06"},
      {"train g2p --show -1", "--show: '-1' is no whole number from 0 to 1073741824"},
      {"train g2p --out \"\"", "--out: the name is empty"},
      {"predict g3p a", "no model named 'g3p' (did you mean 'g2p'?); there are: fashion, g2p, gpt, lm, mlm, translate"},
      {"predict g2p", "the checkpoint, or the run's folder, of the model 'g2p' is missing"},
      {"predict g2p a --beam 2 --best 3", "--best 3 needs a --beam of at least 3"},
      {"predict gpt a --temperature -1", "--temperature: '-1' is no number from 0 to 100"},
      {"predict gpt a --temperature nan", "--temperature: 'nan' is no number from 0 to 100"},
      {"evaluate g2p a --part some", "--part"},
  };
  for (const auto& [arguments, message] : wrong) {
    const Ran ran = shell(std::string("paoding ") + arguments);
    EXPECT_EQ(ran.code, 2) << arguments << "\n" << ran.err;
    EXPECT_TRUE(has(ran.err, message)) << arguments << "\n" << ran.err;
    EXPECT_TRUE(ran.out.empty()) << ran.out;
  }
}

TEST_F(Train, HelpHasExamples) {
  for (const char* command : {"train", "train g2p", "train fashion", "train gpt", "train lm", "train mlm",
                              "train translate", "predict", "evaluate"}) {
    const Ran ran = shell(std::string("paoding ") + command + " --help");
    EXPECT_EQ(ran.code, 0) << command;
    EXPECT_TRUE(has(ran.out, "Examples:\n  paoding ")) << command << "\n" << ran.out;
  }
}

}  // namespace
}  // namespace paoding
