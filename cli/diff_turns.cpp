// SPDX-License-Identifier: Apache-2.0
#include "diff_turns.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/one_line.h"
#include "command.h"
#include "profile/trace_merge.h"
#include "recordings.h"
#include "timed_process.h"

namespace paoding::cli {

namespace {

namespace fs = std::filesystem;

std::string line_of(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + word;
  return line;
}

bool is_bench(const std::vector<std::string>& words) {
  const std::string program = fs::path(words[0]).filename().string();
  return words.size() > 1 && words[1] == "bench" && (program == "paoding" || words[0] == own_program());
}

// A command as it is run.
struct TurnsCommand {
  std::string name;
  std::vector<std::string> words;
  bool is_bench = false;
};

TurnsCommand command_of(std::vector<std::string> words, const std::vector<std::string>& own, char letter) {
  if (words.empty()) {
    throw UsageError(fmt::format("diff: {}'s command is missing: paoding diff -- COMMAND_A -- COMMAND_B", letter));
  }
  TurnsCommand command{.name = line_of(words), .words = {}, .is_bench = false};
  if (std::ranges::find(own, words[0]) != own.end()) words.insert(words.begin(), own_program());
  command.is_bench = is_bench(words);
  command.words = std::move(words);
  for (const std::string& word : command.words) {
    if (command.is_bench &&
        (word == "--json" || word.starts_with("--json=") || word == "--list" || word == "--follow")) {
      throw UsageError(
          fmt::format("diff: leave {} out of {}'s command: what `paoding bench` measures is read by a "
                      "--json that is added",
                      word, letter));
    }
  }
  return command;
}

// What one process measured.
struct Process {
  bool is_b = false;
  double wall_ns = 0;
  profile::ProcessSteps steps;
  BenchRows rows;
};

class Series {
 public:
  explicit Series(const TurnsOptions& options)
      : options_(options),
        commands_{command_of(options.a, options.own, 'A'), command_of(options.b, options.own, 'B')},
        folder_("paoding_diff") {
    if (commands_[0].is_bench != commands_[1].is_bench) {
      throw UsageError("diff: one command is `paoding bench` and the other is not: they measure different things");
    }
  }

  Turns run() {
    const SavesWhenInterrupted saves;
    const std::vector<std::size_t> looks = profile::looks_at(options_.runs, options_.most_runs);
    Turns turns;
    try {
      for (std::size_t i = 0; i < options_.warm_up; ++i) {
        for (const bool is_b : {false, true}) run_one(is_b, fmt::format("warming up {}", is_b ? 'B' : 'A'));
      }
      for (const std::size_t look : looks) {
        while (done_.size() < 2 * look) {
          const bool is_b = profile::is_of_b(done_.size());
          done_.push_back(
              run_one(is_b, fmt::format("{} of {}, {}{}", done_.size() + 1, 2 * look, is_b ? 'B' : 'A', left(look))));
        }
        show_progress("");
        turns.diff = diff(looks.size(), {});
        const auto is_open = [](const profile::DiffRow& row) {
          return row.time.verdict == profile::Verdict::inconclusive;
        };
        if (std::ranges::none_of(turns.diff.rows, is_open)) break;
      }
    } catch (const Interrupted& interrupted) {
      show_progress("");
      if (count(false) == 0 || count(true) == 0) throw;
      turns.interrupted = interrupted.code;
      turns.diff = diff(looks.size(),
                        fmt::format("interrupted: {} of {} processes were measured", done_.size(), 2 * options_.runs));
    }
    return turns;
  }

 private:
  std::size_t count(bool is_b) const {
    return static_cast<std::size_t>(std::ranges::count(done_, is_b, &Process::is_b));
  }

  std::string left(std::size_t look) const {
    double took = 0;
    for (const Process& process : done_) took += process.wall_ns / 1e9;
    if (done_.empty()) return "";
    return fmt::format(", about {:.0f} s left",
                       took / static_cast<double>(done_.size()) * static_cast<double>(2 * look - done_.size()));
  }

  Process run_one(bool is_b, const std::string& progress) {
    check_interrupted();
    show_progress("paoding: diff: " + progress);
    const TurnsCommand& command = commands_[is_b];
    const fs::path place = folder_.path() / "recordings", rows = folder_.path() / "rows.json";
    fs::remove_all(place), fs::remove(rows);
    fs::create_directory(place);
    std::map<std::string, std::string> variables;
    if (is_b) variables = options_.variables_of_b;
    std::vector<std::string> words = command.words;
    if (command.is_bench) {
      words.insert(words.end(), {"--json", rows.string()});
    } else if (options_.records) {
      variables["PAODING_PROFILE"] = RecordingRequest().text(place);
    }
    const TimedProcess ran =
        run_timed(words, variables, options_.shows_output ? fs::path() : folder_.path() / "output");
    if (ran.code != 0) {
      fail(ErrorKind::argument, "diff: {}'s command ended with exit code {}: {}{}", is_b ? 'B' : 'A', ran.code,
           one_line(command.name), ran.output.empty() ? "" : "\n" + ran.output);
    }
    Process process;
    process.is_b = is_b;
    process.wall_ns = static_cast<double>(ran.wall_ns);
    if (command.is_bench) {
      process.rows = read_bench_rows(rows);
    } else if (options_.records) {
      process.steps = steps_in(place, command.name);
    }
    return process;
  }

  // Of the program with the most steps, where the command started several.
  static profile::ProcessSteps steps_in(const fs::path& place, const std::string& name) {
    std::vector<profile::NamedTrace> traces = read_recordings(recordings_in(place));
    profile::ProcessSteps most;
    if (is_one_program(traces)) return profile::steps_of_process(profile::merge(std::move(traces)), name);
    for (const profile::NamedTrace& one : traces) {
      profile::ProcessSteps steps = profile::steps_of_process(one.trace, name);
      if (steps.has_steps && steps.ns.size() > most.ns.size()) most = std::move(steps);
    }
    return most;
  }

  profile::Diff diff(std::size_t looks, const std::string& note) const {
    profile::DiffInput input = measured();
    input.looks = looks;
    if (!note.empty()) input.notes.push_back(note);
    return profile::diff(input, options_.diff);
  }

  profile::DiffInput measured() const {
    std::vector<BenchRows> rows[2];
    profile::DiffSide sides[2];
    for (const Process& process : done_) {
      rows[process.is_b].push_back(process.rows);
      sides[process.is_b].steps.push_back(process.steps);
    }
    for (const bool is_b : {false, true}) sides[is_b].name = commands_[is_b].name;
    profile::DiffInput input;
    if (commands_[0].is_bench) {
      input = input_of_rows(rows[0], rows[1], commands_[0].name, commands_[1].name);
      for (profile::MeasuredRow& row : input.rows) set_order(row);
      return input;
    }
    if (std::ranges::all_of(done_, [](const Process& process) { return process.steps.has_steps; })) {
      input = profile::diff_input(std::move(sides[0]), std::move(sides[1]));
      set_order(input.rows[0]);
      return input;
    }
    profile::MeasuredRow row;
    row.name = "process";
    for (const Process& process : done_) (process.is_b ? row.b : row.a).push_back(process.wall_ns);
    set_order(row);
    input.rows.push_back(std::move(row));
    for (const bool is_b : {false, true}) {
      profile::DiffSide& side = is_b ? input.b : input.a;
      side.name = commands_[is_b].name, side.processes = count(is_b);
    }
    if (options_.records) {
      input.notes.push_back("no steps were recorded, as of programs of paoding's: times are those of whole processes");
    }
    return input;
  }

  // The processes of a row are in the order of their side.
  void set_order(profile::MeasuredRow& row) const {
    std::size_t at[2] = {};
    row.in_order.clear();
    for (const Process& process : done_) {
      const std::vector<double>& own = process.is_b ? row.b : row.a;
      row.in_order.push_back({process.is_b, own[at[process.is_b]++]});
    }
  }

  const TurnsOptions& options_;
  const TurnsCommand commands_[2];
  const TemporaryFolder folder_;
  std::vector<Process> done_;
};

}  // namespace

Turns run_in_turns(const TurnsOptions& options) { return Series(options).run(); }

}  // namespace paoding::cli
