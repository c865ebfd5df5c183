// SPDX-License-Identifier: Apache-2.0
// paoding bench kernels: work that is bound by memory, beside a copy of the same bytes: normalisation, cross entropy,
// the optimizer.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>

#include "base/check.h"
#include "bench_timing.h"
#include "command.h"
#include "io/json_text.h"
#include "numbers.h"
#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "paoding/optimizer.h"

namespace paoding::cli {
namespace {

struct KernelOptions {
  CompileFlags compile;
  std::string dtype = "f32";
  std::vector<std::string> cases;
  bool quick = false, skip_check = false;
  std::string json_path;
};

struct Case {
  std::string name;
  std::string shape;
  double bytes = 0;  // that must move: each input once, each result once
  std::function<void(Graph&, DType)> build;
};

constexpr std::int64_t kRows = 8192, kColumns = 1024;       // layer_norm
constexpr std::int64_t kTokens = 6400, kWords = 7709;       // cross entropy
constexpr std::int64_t kTensors = 10, kElements = 1000000;  // Adam

void build_layer_norm(Graph& graph, DType dtype, bool is_backward) {
  const Value x = graph.input("x", dtype, {kRows, kColumns});
  const Value gamma = graph.input("gamma", dtype, {kColumns}), beta = graph.input("beta", dtype, {kColumns});
  const Value y = layer_norm(x, gamma, beta);
  if (!is_backward) return graph.fetch("y", y);
  const Value dy = graph.input("dy", dtype, {kRows, kColumns});
  const Values grads = gradients(std::array{y}, std::array{x, gamma, beta}, std::array{dy});
  // In training the forward pass has left mean and variance behind.
  const NodeId norm = y.ref().node;
  for (const auto& [output, name] : {std::pair{1, "mean"}, std::pair{2, "variance"}}) {
    graph.replace({norm, output},
                  graph.input(name, graph.type({norm, output}).dtype, graph.type({norm, output}).shape).ref());
  }
  const char* names[] = {"dx", "dgamma", "dbeta"};
  for (std::size_t i = 0; i < grads.size(); ++i) graph.fetch(names[i], grads[i]);
}

void build_cross_entropy(Graph& graph, DType dtype) {
  const Value logits = graph.input("logits", dtype, {kTokens, kWords});
  const Value labels = graph.input("labels", i64, {kTokens});
  const Value loss = cross_entropy(logits, labels);
  graph.fetch("loss", loss);
  graph.fetch("dlogits", gradients(loss, {logits})[0]);
}

// The gradients are fed: sum(p g) has the gradient g for p.
void build_adam(Graph& graph, DType dtype) {
  Values terms;
  for (std::int64_t i = 0; i < kTensors; ++i) {
    const Value p = graph.parameter(fmt::format("p{}", i), dtype, {kElements});
    terms.push_back(sum(p * graph.input(fmt::format("g{}", i), dtype, {kElements})));
  }
  const TrainingStep step = minimize(add_n(terms), Adam{});
  graph.fetch("learning_rate", step.learning_rate);
}

std::vector<Case> all_cases(DType dtype) {
  const double size = static_cast<double>(size_bytes(dtype));
  const double rows = static_cast<double>(kRows * kColumns) * size,
               words = static_cast<double>(kTokens * kWords) * size;
  const std::string row_text = fmt::format("[{}, {}]", kRows, kColumns);
  return {
      {"layer_norm", row_text, 2 * rows, [](Graph& g, DType d) { build_layer_norm(g, d, false); }},
      {"layer_norm_grad", row_text, 3 * rows, [](Graph& g, DType d) { build_layer_norm(g, d, true); }},
      {"cross_entropy", fmt::format("[{}, {}]", kTokens, kWords), 2 * words, build_cross_entropy},
      {"adam", fmt::format("{} x [{}]", kTensors, kElements), 7 * size * static_cast<double>(kTensors * kElements),
       build_adam},
  };
}

Tensor feed_of(const Type& type, const std::string& name) {
  if (name == "variance") {
    std::vector<double> variances = random_tensor(type, 1, name).to_doubles();
    for (double& variance : variances) variance = 0.5 + variance * variance;
    return Tensor::from(type.dtype, type.shape, variances);
  }
  if (type.dtype != i64) return random_tensor(type, 1, name);
  std::vector<double> labels(static_cast<std::size_t>(type.shape.elements()));
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<double>(i * 7919 % kWords);
  return Tensor::from(type.dtype, type.shape, labels);
}

// One run from fixed feeds and parameters.
Program start(Graph& graph, const CompileOptions& options, Parameters* parameters) {
  for (const std::string& name : parameters->names()) {
    const Type type = graph.find(name).type();
    if (name.starts_with("p"))
      parameters->set(name, Tensor::from(type.dtype, type.shape, feed_of({f32, type.shape}, name).to_doubles()));
  }
  Program program(graph, options, parameters);
  for (const std::string& name : program.input_names()) {
    const Type type = program.input_type(program.input_index(name));
    const Type drawn{is_float(type.dtype) ? f32 : type.dtype, type.shape};
    program.set_input(program.input_index(name),
                      Tensor::from(type.dtype, type.shape, feed_of(drawn, name).to_doubles()));
  }
  program.run();
  program.wait();
  return program;
}

double error_of(const Case& c, Program& program, const Parameters& mine) {
  Graph graph;
  c.build(graph, f64);
  Parameters exact(graph, Device::cpu());
  Program reference = start(graph, {}, &exact);
  double error = 0;
  for (const std::string& name : program.fetch_names()) {
    const std::vector<double> expected = reference.fetch(reference.fetch_index(name)).to_doubles();
    error = std::max(error, max_relative_error(program.fetch(program.fetch_index(name)), expected));
  }
  for (const std::string& name : mine.names()) {
    if (name.starts_with("p"))
      error = std::max(error, max_relative_error(mine.get(name), exact.get(name).to_doubles()));
  }
  return error;
}

int bench(const KernelOptions& options) {
  const CompileOptions compile = options.compile.options();
  DType dtype = f32;
  if (!parse_dtype(options.dtype, &dtype) || !is_float(dtype)) {
    throw UsageError(fmt::format("--dtype is '{}', needs to be f32, bf16, f16 or f64", options.dtype));
  }
  const std::vector<Case> cases = all_cases(dtype);
  for (const std::string& name : options.cases) {
    if (std::none_of(cases.begin(), cases.end(), [&](const Case& c) { return c.name == name; })) {
      throw UsageError(
          fmt::format("--case is '{}'; there are layer_norm, layer_norm_grad, cross_entropy and adam", name));
    }
  }
  if (!options.json_path.empty()) write_json(options.json_path, "{}");  // a wrong path is found before the work
  const MachineFacts machine = machine_facts(compile.device);
  print("kernels bound by memory, on {} ({})\n", to_string(compile.device), machine.name);
  print_text(load_warning());
  print("wall: one run and its wait, median [min, max]; copy: the same bytes copied by all threads of the CPU\n\n");
  print("{:<16} {:<14} {:<5}{:>9}{:>10}{:>30}{:>30}{:>8}  {}\n", "case", "shape", "type", "MB", "launches", "wall us",
        "copy us", "ratio", "err");
  const Effort effort = options.quick ? Effort{5, 30, 0.5} : Effort{50, 200, 3};
  bool is_right = true;
  std::vector<std::string> items;
  for (const Case& c : cases) {
    if (!options.cases.empty() &&
        std::find(options.cases.begin(), options.cases.end(), c.name) == options.cases.end()) {
      continue;
    }
    show_progress(c.name);
    Graph graph;
    c.build(graph, dtype);
    Parameters parameters(graph, compile.device);
    Program program = start(graph, compile, &parameters);
    explain(options.compile, program.report());
    const double error = options.skip_check ? 0 : error_of(c, program, parameters);
    const bool row_is_right = error <= tolerance(dtype);
    const Samples wall = time_waiting(program, 1, effort);
    const bool is_cpu = compile.device.kind == DeviceKind::cpu;
    const Samples copy = is_cpu ? time_copy(static_cast<std::int64_t>(c.bytes), 1, effort) : Samples{};
    show_progress("");
    print("{:<16} {:<14} {:<5}{:>9.1f}{:>10}{:>30}{:>30}{:>8}  {:.1e}{}\n", c.name, c.shape, to_string(dtype),
          c.bytes / 1e6, program.report().launches, to_string(wall), is_cpu ? to_string(copy) : "-",
          is_cpu ? fmt::format("{:.2f}", wall.median / copy.median) : "-", error, row_is_right ? "" : "  WRONG");
    flush_output();
    is_right = is_right && row_is_right;
    JsonObject object;
    object.add("case", c.name).add("shape", c.shape).add("dtype", to_string(dtype)).add("bytes", c.bytes);
    object.add("launches", program.report().launches).add("samples", wall.count).add("wall_us", wall.median);
    object.add("wall_us_min", wall.min).add("wall_us_max", wall.max);
    if (is_cpu) object.add("copy_us", copy.median).add("copy_us_min", copy.min);
    items.push_back(object.add("error", error).text());
  }
  if (!options.json_path.empty()) {
    JsonObject all;
    all.add("bench", "kernels").add("device", to_string(compile.device)).add("machine", machine.name);
    write_json(options.json_path, all.add_json("rows", json_array(items)).text());
  }
  if (!is_right) print_error("paoding: kernels: results are WRONG, see above\n");
  return is_right ? kOk : kFailed;
}

}  // namespace

void add_bench_kernels(CLI::App& bench_app, Commands* commands) {
  auto options = std::make_shared<KernelOptions>();
  CLI::App* sub = bench_app.add_subcommand(
      "kernels",
      "Work that is bound by memory, beside a copy of the same bytes\n\n"
      "layer_norm forward and backward, softmax cross entropy with its gradient, and one Adam update.");
  options->compile.add_to(*sub);
  sub->add_option("--dtype", options->dtype, "f32, bf16, f16 or f64")->type_name("DTYPE")->capture_default_str();
  sub->add_option("--case", options->cases, "Only these: layer_norm, layer_norm_grad, cross_entropy, adam")
      ->type_name("NAME")
      ->delimiter(',');
  sub->add_flag("--quick", options->quick, "Fewer samples: 5 instead of at least 50");
  sub->add_flag("--no-check", options->skip_check, "Leave out the comparison with float64");
  sub->add_option("--json", options->json_path, "Also write the rows to this file")->type_name("FILE");
  sub->footer(
      "Examples:\n"
      "  paoding bench kernels --quick\n"
      "  paoding bench kernels --case adam --dtype bf16");
  commands->push_back({sub, [options] { return bench(*options); }});
}

}  // namespace paoding::cli
