// SPDX-License-Identifier: Apache-2.0
// paoding verify: whether the change that a finding proposes saves as much as it predicts, by running both in turns.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <map>

#include "base/env.h"
#include "base/one_line.h"
#include "command.h"
#include "diff_turns.h"
#include "io/json_text.h"
#include "predicted_gain.h"
#include "recordings.h"
#include "report_flags.h"

namespace paoding::cli {
namespace {

constexpr int kVerifyTrouble = 2;  // as of `paoding diff`: 1 is a gain that is smaller than predicted

struct VerifyFlags {
  std::string file;
  int number = 0;
  std::vector<std::string> words;
  TurnsOptions turns;
  bool json = false, markdown = false, strict = false;
  const CLI::Option* most_runs = nullptr;
};

// A switch of a finding: the environment variable, and its word.
struct Switch {
  const char* variable = "";
  std::string word = {};  // empty where the change is one of the program
};

Switch switch_of(const std::string& verify) {
  constexpr const char *kCompile = "PAODING_COMPILE", *kRun = "PAODING_RUN";
  for (const auto& [word, key] : {std::pair("pass ", "pass="), std::pair("dtype ", "precision=")}) {
    if (verify.starts_with(word)) return {kCompile, key + verify.substr(std::string_view(word).size())};
  }
  static const std::map<std::string, Switch> kSwitches = {
      {"tf32", {kCompile, "tf32=1"}},
      {"tune", {kCompile, "tune=1"}},
      {"captured", {kCompile, "execution=captured"}},
      {"reader-ahead", {kRun, "read_ahead=8"}},
      {"fetch-later", {kRun, "fetch_later=1"}},
      {"pinned-feeds", {kRun, "pinned_feeds=1"}},
      {"double-buffered-feeds", {kRun, "double_buffered_feeds=1"}},
  };
  const auto found = kSwitches.find(verify);
  return found == kSwitches.end() ? Switch{} : found->second;
}

// Behind the words that both commands have: of a switch that comes twice the last counts.
std::string with_word(const Switch& made) {
  const std::string words = env_text(made.variable);
  return words.empty() ? made.word : words + ";" + made.word;
}

// Where nothing can be run the change is made by hand.
int show_change(const Prediction& prediction, const VerifyFlags& flags) {
  const std::string next = fmt::format("paoding diff {} AFTER --finding {}", one_line(flags.file), flags.number);
  if (flags.json) {
    JsonObject all;
    all.add("verify", 1).add("file", flags.file).add_json("finding", prediction_json(prediction)).add("next", next);
    print_text(all.text() + "\n");
    return kOk;
  }
  print("Finding {}: {}\n", prediction.number, one_line(prediction.title));
  print("Change:    {}\n", one_line(prediction.change));
  print("The program is not paoding's to run. Make the change, record it again as AFTER, then:\n  {}\n", next);
  return kOk;
}

int show_verified(const Prediction& prediction, const MeasuredGain& gain, const profile::Diff& diff,
                  const VerifyFlags& flags, const std::string& switched) {
  const profile::Comparison& step = diff.rows[0].time;
  if (flags.json) {
    JsonObject all;
    all.add("verify", 1).add("file", flags.file).add("switched", switched);
    all.add_json("finding", gain_json(prediction, gain)).add_json("diff", profile::to_json(diff));
    print_text(all.text() + "\n");
  } else {
    const char* const list = flags.markdown ? "- " : "";
    print("{}Finding {}: {}\n", flags.markdown ? "### " : "", prediction.number, one_line(prediction.title));
    print("{}A: {}\n", list, one_line(diff.a.name));
    print("{}B: {}\n", list, switched.empty() ? one_line(diff.b.name) : "the same with " + one_line(switched));
    print("{}Step: {} and {}, {} processes each\n", list, profile::time_with_unit(step.a),
          profile::time_with_unit(step.b), diff.rows[0].a.size());
    print("{}Gain: {}\n", list, gain_text(prediction, gain));
    if (step.needed > 0) print("{}About {} processes a side would tell (--runs)\n", list, step.needed);
    for (const std::string& note : diff.notes) print("{}{}\n", flags.markdown ? "- " : "Note: ", one_line(note));
  }
  if (gain.outcome == GainVerdict::less) return 1;
  return flags.strict && gain.outcome == GainVerdict::inconclusive ? kVerifyTrouble : kOk;
}

int run_verify(VerifyFlags& flags) {
  if (flags.json && flags.markdown) throw UsageError("verify: --json and --markdown: one of them");
  const Predictions all = read_predictions(flags.file);
  const Prediction& prediction = prediction_at(all, flags.number);
  TurnsOptions& turns = flags.turns;
  const auto between = std::ranges::find(flags.words, "--");
  turns.a.assign(flags.words.begin(), between);
  if (turns.a.empty()) {
    if (all.is_of_others) return show_change(prediction, flags);
    throw UsageError(fmt::format("verify: the command is missing: paoding verify {} {} -- COMMAND",
                                 one_line(flags.file), flags.number));
  }
  std::string switched;
  if (between != flags.words.end()) {
    turns.b.assign(between + 1, flags.words.end());
  } else {
    turns.b = turns.a;
    const Switch made = switch_of(prediction.verify);
    if (made.word.empty()) {
      throw UsageError(fmt::format(
          "verify: finding {} has no switch. Change the program ({}), then: paoding verify {} {} -- COMMAND -- "
          "CHANGED_COMMAND",
          prediction.number, one_line(prediction.change), one_line(flags.file), flags.number));
    }
    switched = fmt::format("{}={}", made.variable, made.word);
    turns.variables_of_b[made.variable] = with_word(made);
  }
  if (flags.most_runs->count() == 0) turns.most_runs = turns.runs;
  if (turns.most_runs < turns.runs) {
    throw UsageError(fmt::format("verify: --most-runs is {}, fewer than --runs, {}", turns.most_runs, turns.runs));
  }
  const Turns measured = run_in_turns(turns);
  if (measured.diff.rows[0].name != "step") {
    throw UsageError("verify: the command recorded no steps: it needs to be a program of paoding's that runs a loop");
  }
  const int code =
      show_verified(prediction, measured_gain(prediction, measured.diff.rows[0].time), measured.diff, flags, switched);
  return measured.interrupted != 0 ? measured.interrupted : code;
}

}  // namespace

void add_verify(CLI::App& app, Commands* commands) {
  auto flags = std::make_shared<VerifyFlags>();
  CLI::App* sub = app.add_subcommand(
      "verify",
      "Run a program with and without the change that a finding proposes, and hold the gain against its prediction\n\n"
      "FILE is a recording, a trace, or what `paoding report --format json` printed of one; NUMBER is that of a "
      "finding "
      "in\n"
      "it. Behind -- stands the command that was recorded, a program of paoding's. It is run in turns as it is (A) "
      "and\n"
      "with the finding's switch (B: in PAODING_COMPILE or PAODING_RUN), as `paoding diff` runs two commands, or, "
      "where a second\n"
      "command follows behind another --, with that. Of a program that is not paoding's the change is shown, which\n"
      "`paoding diff BEFORE AFTER --finding NUMBER` judges once it is made. Exit code: 0; 1 when the gain is smaller "
      "than\n"
      "predicted; 2 when something is wrong.");
  sub->add_option("FILE", flags->file, "Where the finding is")->type_name("")->required();
  sub->add_option("NUMBER", flags->number, "Which finding")->check(whole_number(1, 1000))->type_name("")->required();
  sub->add_option("--runs", flags->turns.runs, "Processes of each")
      ->check(whole_number(2, 1000))
      ->type_name("N")
      ->capture_default_str();
  flags->most_runs = sub->add_option("--most-runs", flags->turns.most_runs,
                                     "While the result is inconclusive, go on to twice as many, and so on to this many")
                         ->check(whole_number(2, 1000))
                         ->type_name("N");
  sub->add_option("--warm-up", flags->turns.warm_up, "Processes of each that are run first and not measured")
      ->check(whole_number(0, 1000))
      ->type_name("N")
      ->capture_default_str();
  sub->add_flag("--strict", flags->strict, "Exit code 2 when the result is inconclusive");
  sub->add_flag("--show-output", flags->turns.shows_output, "Show what the commands print");
  sub->add_flag("--json", flags->json, "As JSON");
  sub->add_flag("--markdown", flags->markdown, "As Markdown");
  sub->add_option("COMMAND", flags->words, "Behind --: the command; behind another -- the changed one")->type_name("");
  sub->footer(
      "Examples:\n"
      "  paoding verify run.paoding 1 -- run examples/graphs/lerp_grad.txt --random 7 --repeat 50 --no-pass "
      "fuse_groups\n"
      "  paoding verify slow.json 2 --most-runs 20 -- ./my_program -- ./my_program --read-ahead\n"
      "  paoding verify worker0.pt.trace.json.gz 3");
  commands->push_back({.app = sub,
                       .run =
                           [flags, &app] {
                             flags->turns.own = command_names(app);
                             return run_verify(*flags);
                           },
                       .failed = kVerifyTrouble});
}

}  // namespace paoding::cli
