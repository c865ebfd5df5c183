// SPDX-License-Identifier: Apache-2.0
// paoding run: compiles a graph, runs it, prints its results and their time.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <optional>

#include "base/check.h"
#include "base/env.h"
#include "base/one_line.h"
#include "command.h"
#include "feeds.h"
#include "graph_file.h"
#include "io/files.h"
#include "io/json_text.h"
#include "io/safetensors.h"
#include "numbers.h"
#include "paoding/debug.h"
#include "paoding/io.h"
#include "paoding/profile.h"
#include "profile/save.h"
#include "report_flags.h"

namespace paoding::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct RunOptions {
  std::string file;
  FeedFlags feeds;
  GraphFlags which;
  std::string fetch_path;
  CompileFlags compile;
  int repeat = 0;
  bool has_profile = false;
  ReportFlags report;
  std::string profile_path, profile_steps, cupti_steps;
  std::optional<StepWindow> window;
  StepWindow by_cupti;
  bool stepwise = false;
  bool check_finite = false;
  bool json = false;
};

// Words and paths that would only be found wrong after the work.
void check_options(RunOptions& options) {
  options.report.check(options.has_profile, "--profile");
  check_folder_of(options.fetch_path);
  if (!options.fetch_path.empty()) files::check_replaceable(options.fetch_path, safetensors::begins_file);
  check_folder_of(options.profile_path);
  const std::string& path = options.profile_path;
  if (!path.empty() && !profile::is_saved_as(path)) {
    throw UsageError(
        fmt::format("--profile-path is '{}', needs to end in .json, .json.gz, .pftrace, .paoding or .html", path));
  }
  profile::check_saveable(path);
  try {
    if (!options.profile_steps.empty()) options.window = parse_steps(options.profile_steps);
    if (!options.cupti_steps.empty()) options.by_cupti = parse_steps(options.cupti_steps);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  const std::int64_t end = std::max(options.window ? options.window->end : 0, options.by_cupti.end);
  options.repeat = std::max(options.repeat, static_cast<int>(std::min<std::int64_t>(end, 1 << 30)));
}

// ---- --check-finite ----

// Fails at the first non-finite value that reaches a result, with where it came from.
void check_finite(const Graph& graph, const Parameters& parameters, const std::map<std::string, Tensor>& feeds,
                  CompileOptions compile) {
  std::map<std::string, Tensor> inputs;
  for (const NodeId id : graph.inputs()) inputs.emplace(*feeds.find(graph.node(id).name.str()));
  compile.on_step = [](const StepSeen&) { check_interrupted(); };
  const auto found = find_nonfinite(graph, parameters, inputs, compile);
  if (!found) return;
  std::string text = to_text(*found);
  while (text.ends_with('\n')) text.pop_back();
  fail(ErrorKind::argument, "check-finite: {}", text);
}

// ---- values of `print` ----

constexpr std::int64_t kMostShown = 16;  // elements of a value that is printed

// Shown as it comes; with --json kept for the one object that is printed.
class PrintedValues {
 public:
  explicit PrintedValues(bool is_json) : is_json_(is_json) {}

  void see(const Printed& printed) {
    const Tensor& value = printed.value;
    const std::int64_t count = value.shape().elements();
    if (is_json_) {
      std::vector<std::string> dims, elements;
      for (const std::int64_t dim : value.shape()) dims.push_back(fmt::format("{}", dim));
      for (std::int64_t i = 0; i < count; ++i) elements.push_back(json_number(element(value, i)));
      JsonObject one;
      one.add("message", printed.message).add("scope", printed.scope).add("instance", printed.instance);
      one.add("dtype", to_string(value.dtype())).add_json("shape", json_array(dims));
      objects_.push_back(one.add_json("values", json_array(elements)).text());
      return;
    }
    std::vector<std::string> elements;
    for (std::int64_t i = 0; i < std::min(count, kMostShown); ++i) {
      elements.push_back(fmt::format("{:.6g}", element(value, i)));
    }
    std::string rest;
    if (count > kMostShown) {
      const Summary seen = summarize(value);
      rest = fmt::format(", ..] min {:.6g}, max {:.6g}, mean {:.6g}, norm {:.6g}", seen.min, seen.max, seen.mean,
                         seen.norm);
      if (!seen.is_finite()) rest += fmt::format(", {} NaN, {} infinite", seen.nans, seen.infinities);
    }
    cli::print("print {}{}{}: {} [{}{}\n", json_string(printed.message),
               printed.scope.empty() ? "" : " in " + one_line(printed.scope),
               printed.instance == 0 ? "" : fmt::format(", time step {}", printed.instance), to_string(value.type()),
               fmt::join(elements, ", "), rest.empty() ? "]" : rest);
  }
  const std::vector<std::string>& objects() const { return objects_; }

 private:
  const bool is_json_;
  std::vector<std::string> objects_;
};

// ---- running ----

struct Timing {
  double first_ms = 0;
  std::vector<double> repeated_ms;  // sorted

  double median() const { return repeated_ms[repeated_ms.size() / 2]; }
};

double run_once(Program& program) {
  check_interrupted();
  const auto start = Clock::now();
  program.run();
  program.wait();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

struct Outcome {
  Device device;
  const CompileReport* report = nullptr;
  Timing timing;
  std::string profile;  // the report's text
  std::vector<std::pair<std::string, Tensor>> fetches;
  bool is_checked = false;           // by --check-finite
  std::vector<std::string> printed;  // JSON objects
};

void time_runs(Program& program, const RunOptions& options, Outcome* outcome, bool* is_printing) {
  outcome->timing.first_ms = run_once(program);
  *is_printing = false;
  const int repeat = options.has_profile ? std::max(options.repeat, 1) : options.repeat;
  ProfiledSteps steps(options.window.value_or(StepWindow{0, options.has_profile ? repeat : 0}),
                      ReportFlags::state_of(outcome->device), options.report.level(), options.by_cupti);
  for (int i = 0; i < repeat; ++i) {
    steps.before(i);
    outcome->timing.repeated_ms.push_back(run_once(program));
    if (i % 64 == 63) show_progress(fmt::format("run {} of {}", i + 1, repeat));
  }
  show_progress("");
  if (steps.profiler() != nullptr) {
    outcome->profile = steps.profiler()->stop(options.report.sort_by(), options.profile_path, options.report.layout);
  }
  std::sort(outcome->timing.repeated_ms.begin(), outcome->timing.repeated_ms.end());
}

void print_outcome(const Outcome& outcome) {
  const CompileReport& report = *outcome.report;
  print("compiled for {} in {:.1f} ms: {} launches per run, {} bytes of arena\n", to_string(outcome.device),
        report.milliseconds, report.launches, report.arena_bytes);
  std::size_t widths[2] = {5, 4};
  std::vector<std::string> names;
  for (const auto& [name, tensor] : outcome.fetches) {
    names.push_back(one_line(name));
    widths[0] = std::max(widths[0], names.back().size());
    widths[1] = std::max(widths[1], to_string(tensor.type()).size());
  }
  print("{:<{}}  {:<{}} {:>13} {:>13} {:>13} {:>13}\n", "fetch", widths[0], "type", widths[1], "min", "max", "mean",
        "norm");
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Tensor& tensor = outcome.fetches[i].second;
    const Summary seen = summarize(tensor);
    print("{:<{}}  {:<{}} {:>13.6g} {:>13.6g} {:>13.6g} {:>13.6g}{}\n", names[i], widths[0], to_string(tensor.type()),
          widths[1], seen.min, seen.max, seen.mean, seen.norm,
          seen.is_finite() ? "" : fmt::format("  {} NaN, {} infinite", seen.nans, seen.infinities));
  }
  const Timing& timing = outcome.timing;
  print("first run {:.3f} ms\n", timing.first_ms);
  if (!timing.repeated_ms.empty()) {
    print("{} more runs, each waited for: median {:.3f} ms [{:.3f}, {:.3f}]\n", timing.repeated_ms.size(),
          timing.median(), timing.repeated_ms.front(), timing.repeated_ms.back());
  }
  if (outcome.is_checked) print("check-finite: the results, and the parameters after the run, are finite\n");
  if (!outcome.profile.empty()) print_report("\n" + outcome.profile);
}

void print_json(const Outcome& outcome) {
  const CompileReport& report = *outcome.report;
  std::vector<std::string> fetches;
  for (const auto& [name, tensor] : outcome.fetches) {
    const Summary seen = summarize(tensor);
    std::vector<std::string> dims;
    for (const std::int64_t dim : tensor.shape()) dims.push_back(fmt::format("{}", dim));
    JsonObject fetch;
    fetch.add("name", name).add("dtype", to_string(tensor.dtype())).add_json("shape", json_array(dims));
    fetch.add("min", seen.min).add("max", seen.max).add("mean", seen.mean).add("norm", seen.norm);
    fetch.add("nan", seen.nans).add("infinite", seen.infinities);
    fetches.push_back(fetch.text());
  }
  JsonObject all;
  all.add("device", to_string(outcome.device)).add("compile_ms", report.milliseconds);
  all.add("kernel_compile_ms", report.kernel_milliseconds).add("kernels_compiled", report.kernels_compiled);
  all.add("launches", report.launches).add("arena_bytes", report.arena_bytes);
  all.add("peak_live_bytes", report.peak_live_bytes).add("first_ms", outcome.timing.first_ms);
  if (!outcome.timing.repeated_ms.empty()) {
    const std::vector<double>& times = outcome.timing.repeated_ms;
    all.add("runs", static_cast<std::int64_t>(times.size())).add("median_ms", outcome.timing.median());
    all.add("min_ms", times.front()).add("max_ms", times.back());
  }
  if (outcome.is_checked) all.add("check_finite", true);
  if (!outcome.printed.empty()) all.add_json("printed", json_array(outcome.printed));
  all.add_json("fetches", json_array(fetches));
  if (!outcome.profile.empty()) all.add("profile", outcome.profile);
  print("{}\n", all.text());
}

int run(RunOptions& options) {
  check_options(options);
  CompileOptions compile = options.compile.options();
  LoadedGraph loaded = load_graph(options.file, options.which, [&] { return options.feeds.types(); });
  const std::unique_ptr<Graph>& graph = loaded.graph;
  if (graph->fetches().empty()) {
    fail(ErrorKind::argument, "{}: the graph fetches nothing; a line `fetch NAME` names a result", options.file);
  }
  const std::map<std::string, Tensor> feeds = options.feeds.collect(*graph, std::move(loaded.parameters));

  if (options.stepwise || env_flag("PAODING_STEPWISE")) compile.execution = Execution::stepwise;
  PrintedValues printed(options.json);
  bool is_printing = true;  // the first run only
  compile.on_print = [&](const Printed& value) {
    check_interrupted();
    if (is_printing) printed.see(value);
  };
  compile.after_pass = [](const std::string& pass, const Graph&) {
    check_interrupted();
    show_progress("compiling: " + pass);
  };

  Parameters parameters(*graph, compile.device);
  for (const std::string& name : parameters.names()) parameters.set(name, feeds.at(name));
  if (options.check_finite) check_finite(*graph, parameters, feeds, compile);
  Program program(*graph, compile, &parameters);
  show_progress("");
  explain(options.compile, program.report());
  for (const std::string& name : program.input_names()) program.set_input(program.input_index(name), feeds.at(name));

  Outcome outcome;
  outcome.device = compile.device;
  outcome.report = &program.report();
  outcome.is_checked = options.check_finite;
  time_runs(program, options, &outcome, &is_printing);
  outcome.printed = printed.objects();
  std::map<std::string, Tensor> results;
  for (const std::string& name : program.fetch_names()) {
    outcome.fetches.emplace_back(name, program.fetch(program.fetch_index(name)));
    results.emplace(outcome.fetches.back());
  }
  if (!options.fetch_path.empty()) save_safetensors(options.fetch_path, results);
  options.json ? print_json(outcome) : print_outcome(outcome);
  return kOk;
}

}  // namespace

void add_run(CLI::App& app, Commands* commands) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* sub = app.add_subcommand(
      "run",
      "Run a graph and say what came out and how long it took\n\n"
      "Reads a graph as text (docs/reference/graph_text.md), or one of a model file with its weights, at the sizes of\n"
      "--extents or of the values where the text declares extents, takes the values of its inputs and parameters by\n"
      "name from safetensors files and checkpoints, compiles it for a device and runs it. Everything that is wrong\n"
      "with the graph or the values is found before any work. Prints every fetch with its type, min, max, mean and "
      "norm, and the times of the "
      "runs;\n"
      "the first run, which warms caches up, is told apart. Every value that reaches a `print` op in the first run is\n"
      "shown as it comes, with the op's message, its scope and the time step in a scan: 16 elements, and of longer\n"
      "values min, max, mean and norm. With --json they are in \"printed\", whole.");
  sub->add_option("FILE", options->file, "A graph's text, or a model file (.pd); - is a text on stdin")
      ->type_name("")
      ->required();
  options->feeds.add_to(*sub);
  options->which.add_to(*sub);
  sub->add_option("--fetch", options->fetch_path, "Write the fetches to this safetensors file")->type_name("FILE");
  sub->add_option("--repeat", options->repeat, "Runs to time, after the first")
      ->check(whole_number(0, 1 << 30))
      ->type_name("N")
      ->capture_default_str();
  options->compile.add_to(*sub);
  sub->add_flag("--profile", options->has_profile,
                "Profile the repeated runs (one, without --repeat) and print the report (docs/reference/profiling.md)");
  options->report.add_to(*sub);
  sub->add_option("--profile-path", options->profile_path,
                  "Also write the timeline (Chrome's trace format: .json, .json.gz; Perfetto's: .pftrace), or the\n"
                  "recording, which `paoding report` reads (.paoding), or what --html does (.html)")
      ->type_name("FILE");
  sub->add_option("--profile-steps", options->profile_steps,
                  "Profile these of the repeated runs, counted from 0: 2:8 is 2 to 7. The report counts its\n"
                  "steps from 1")
      ->type_name("FIRST:END");
  sub->add_option("--cupti-steps", options->cupti_steps, kCuptiStepsHelp)->type_name("FIRST:END");
  sub->add_flag("--stepwise", options->stepwise, "Launch and check step by step (as PAODING_STEPWISE=1)");
  sub->add_flag(
      "--check-finite", options->check_finite,
      "Fail when a result, or a parameter after the run, is non-finite, and say where that began: a run step\n"
      "by step is followed back to the first value that is not");
  sub->add_flag("--json", options->json, "Print one JSON object");
  sub->footer(
      "Examples:\n"
      "  paoding run examples/graphs/lerp_grad.txt --random 7 --repeat 50\n"
      "  paoding run examples/graphs/lstm.txt --random 7 --repeat 10 --profile --detail instances\n"
      "  paoding run examples/graphs/lstm.txt --random 7 --fetch /tmp/grads.safetensors --device cpu\n"
      "  paoding run examples/graphs/lstm_of_any_length.txt --extents batch=2,time=57 --random 7\n"
      "  paoding run model.pd --extents batch=1,time=80 --random 7 --repeat 100\n"
      "  paoding run evaluate.txt --feed runs/mine batch.safetensors --allow-surplus\n"
      "  paoding run examples/graphs/log_of_negative.txt --random 7 --check-finite");
  commands->push_back({sub, [options] {
                         options->has_profile = options->has_profile || !options->profile_path.empty() ||
                                                !options->profile_steps.empty() || !options->cupti_steps.empty();
                         return run(*options);
                       }});
}

}  // namespace paoding::cli
