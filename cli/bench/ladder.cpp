// SPDX-License-Identifier: Apache-2.0
// The ladder: an LSTM forward, and with all its gradients, op by op, in one run, with passes, as one kernel, and as
// other programs do it, all as a caller waits for it. Every rung of ours is compared with float64 before it is timed.
#include "cli/bench/ladder.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "cli/bench/peer_rows.h"
#include "cli/bench/recurrent.h"
#include "cli/bench/table.h"
#include "cli/report_flags.h"
#include "io/json_text.h"
#include "paoding/profile.h"

namespace paoding::cli::bench {
namespace {

struct LadderOptions {
  CompileFlags compile;
  RecurrentLayers layers;
  std::string dtype = "f32", only;
  std::vector<std::string> peers;
  std::string timelines, json_path;
  bool is_quick = false, skips_check = false;

  RecurrentLayers of(bool is_training) const {
    RecurrentLayers made = layers;
    made.is_training = is_training;
    return made;
  }
  Case work(bool is_training) const {
    DType type = DType::f32;
    if (!parse_dtype(dtype, &type) || !is_float(type)) {
      throw UsageError(fmt::format("--dtype is '{}', needs to be f32, bf16, f16 or f64", dtype));
    }
    Case made = recurrent_case(of(is_training), type, compile.allow_tf32);
    for (const Case& known : recurrent_cases()) {  // where steps wait for each other the floor was counted by hand
      if (known.name == made.name) made.need.floor_us = known.need.floor_us;
    }
    return made;
  }
};

// A way of ours to run the work.
struct LadderWay {
  const char* name;
  const char* file;  // of its timeline
  void (*set)(CompileOptions& options);
};

void leave_out_passes(CompileOptions& options) { options.disabled_passes = pass_names(); }

constexpr LadderWay kWays[] = {
    {"op by op, each waited for", "op_by_op",
     [](CompileOptions& options) {
       leave_out_passes(options);
       options.execution = Execution::stepwise;
     }},
    {"op by op, one run", "op_by_op_one_run", leave_out_passes},
    {"passes, no kernel for the whole", "passes",
     [](CompileOptions& options) { options.disabled_passes.emplace_back("claim_composed"); }},
    {"paoding", "paoding", [](CompileOptions&) {}},
};

struct Rung {
  std::string name, why;  // why: there is no time
  double us = 0, us_min = 0, us_max = 0;
  double floor_us = 0, launches = 0;
  std::optional<double> error = {};
  bool is_ours = false, is_right = true;
};

// The row of wall time with warm caches.
Row wall_row(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    if (row.is_wall && !row.is_swept) return row;
  }
  return rows.back();
}

void write_timeline(Program& program, const Device& device, const std::string& path) {
  Profiler profiler(ReportFlags::state_of(device));
  for (int i = 0; i < 3; ++i) program.run();
  program.wait();
  profiler.stop(SortBy::total, path);
}

Rung measure(const LadderWay& way, const Case& work, const LadderOptions& options, const MachineFacts& machine,
             Floors* floors) {
  MeasureOptions measure;
  measure.compile = options.compile.options();
  way.set(measure.compile);
  measure.is_quick = options.is_quick, measure.skips_check = options.skips_check;
  measure.on_compiled = [&](const CompileReport& report) { explain(options.compile, report); };
  PreparedCase prepared(work, measure, machine, floors);
  const Row row = wall_row(prepared.time());
  Rung rung{.name = way.name, .why = row.waits_for, .is_ours = true};
  if (!rung.why.empty()) return rung;
  rung.us = row.time.median, rung.us_min = row.time.min, rung.us_max = row.time.max;
  rung.floor_us = row.floor.with_launch, rung.launches = row.launches;
  rung.error = row.error, rung.is_right = row.is_right;
  if (!options.timelines.empty()) {
    const char* kind = options.layers.is_training ? "training" : "forward";
    write_timeline(*prepared.program(), measure.compile.device,
                   fmt::format("{}/{}_{}.json", options.timelines, kind, way.file));
  }
  return rung;
}

std::string json_of(const Rung& rung, const char* work, double first_us, double steps) {
  JsonObject object;
  object.add("work", work).add("rung", rung.name).add("ours", rung.is_ours);
  if (!rung.why.empty()) return object.add_json("us", "null").add("why", rung.why).text();
  object.add("us", rung.us).add("us_min", rung.us_min).add("us_max", rung.us_max);
  object.add("times", first_us / rung.us).add("us_a_step", rung.us / steps);
  if (rung.floor_us > 0) object.add("floor_us", rung.floor_us);
  if (rung.is_ours) object.add("launches", rung.launches).add("right", rung.is_right);
  if (rung.error) object.add("error", *rung.error);
  return object.text();
}

// The first stays the first; below it the slower are above the faster.
void print_ladder(const char* work, std::vector<Rung> rungs, double steps, std::vector<std::string>* items) {
  const auto is_slower = [](const Rung& a, const Rung& b) {
    return a.why.empty() != b.why.empty() ? a.why.empty() : a.us > b.us;
  };
  std::stable_sort(rungs.begin() + 1, rungs.end(), is_slower);
  const double first_us = rungs[0].us;
  print("{:<44} {:>28} {:>8} {:>10} {:>9} {:>8}  {}\n", work, "us", "times", "us a step", "of floor", "launches",
        "err");
  for (const Rung& rung : rungs) {
    items->push_back(json_of(rung, work, first_us, steps));
    if (!rung.why.empty()) {
      print("  {:<42} {}\n", rung.name, rung.why);
      continue;
    }
    const std::string of_floor = rung.floor_us > 0 ? fmt::format("{:.0f}%", 100 * rung.floor_us / rung.us) : "-";
    print("  {:<42} {:>28} {:>8.1f} {:>10.2f} {:>9} {:>8}  {}{}\n", rung.name,
          to_string(Samples{.median = rung.us, .min = rung.us_min, .max = rung.us_max}), first_us / rung.us,
          rung.us / steps, of_floor, rung.launches > 0 ? fmt::format("{:.4g}", rung.launches) : "-",
          rung.error ? fmt::format("{:.1e}", *rung.error) : "-", rung.is_right ? "" : "  WRONG");
  }
  print_text("\n");
  flush_output();
}

int run_ladder(LadderOptions options) {
  if (!options.json_path.empty()) write_json(options.json_path, "{}");  // a wrong path is found before the work
  if (!options.timelines.empty()) {
    std::error_code problem;
    std::filesystem::create_directories(options.timelines, problem);
    if (problem) fail(ErrorKind::file, "{}: cannot make the folder: {}", options.timelines, problem.message());
  }
  const Device device = options.compile.options().device;
  const MachineFacts machine = machine_facts(device);
  Floors floors(device, machine);
  std::vector<Case> works;
  for (const bool is_training : {false, true}) {
    const bool is_meant = options.only.empty() || (options.only == "training") == is_training;
    if (is_meant) works.push_back(options.work(is_training));
  }
  const std::vector<std::vector<PeerRow>> theirs = peer_rows(options.peers, works, options.is_quick);
  print(
      "paoding bench lstm on {} ({}): {}, {}\n{}wall time of one run and its wait; times: how often the first rung's "
      "fits; of floor: as `paoding bench` has it\n\n",
      to_string(device), machine.name, works[0].what, type_text(works[0]), load_warning());
  const auto steps = static_cast<double>(options.layers.steps);
  std::vector<std::string> items;
  bool all_right = true;
  double forward_floor_us = 0;  // a training step has the forward pass in it
  for (std::size_t w = 0; w < works.size(); ++w) {
    options.layers.is_training = works[w].kind == "lstm_training";
    std::vector<Rung> rungs;
    for (const LadderWay& way : kWays) {
      show_progress(fmt::format("{}: {}", works[w].name, way.name));
      rungs.push_back(measure(way, works[w], options, machine, &floors));
      rungs.back().floor_us = std::max(rungs.back().floor_us, forward_floor_us);
      all_right = all_right && rungs.back().is_right;
    }
    show_progress("");
    forward_floor_us = rungs[0].floor_us;
    for (const PeerRow& row : theirs[w]) {
      rungs.push_back({.name = row.name,
                       .why = row.why,
                       .us = row.us,
                       .us_min = row.us_min,
                       .us_max = row.us_max,
                       .floor_us = rungs.back().floor_us});
    }
    print_ladder(options.layers.is_training ? "training" : "forward", rungs, steps, &items);
  }
  if (!options.json_path.empty()) {
    JsonObject layer;
    layer.add("steps", options.layers.steps).add("batch", options.layers.batch).add("hidden", options.layers.hidden);
    layer.add("layers", options.layers.layers).add("dtype", type_text(works[0]));
    items.insert(items.begin(), layer.text());  // the first row describes the layer of all others
    write_json(options.json_path, report_json(device, machine, items));
  }
  if (!all_right) print_error("paoding: bench: results are WRONG, see above\n");
  return all_right ? kOk : kFailed;
}

void add_count(CLI::App* sub, const char* name, std::int64_t& count, int most, const char* meaning) {
  sub->add_option(name, count, meaning)->check(whole_number(1, most))->type_name("N")->capture_default_str();
}

}  // namespace

void add_ladder(CLI::App& bench, Commands* commands) {
  CLI::App* sub = bench.add_subcommand(
      "lstm",
      "An LSTM layer in every way to run it: op by op, in one run, with passes, as one kernel\n\n"
      "Wall time of each, how often the first fits into it, what a time step takes, and how much of it the floor is;\n"
      "forward, then with all gradients. Others that do the same work are asked with --peer.");
  const auto options = std::make_shared<LadderOptions>();
  options->compile.add_to(*sub, false);
  sub->add_option("--dtype", options->dtype, "f32, bf16, f16 or f64")->type_name("DTYPE")->capture_default_str();
  add_count(sub, "--steps", options->layers.steps, 1 << 16, "Time steps");
  add_count(sub, "--batch", options->layers.batch, 1 << 16, "Rows");
  add_count(sub, "--hidden", options->layers.hidden, 1 << 14, "Width of inputs and state");
  add_count(sub, "--layers", options->layers.layers, 64, "Layers");
  sub->add_option("--only", options->only, "Only forward, or only training")
      ->check(CLI::IsMember({"forward", "training"}).description(""))
      ->type_name("WORK");
  sub->add_option("--peer", options->peers,
                  "A command that does the same work, as benchmarks/peers/protocol.py says; as often as wanted")
      ->allow_extra_args(false)
      ->type_name("COMMAND");
  sub->add_option("--timelines", options->timelines, "Also write a timeline of each rung of ours into this folder")
      ->type_name("FOLDER");
  sub->add_flag("--quick", options->is_quick, "Fewer samples: 10 instead of at least 50");
  sub->add_flag("--no-check", options->skips_check, "Leave out the comparison with float64");
  sub->add_option("--json", options->json_path, "Also write the rungs to this file")->type_name("FILE");
  sub->footer(
      "Examples:\n"
      "  paoding bench lstm --quick\n"
      "  paoding bench lstm --device cpu --hidden 128 --timelines ladder\n"
      "  paoding bench lstm --peer 'python3 benchmarks/peers/torch_peer.py cuda' --peer /tmp/cudnn_rnn");
  commands->push_back({sub, [options] { return run_ladder(*options); }});
}

}  // namespace paoding::cli::bench
