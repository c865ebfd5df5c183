// SPDX-License-Identifier: Apache-2.0
// paoding dump: a graph at any stage of compiling, its plan, and the kernels made for it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/one_line.h"
#include "command.h"
#include "graph_file.h"
#include "schedule/schedule.h"
#include "staged.h"

#if PAODING_WITH_CUDA
#include "gpu/codegen/text_launch.h"
#endif

namespace paoding::cli {
namespace {

struct DumpOptions {
  std::string file, after;
  bool passes = false, plan = false, kernels = false, times = false;
  CompileFlags compile;
  GraphFlags which;
  std::string target_name;
  TargetPtr target;
};

// ---- stages ----

struct Stage {
  std::string pass;
  std::string text;
};

std::vector<Stage> stages_of(const Graph& graph, const DumpOptions& options, CompiledPlan* compiled) {
  std::vector<Stage> stages;
  *compiled = plan_of(graph, options.compile, options.target, [&](const std::string& pass, const Graph& now) {
    stages.push_back({pass, to_text(now)});
  });
  return stages;
}

void print_after(const Graph& graph, const DumpOptions& options) {
  CompiledPlan compiled;
  const std::vector<Stage> stages = stages_of(graph, options, &compiled);
  // "merge_duplicates#2" is its second turn; without a number the last one counts.
  const std::size_t mark = options.after.find('#');
  const std::string name = options.after.substr(0, mark);
  check_pass_names({name});
  std::vector<const Stage*> turns;
  for (const Stage& stage : stages) {
    if (stage.pass == name) turns.push_back(&stage);
  }
  if (turns.empty()) throw UsageError(fmt::format("--after {}: this pass is switched off by --no-pass", name));
  const std::string number =
      mark == std::string::npos ? fmt::format("{}", turns.size()) : options.after.substr(mark + 1);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    if (number == fmt::format("{}", i + 1)) return print_text(turns[i]->text);
  }
  throw UsageError(fmt::format("--after {}: {} runs {} times", options.after, name, turns.size()));
}

void print_all_stages(const Graph& graph, const DumpOptions& options) {
  CompiledPlan compiled;
  std::string before = to_text(graph);
  print("# as read: {} nodes\n{}", graph.size(), before);
  std::size_t i = 0;
  for (const Stage& stage : stages_of(graph, options, &compiled)) {
    const PassRecord& record = compiled.passes.at(i++);
    print("\n# after {}: {} -> {} nodes{}\n", record.name, record.nodes_before, record.nodes_after,
          stage.text == before ? ", nothing changed" : "");
    for (const std::string& note : record.notes) print("#   {}\n", note);
    if (stage.text != before) print_text(stage.text);
    before = stage.text;
  }
}

void print_times(const Graph& graph, const DumpOptions& options) {
  const CompiledPlan compiled = plan_of(graph, options.compile, options.target);
  double total = 0;
  print("{:<18} {:>9} {:>7} {:>7}  {}\n", "pass", "ms", "before", "after", "notes");
  for (const PassRecord& record : compiled.passes) {
    print("{:<18} {:>9.3f} {:>7} {:>7}  {}\n", record.name, record.milliseconds, record.nodes_before,
          record.nodes_after, record.notes.empty() ? "" : record.notes.front());
    for (std::size_t i = 1; i < record.notes.size(); ++i) print("{:<46}{}\n", "", record.notes[i]);
    total += record.milliseconds;
  }
  print("{:<18} {:>9.3f}\n", "all", total);
}

void print_plan(const Graph& graph, const DumpOptions& options) {
  const CompiledPlan compiled = plan_of(graph, options.compile, options.target);
  if (compiled.preprocessed.graph != nullptr) {
    print("made once, and again when a parameter was written:\n{}\nin every run:\n",
          to_string(compiled.preprocessing_plan));
  }
  print_text(to_string(compiled.plan));
  print_text(to_string(make_schedule(compiled.plan)));
}

// ---- kernels ----

#if PAODING_WITH_CUDA
void print_kernels_of(const std::vector<Step>& steps, std::set<std::string>* seen) {
  for (const Step& step : steps) {
    check_interrupted();
    for (const auto* body : step.bodies()) print_kernels_of(*body, seen);
    if (step.text == nullptr) continue;
    for (const gpu::TextLaunch& kernel : step.text->launches) {
      print("// step {}: {}{}\n// {}; grid {} x {} x {}, block {}{}{}{}\n", step.position, step_name(step),
            step.label.scope.empty() ? "" : " in " + one_line(step.label.scope), kernel.why, kernel.grid[0],
            kernel.grid[1], kernel.grid[2], kernel.block,
            kernel.cluster > 1 ? fmt::format(", clusters of {}", kernel.cluster) : "",
            kernel.shared_bytes > 0 ? fmt::format(", {} bytes of shared memory", kernel.shared_bytes) : "",
            kernel.floor_us > 0 ? fmt::format(", floor {:.2f} us", kernel.floor_us) : "");
      if (seen->insert(kernel.source).second) {
        print("{}\n", kernel.source.text());
      } else {
        print("// the text is that of an earlier step\n\n");
      }
    }
  }
}

void print_kernels(const Graph& graph, const DumpOptions& options) {
  std::set<std::string> seen;
  const TargetPtr target = options.target->is_gpu() ? options.target : target_of("", "cuda");
  const CompiledPlan compiled = plan_of(graph, options.compile, target);
  print_kernels_of(compiled.plan.steps, &seen);
}
#else
void print_kernels(const Graph&, const DumpOptions&) {
  fail(ErrorKind::unsupported, "dump: this build has no GPU back end; build paoding where CUDA's headers are");
}
#endif

int dump(DumpOptions options) {
  check_pass_names(options.compile.no_pass);
  options.target = target_of(options.target_name, options.compile.device);
  const LoadedGraph loaded = load_graph(options.file, options.which);
  const std::unique_ptr<Graph>& graph = loaded.graph;
  if (options.times) print_times(*graph, options);
  if (options.passes) print_all_stages(*graph, options);
  if (!options.after.empty()) print_after(*graph, options);
  if (options.plan) print_plan(*graph, options);
  if (options.kernels) print_kernels(*graph, options);
  if (options.after.empty() && !options.passes && !options.plan && !options.kernels && !options.times) {
    print_text(to_text(*graph));
  }
  return kOk;
}

}  // namespace

void add_dump(CLI::App& app, Commands* commands) {
  auto options = std::make_shared<DumpOptions>();
  options->compile.device = "cpu";
  std::string passes;
  for (const std::string& name : pass_names()) passes += (passes.empty() ? "" : ", ") + name;
  CLI::App* sub = app.add_subcommand(
      "dump",
      "Show what the compiler makes of a graph, stage by stage\n\n"
      "Prints the graph as read (gradients and composed ops expanded), after a pass, after every pass with the pass's\n"
      "notes, its plan (steps, operands, memory), or the CUDA source of its kernels. Nothing is run and no device is\n"
      "needed, not even for --device cuda. The passes, in the order they first run:\n  " +
          passes);
  sub->add_option("FILE", options->file, "A graph's text, or a model file (.pd); - is a text on stdin")
      ->type_name("")
      ->required();
  options->which.add_to(*sub);
  sub->add_option("--after", options->after,
                  "The graph after this pass; PASS#1 is the first turn of one that runs twice")
      ->type_name("PASS");
  sub->add_flag("--passes", options->passes, "Every stage with what the passes noted");
  sub->add_flag("--plan", options->plan,
                "The plan for the device and its schedule: what starts, in order, what shares a launch, and what does "
                "not and why");
  sub->add_flag("--kernels", options->kernels, "The CUDA source of the plan for a GPU");
  sub->add_flag("--times", options->times, "What each pass took, nodes before and after, notes");
  sub->add_option("--device", options->compile.device, "Plan for cpu, cuda or best")
      ->type_name("DEVICE")
      ->capture_default_str();
  std::string targets;
  for (const Target& target : named_targets()) targets += (targets.empty() ? "" : ", ") + target.name;
  sub->add_option("--target", options->target_name,
                  "Plan for a chip that need not be here: " + targets +
                      ". Without it, for the device; an H200 where\n"
                      "--device or --kernels asks for a GPU and there is none")
      ->type_name("NAME");
  sub->add_option("--no-pass", options->compile.no_pass, "Passes to leave out, split by commas")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAMES");
  sub->add_flag("--tf32", options->compile.allow_tf32, "Plan with TF32 products");
  options->compile.precision.add_to(*sub);
  sub->footer(
      "Examples:\n"
      "  paoding dump examples/graphs/lstm.txt --times\n"
      "  paoding dump examples/graphs/lstm.txt --after hoist_products\n"
      "  paoding dump examples/graphs/lerp_grad.txt --kernels --target a100\n"
      "  paoding dump examples/graphs/lstm.txt --plan --no-pass fuse_groups,alias_views");
  commands->push_back({sub, [options] { return dump(*options); }});
}

}  // namespace paoding::cli
