// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/binds.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <map>
#include <memory>
#include <optional>

#include "cli/bench/seq2seq.h"
#include "cli/bench/timing.h"
#include "cli/staged.h"
#include "io/json_text.h"
#include "paoding/nn.h"
#include "paoding/ops.h"
#include "paoding/ops/lists.h"

namespace paoding::cli::bench {
namespace {

struct BindsBench {
  std::string target, json_path;
  std::int64_t sizes = 40;
  std::vector<std::string> graphs = {"seq2seq", "g2p", "voice"};
};

// The processor time of this thread: other work on the machine does not count.
double processor_ms() {
  std::timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// Whether frames of a sound are speech, as small models of it are: a spectrum, four convolutions, an LSTM.
void build_voice(Graph& graph, std::int64_t frames) {
  constexpr std::int64_t kBands = 129, kHidden = 128;
  const Value x = graph.input("x", f32, {1, kBands, 1, frames});
  Value y = sqrt(x * x + 1e-9);
  std::int64_t channels = kBands;
  for (const std::int64_t outputs : {128, 64, 64, 128}) {
    const nn::Conv2d conv(graph, fmt::format("conv{}", graph.size()), channels, outputs, {1, 3},
                          {.conv = {.padding = {0, 0, 1, 1}}});
    y = relu(conv(y));
    channels = outputs;
  }
  const Value over_time = transpose(reshape(y, {channels, 1, frames}), {2, 1, 0});
  const Value h = graph.parameter("h", f32, {1, 1, kHidden}), c = graph.parameter("c", f32, {1, 1, kHidden});
  const auto state = [&](const Value& of) { return reshape(of, {1, kHidden}); };
  const nn::Lstm lstm(graph, "lstm", channels, kHidden);
  const RecurrentResult made = lstm(over_time, {.initial_h = {state(h)}, .initial_c = {state(c)}});
  graph.assign(h, reshape(made.last_h[0], {1, 1, kHidden}));
  graph.assign(c, reshape(made.last_c[0], {1, 1, kHidden}));
  const nn::Linear out(graph, "out", kHidden, 1);
  graph.fetch("speech", sigmoid(out(relu(made.outputs))));
}

// The graph of that name, at the size with this number; no two sizes are equal.
void build(const std::string& name, std::int64_t number, Graph* graph) {
  if (name == "voice") return build_voice(*graph, 8 + number);
  Seq2SeqSize size = name == "g2p" ? g2p_size() : translation_size();
  size.source_steps = 12 + number;
  size.target_steps = 9 + number;
  build_seq2seq_step(*graph, size, f32);
}

// Times of the stages of binds: a stage has as many as there were binds.
class Stages {
 public:
  // A bind begins.
  void begin() {
    ++binds_;
    for (auto& [stage, times] : times_) times.push_back(0);
  }
  void add(const std::string& stage, double ms) {
    const auto [found, is_new] = times_.try_emplace(stage, binds_, 0.0);
    if (is_new) order_.push_back(stage);
    found->second.back() += ms;
  }
  double median(const std::string& stage) const {
    std::vector<double> sorted = times_.at(stage);
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  const std::vector<std::string>& order() const { return order_; }

 private:
  std::size_t binds_ = 0;
  std::map<std::string, std::vector<double>> times_;
  std::vector<std::string> order_;  // the stages as they come
};

// Times compile_plan(), pass by pass.
void plan_stages(const Graph& graph, const TargetPtr& target, bool has_parameters, Stages* stages) {
  CompileOptions options;
  const double start = processor_ms();
  double since = start, passes = 0;
  options.after_pass = [&](const std::string& pass, const Graph&) {
    const double now = processor_ms();
    stages->add("pass " + pass, now - since);
    passes += now - since;
    since = processor_ms();
  };
  const CompiledPlan compiled = compile_plan(graph, options, target, preprocess_of(options, has_parameters));
  const double end = processor_ms();
  stages->add("passes", passes);
  stages->add("plan", end - since);
  stages->add("passes and plan", end - start);
}

int run_binds(const BindsBench& bench) {
  const TargetPtr target = cli::target_of(bench.target, "cpu");
  std::vector<std::string> items;
  for (const std::string& name : bench.graphs) {
    Graph known;
    build(name, -1, &known);
    const Parameters parameters(known, Device::cpu());
    std::optional<Program> program;
    if (bench.target.empty()) program.emplace(known, CompileOptions{}, &parameters);
    Stages stages;
    NodeId nodes = 0;
    for (std::int64_t number = 0; number < bench.sizes; ++number) {
      Graph graph;
      build(name, number, &graph);
      nodes = graph.size();
      stages.begin();
      plan_stages(graph, target, true, &stages);
      if (!program) continue;
      const double start = processor_ms();
      { const Program bound = program->bind(graph); }
      stages.add("bind", processor_ms() - start);
    }
    print("{}: {} nodes, {} sizes on {}; processor time in ms, the median of each\n", name, nodes, bench.sizes,
          target->name);
    JsonObject row, medians;
    row.add("graph", name).add("nodes", static_cast<std::int64_t>(nodes)).add("sizes", bench.sizes);
    row.add("target", target->name);
    for (const std::string& stage : stages.order()) {
      print("  {:<32} {:>9.3f}\n", stage, stages.median(stage));
      medians.add(stage, stages.median(stage));
    }
    row.add_json("ms", medians.text());
    items.push_back(row.text());
  }
  if (!bench.json_path.empty()) {
    JsonObject file("\n");
    file.add("what", "processor time of binding programs to other sizes of a known graph, by stage, in ms");
    file.add("machine", machine_facts(Device::cpu()).name);
    file.add_json("rows", json_array(items));
    write_json(bench.json_path, file.text());
  }
  return kOk;
}

}  // namespace

void add_binds(CLI::App& parent, Commands* commands) {
  CLI::App* sub =
      parent.add_subcommand("binds",
                            "Programs bound to other sizes of a known graph, by stage\n\n"
                            "The processor time of a bind: the median over sizes that have not been seen. `passes` and "
                            "`plan` need no device;\n"
                            "`bind` has kernels and memory as well, where the target is this machine's CPU.");
  const auto options = std::make_shared<BindsBench>();
  sub->add_option("--graph", options->graphs, "Only these: seq2seq, g2p (training steps), voice")
      ->check(CLI::IsMember({"seq2seq", "g2p", "voice"}).description(""))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAMES");
  sub->add_option("--target", options->target, "Plan for this machine, which need not be there: a100, h200, ..")
      ->type_name("NAME");
  sub->add_option("--sizes", options->sizes, "So many sizes")
      ->check(whole_number(1, 1 << 10))
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("--json", options->json_path, "Also write the times to this file")->type_name("FILE");
  sub->footer(
      "Examples:\n"
      "  paoding bench binds\n"
      "  paoding bench binds --graph seq2seq --target h200");
  commands->push_back({sub, [options] { return run_binds(*options); }});
}

}  // namespace paoding::cli::bench
