// SPDX-License-Identifier: Apache-2.0
// paoding diff: whether B is faster than A, and which ops make the difference.
#include "profile/diff.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "command.h"
#include "diff_files.h"
#include "diff_turns.h"
#include "finding_in_diff.h"
#include "recordings.h"
#include "report_flags.h"

namespace paoding::cli {
namespace {

constexpr int kTrouble = 2;  // as of other programs that compare: 1 is a difference

struct DiffFlags {
  std::vector<std::string> words, before, after;
  TurnsOptions turns;
  std::string floor = "1%", confidence = "99%", spread = "5%";
  bool json = false, markdown = false, strict = false, no_record = false;
  int finding = 0;  // that is to be judged; 0: none
  const CLI::Option *runs = nullptr, *most_runs = nullptr;
};

double parse_share(const char* option, const std::string& text, double least, double most) {
  double number = 0;
  const char* const end = text.data() + text.size() - (text.ends_with('%') ? 1 : 0);
  const auto [read, problem] = std::from_chars(text.data(), end, number);
  if (problem != std::errc() || read != end || !(number >= least && number <= most)) {
    throw UsageError(fmt::format("{} is '{}', needs to be {}% to {}%", option, text, least, most));
  }
  return number / 100;
}

void check(DiffFlags& flags) {
  profile::Rule& rule = flags.turns.diff.rule;
  rule.floor = parse_share("--floor", flags.floor, 0, 50);
  rule.confidence = parse_share("--confidence", flags.confidence, 50, 99.999);
  rule.assumed_spread = parse_share("--assumed-spread", flags.spread, 0, 100);
  if (flags.json && flags.markdown) throw UsageError("diff: --json and --markdown: one of them");
  TurnsOptions& turns = flags.turns;
  if (flags.most_runs->count() == 0) turns.most_runs = turns.runs;
  if (turns.most_runs < turns.runs) {
    throw UsageError(fmt::format("diff: --most-runs is {}, fewer than --runs, {}", turns.most_runs, turns.runs));
  }
  turns.records = !flags.no_record;
}

int show(const profile::Diff& diff, const DiffFlags& flags, const FindingInDiff* finding = nullptr) {
  if (flags.json) {
    std::string json = profile::to_json(diff);
    if (finding != nullptr) json.insert(json.rfind('}'), ",\"finding\":" + to_json(*finding));
    print_text(json);
  } else if (flags.markdown) {
    print_text(profile::to_markdown(diff) + (finding == nullptr ? "" : "\n" + to_markdown(*finding)));
  } else {
    print_report(profile::to_text(diff, width_of_terminal()) + (finding == nullptr ? "" : "\n" + to_text(*finding)));
  }
  if (finding != nullptr) {
    if (finding->is_refuted()) return 1;
    return flags.strict && !finding->is_confirmed() ? kTrouble : kOk;
  }
  if (diff.verdict == profile::Verdict::slower) return 1;
  return flags.strict && diff.verdict == profile::Verdict::inconclusive ? kTrouble : kOk;
}

int diff_commands(DiffFlags& flags) {
  if (!flags.before.empty() || !flags.after.empty()) {
    throw UsageError("diff: either files, or commands behind --");
  }
  if (flags.finding != 0) {
    throw UsageError("diff: --finding is about recordings and traces; of commands `paoding verify` judges one");
  }
  const auto between = std::ranges::find(flags.words, "--");
  if (between == flags.words.end()) {
    throw UsageError("diff: B's command is missing: paoding diff -- COMMAND_A -- COMMAND_B");
  }
  flags.turns.a.assign(flags.words.begin(), between);
  flags.turns.b.assign(between + 1, flags.words.end());
  if (std::ranges::find(flags.turns.b, "--") != flags.turns.b.end()) {
    throw UsageError("diff: a third --: a command that needs one goes into a script, or behind sh -c");
  }
  const Turns turns = run_in_turns(flags.turns);
  const int code = show(turns.diff, flags);
  return turns.interrupted != 0 ? turns.interrupted : code;
}

int diff_files(DiffFlags& flags) {
  std::vector<std::string> a = flags.before, b = flags.after;
  if (a.empty() && b.empty() && flags.words.size() == 2) {
    a = {flags.words[0]}, b = {flags.words[1]};
  } else if (!flags.words.empty() || a.empty() || b.empty()) {
    throw UsageError(
        "diff: what is compared is two files or folders, --before FILES --after FILES, or -- COMMAND_A -- "
        "COMMAND_B");
  }
  for (const CLI::Option* option : {flags.runs, flags.most_runs}) {
    if (option->count() > 0) throw UsageError(option->get_name() + " is about commands, and these are files");
  }
  SideFiles of_a = read_side(a), of_b = read_side(b);
  if (flags.finding == 0) {
    return show(profile::diff(input_of(std::move(of_a), std::move(of_b)), flags.turns.diff), flags);
  }
  if (!of_a.benches.empty())
    throw UsageError("diff: --finding is about recordings and traces, not rows of a benchmark");
  const Predictions before = read_predictions(first_process(a[0]));
  const Prediction& prediction = prediction_at(before, flags.finding);
  const Predictions after = read_predictions(first_process(b[0]));
  const profile::Diff made = profile::diff(input_of(std::move(of_a), std::move(of_b)), flags.turns.diff);
  const FindingInDiff finding = find_in_diff(prediction, after, made);
  return show(made, flags, &finding);
}

}  // namespace

void add_diff(CLI::App& app, Commands* commands) {
  auto flags = std::make_shared<DiffFlags>();
  CLI::App* sub = app.add_subcommand(
      "diff",
      "Say whether B is faster than A, and which ops make the difference\n\n"
      "A and B are recordings (`paoding profile --path FILE.paoding`), files of `paoding bench --json`, or folders of\n"
      "them, a file for every process; or two commands, which are run in turns (A B B A ..). Programs of paoding's "
      "are\n"
      "compared by the steps of their loop and op by op, `paoding bench` by its rows, other commands by how long they\n"
      "take. The verdict is faster, slower, same or inconclusive, by the spread between processes. Exit code: 0, 1 "
      "when\n"
      "B is slower, 2 when something is wrong.");
  sub->add_option("WORDS", flags->words, "Two files or folders; behind -- the commands, with -- between them")
      ->type_name("");
  sub->add_option("--before", flags->before, "Files and folders of A")->type_name("FILES");
  sub->add_option("--after", flags->after, "Files and folders of B")->type_name("FILES");
  flags->runs = sub->add_option("--runs", flags->turns.runs, "Processes of each command")
                    ->check(whole_number(1, 1000))
                    ->type_name("N")
                    ->capture_default_str();
  flags->most_runs =
      sub->add_option("--most-runs", flags->turns.most_runs,
                      "While the verdict is inconclusive, go on to twice as many, and so on to this many")
          ->check(whole_number(1, 1000))
          ->type_name("N");
  sub->add_option("--warm-up", flags->turns.warm_up, "Processes of each that are run first and not measured")
      ->check(whole_number(0, 1000))
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("--floor", flags->floor, "A smaller change is none")->type_name("PERCENT")->capture_default_str();
  sub->add_option("--confidence", flags->confidence, "Of all verdicts of the table together")
      ->type_name("PERCENT")
      ->capture_default_str();
  sub->add_option("--assumed-spread", flags->spread,
                  "Between processes, where there is one a side and nothing tells it")
      ->type_name("PERCENT")
      ->capture_default_str();
  sub->add_option("--ops", flags->turns.diff.most_ops, "Lines of the table of ops at most")
      ->check(whole_number(0, 1 << 20))
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("--finding", flags->finding,
                  "Judge the finding of this number in BEFORE: whether its evidence is gone in AFTER, and whether the\n"
                  "step got shorter by what it predicts; exit code 1 when not")
      ->check(whole_number(1, 1000))
      ->type_name("N");
  sub->add_flag("--across-machines", flags->turns.diff.across_machines,
                "Give a verdict though A and B are of machines that differ");
  sub->add_flag("--strict", flags->strict, "Exit code 2 when the verdict is inconclusive");
  sub->add_flag("--no-record", flags->no_record, "Run commands without the profiler: how long processes take, no ops");
  sub->add_flag("--show-output", flags->turns.shows_output, "Show what the commands print");
  sub->add_flag("--json", flags->json, "As JSON");
  sub->add_flag("--markdown", flags->markdown, "As Markdown, for a pull request");
  sub->footer(
      "Examples:\n"
      "  paoding diff before.paoding after.paoding\n"
      "  paoding diff --before old/*.json --after new/*.json --markdown\n"
      "  paoding diff --runs 8 -- run examples/graphs/lstm.txt --random 7 --repeat 50 --no-pass fuse_groups \\\n"
      "    -- run examples/graphs/lstm.txt --random 7 --repeat 50\n"
      "  paoding diff -- old/paoding bench --filter lerp_grad/3 --quick -- new/paoding bench --filter lerp_grad/3 "
      "--quick\n"
      "  paoding diff --most-runs 40 -- ./old_program -- ./new_program\n"
      "  paoding diff before.pt.trace.json.gz after.pt.trace.json.gz --finding 2");
  commands->push_back({.app = sub,
                       .run =
                           [sub, flags, &app] {
                             check(*flags);
                             flags->turns.own = command_names(app);
                             const std::vector<std::string> marks = sub->remaining();
                             return marks.empty() ? diff_files(*flags) : diff_commands(*flags);
                           },
                       .failed = kTrouble});
}

}  // namespace paoding::cli
