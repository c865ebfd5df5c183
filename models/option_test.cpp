// SPDX-License-Identifier: Apache-2.0
#include "models/option.h"

#include <gtest/gtest.h>

#include <set>

#include "data/test_folder.h"
#include "models/symbol_file.h"
#include "models/task.h"

namespace paoding::models {
namespace {

using data::refusal;

struct Choices {
  std::int64_t count = 3;
  double share = 0.1;
  bool is_on = false;
  std::string kind = "adam", path = "here";
  Options options() {
    return {{"count", "How many", &count, 1, 10},
            {"share", "How much", &share, 0, 0.99},
            {"on", "Whether", &is_on},
            {"kind", "Which", &kind, 0, 0, {"adam", "sgd"}},
            {"path", "Where", &path}};
  }
  void set(const std::string& name, std::string_view text) { models::set(*find(options(), name), text); }
  std::string text(const std::string& name) { return text_of(*find(options(), name)); }
  std::string refused(const std::string& name, std::string_view text) {
    const std::string before = this->text(name);
    const std::string said = refusal([&] { set(name, text); });
    EXPECT_EQ(this->text(name), before) << "a refused value changes nothing";
    return said;
  }

 private:
  const Option* find(const Options& all, const std::string& name) {
    kept_ = all;
    return models::find(kept_, name);
  }
  Options kept_;
};

TEST(Option, IsSetFromItsText) {
  Choices c;
  c.set("count", "10");
  c.set("share", "1e-3");
  c.set("on", "true");
  c.set("kind", "sgd");
  c.set("path", "a b = c");
  EXPECT_EQ(c.count, 10);
  EXPECT_EQ(c.share, 1e-3);
  EXPECT_TRUE(c.is_on);
  EXPECT_EQ(c.kind, "sgd");
  EXPECT_EQ(c.path, "a b = c");
  c.set("on", "false");
  c.set("path", "");
  EXPECT_FALSE(c.is_on);
  EXPECT_EQ(c.path, "");
}

TEST(Option, TextsMeanTheSameNumbersAgain) {
  Choices c;
  for (const double value : {0.1, 1.0 / 3, 1e-300, 0.98999999999999999, 0.0}) {
    c.share = value;
    const std::string text = c.text("share");
    c.share = 0.5;
    c.set("share", text);
    EXPECT_EQ(c.share, value) << text;
  }
  TrainingSettings settings;
  settings.seed = 999'999'999'999'999;
  for (const Option& option : settings.options()) {
    const std::string text = text_of(option);
    models::set(option, text);
    EXPECT_EQ(text_of(option), text) << option.name;
  }
  EXPECT_EQ(settings.seed, 999'999'999'999'999);
}

TEST(Option, SaysWhatIsNeeded) {
  Choices c;
  EXPECT_EQ(c.refused("count", "0"), "argument: count is '0', needed is a whole number from 1 to 10");
  for (const char* text : {"11", "2.5", "", "3 ", " 3", "three", "+3", "0x3", "99999999999999999999"}) {
    EXPECT_NE(c.refused("count", text), "") << text;
  }
  EXPECT_EQ(c.refused("share", "1"), "argument: share is '1', needed is a number from 0 to 0.99");
  for (const char* text : {"nan", "inf", "-1e-9", "", "0,5", "0.5x", "1e999"}) EXPECT_NE(c.refused("share", text), "");
  EXPECT_EQ(c.refused("on", "yes"), "argument: on is 'yes', needed is true or false");
  EXPECT_EQ(c.refused("kind", "lion"), "argument: kind is 'lion', needed is one of adam, sgd");
  double any = 0;
  EXPECT_EQ(needed({"", "", &any}), "a number");
  EXPECT_EQ(needed({"", "", &any, 0}), "a number of at least 0");
  EXPECT_EQ(needed({"", "", &any, -std::numeric_limits<double>::infinity(), 2}), "a number of at most 2");
  std::string text;
  EXPECT_EQ(needed({"", "", &text}), "a text");
  EXPECT_EQ(find(c.options(), "nothing"), nullptr);
}

TEST(TrainingSettings, RefuseWhatCannotBeTrainedWith) {
  TrainingSettings settings;
  const Options all = settings.options();
  const auto refused = [&](const char* name, const char* text) {
    return refusal([&] { set(*find(all, name), text); });
  };
  EXPECT_EQ(refused("batch-size", "0"), "argument: batch-size is '0', needed is a whole number from 1 to 1048576");
  EXPECT_NE(refused("epochs", "-1"), "");
  EXPECT_NE(refused("learning-rate", "-0.1"), "");
  EXPECT_NE(refused("weight-decay", "1.5"), "");
  EXPECT_NE(refused("clip-norm", "nan"), "");
  EXPECT_NE(refused("seed", "-7"), "");
  EXPECT_EQ(refused("epochs", "0"), "");
  EXPECT_EQ(settings.epochs, 0);
}

TEST(Tasks, HaveOptionsThatAreTheirOwn) {
  for (const std::string& name : task_names()) {
    const auto task = make_task(name), other = make_task(name);
    EXPECT_EQ(task->name(), name);
    Options all = task->options(), theirs = other->options();
    for (const Option& option : task->settings.options()) all.push_back(option);
    for (const Option& option : other->settings.options()) theirs.push_back(option);
    std::set<std::string> names;
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_TRUE(names.insert(all[i].name).second) << name << " has " << all[i].name << " twice";
      EXPECT_FALSE(all[i].meaning.empty());
      const std::string before = text_of(theirs[i]);
      set(all[i], text_of(all[i]));  // setting the value that it has is allowed
      if (std::holds_alternative<std::int64_t*>(all[i].value)) {
        set(all[i], std::to_string(*std::get<std::int64_t*>(all[i].value) + 1));
        EXPECT_EQ(text_of(theirs[i]), before) << name << " shares " << all[i].name;
      }
    }
  }
  EXPECT_EQ(refusal([] { make_task("gtp"); }),
            "argument: there is no model named 'gtp'; there are: fashion, g2p, gpt, lm, mlm, translate");
}

TEST(Score, ReadsAsAShareWhereItIsOne) {
  EXPECT_EQ(text_of(Score{"error rate", 0.07619, true}), "error rate 7.62%");
  EXPECT_EQ(text_of(Score{"perplexity", 123.456, false}), "perplexity 123.5");
}

// ---- vocabularies as files ----

TEST(SymbolFile, GivesTheVocabularyBack) {
  const data::Vocabulary words({"<unknown>", "<end>", "caf\u00e9", "a b", "#"});
  const std::map<std::string, std::string> files{{"words.txt", to_file(words)}, {"none.txt", ""}};
  EXPECT_EQ(files.at("words.txt"), "<unknown>\n<end>\ncaf\u00e9\na b\n#\n");
  EXPECT_EQ(from_file(files, "words.txt").symbols(), words.symbols());
  EXPECT_EQ(from_file(files, "none.txt").size(), 0);
  EXPECT_EQ(file_of(files, "none.txt"), "");
}

TEST(SymbolFile, RefusesWhatIsNone) {
  const auto refused = [](const std::string& text) { return refusal([&] { from_file({{"w", text}}, "w"); }); };
  EXPECT_EQ(refused("a\nb"), "file: 'w' ends within a line");
  for (const char* text : {"a\n\nb\n", "a\na\n", "\n", "caf\xe9\n"}) {
    EXPECT_EQ(refused(text).substr(0, 10), "file: 'w':") << text;
  }
  EXPECT_EQ(refusal([] { from_file({{"w", ""}}, "v"); }), "file: the checkpoint has no file 'v'");
  EXPECT_EQ(refusal([] {
              to_file(data::Vocabulary({"a", "b\nc"}));
            }),
            "argument: the symbol 'b\\x0ac' has a line end, files of symbols cannot have it");
  EXPECT_EQ(refusal([] { file_of({}, "v"); }), "file: the checkpoint has no file 'v'");
}

}  // namespace
}  // namespace paoding::models
