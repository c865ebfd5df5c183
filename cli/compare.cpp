// SPDX-License-Identifier: Apache-2.0
// paoding compare: a graph computed as it runs here and in another way, and the first node whose results differ.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "base/one_line.h"
#include "command.h"
#include "comparison.h"
#include "feeds.h"
#include "graph_file.h"
#include "io/json_text.h"
#include "paoding/io.h"
#include "paoding/op.h"
#include "text/suggest.h"

namespace paoding::cli {
namespace {

constexpr int kDiffers = 1, kUncomparable = 2;  // exit codes
constexpr std::uint64_t kMadeUpSeed = 1;        // where nothing is fed

struct CompareOptions {
  std::string file, with;
  FeedFlags feeds;
  GraphFlags which;
  CompileFlags compile;
  std::optional<double> tolerance;
  bool every_node = false;
  bool json = false;

  bool is_recorded() const { return is_record(with); }
};

// The parameter that an assignment leaves is a result too.
void fetch_assigned(Graph& graph) {
  for (const NodeId id : graph.assigns()) {
    const Node& node = graph.node(id);
    const std::string name = graph.node(node.inputs[0].node).name.str() + " after the run";
    graph.fetch(name, graph.value(node.inputs[1]));
  }
  graph.drop_assigns();
  graph.compact();
}

// The recorded tensors that are results, by name; those that are inputs go to `held`.
std::map<std::string, Tensor> recorded_results(const CompareOptions& options, Graph& graph,
                                               std::map<std::string, Tensor> recorded,
                                               std::map<std::string, Tensor>* held) {
  std::vector<std::string> names, surplus;
  for (const Graph::Fetch& fetch : graph.fetches()) names.push_back(fetch.name);
  std::map<std::string, Tensor> results;
  for (auto& [name, tensor] : recorded) {
    if (std::ranges::find(names, name) != names.end()) {
      results.emplace(name, tensor);
    } else if (const Value value = graph.find(name); value.valid() && !graph.node(value.ref().node).op->is_kept) {
      held->emplace(name, tensor);
    } else {
      surplus.push_back(fmt::format("'{}'{}", one_line(name), suggestion(name, names)));
    }
  }
  if (!surplus.empty() && !options.feeds.allows_surplus) {
    fail(ErrorKind::argument, "{}: {} is no result and no input of the graph; --allow-surplus leaves it out",
         options.with, surplus[0]);
  }
  if (results.empty()) {
    fail(ErrorKind::argument, "{} has none of the graph's results: {}", options.with, one_line(names));
  }
  return results;
}

// ---- telling ----

std::string place_text(const std::vector<std::int64_t>& index) {
  return index.empty() ? "its value" : fmt::format("element [{}]", fmt::join(index, ", "));
}

void print_node(const Compared& outcome, const ComparedNode& found, bool is_first) {
  const Difference& difference = found.difference;
  print("{}: {}{}{} ({}), {}: {:.9g} here, {:.9g} by {}; {} of {} elements differ\n",
        is_first ? "the first node that differs" : "the first of floats", one_line(found.node),
        found.scope.empty() ? "" : " in " + one_line(found.scope),
        found.results > 1 ? fmt::format(", result {} of {}", found.result, found.results) : "", to_string(found.type),
        place_text(difference.index), difference.value, difference.reference, outcome.theirs_at_nodes,
        difference.differing, difference.elements);
  for (const ComparedInput& read : found.reads) {
    print("  it read: {} {}{}, relative difference {:.2g}\n", one_line(read.name), to_string(read.type),
          read.value ? fmt::format(", {:.9g} there and {:.9g}", *read.value, *read.reference) : "", read.relative);
  }
}

void print_compared(const Compared& outcome) {
  print("{} beside {}\n", outcome.ours, one_line(outcome.theirs));
  std::size_t widths[2] = {6, 4};
  for (const ComparedResult& output : outcome.results) {
    widths[0] = std::max(widths[0], one_line(output.name).size());
    widths[1] = std::max(widths[1], to_string(output.type).size());
  }
  print("{:<{}}  {:<{}} {:>12} {:>12} {:>10}\n", "result", widths[0], "type", widths[1], "absolute", "relative",
        "tolerance");
  for (const ComparedResult& output : outcome.results) {
    const Difference& difference = output.difference;
    print("{:<{}}  {:<{}} {:>12.3g} {:>12.3g} {:>10.2g}{}\n", one_line(output.name), widths[0], to_string(output.type),
          widths[1], difference.absolute, difference.relative, difference.tolerance,
          difference.is_equal() ? ""
                                : fmt::format("  differs: {} is {:.9g} here, {:.9g} there",
                                              place_text(difference.index), difference.value, difference.reference));
  }
  for (const ComparedNode& found : outcome.nodes) print_node(outcome, found, &found == outcome.nodes.data());
  if (!outcome.note.empty()) print("{}\n", outcome.note);
  print("{}\n", outcome.is_equal ? "equal" : "different");
}

JsonObject& add_difference(JsonObject& object, const Type& type, const Difference& difference) {
  std::vector<std::string> dims, index;
  for (const std::int64_t dim : type.shape) dims.push_back(fmt::format("{}", dim));
  for (const std::int64_t at : difference.index) index.push_back(fmt::format("{}", at));
  object.add("dtype", to_string(type.dtype)).add_json("shape", json_array(dims));
  object.add("equal", difference.is_equal()).add("tolerance", difference.tolerance);
  object.add("absolute", difference.absolute).add("relative", difference.relative);
  object.add_json("index", json_array(index)).add("value", difference.value).add("reference", difference.reference);
  return object.add("differing", difference.differing).add("elements", difference.elements);
}

void print_compared_json(const Compared& outcome) {
  std::vector<std::string> results, nodes;
  for (const ComparedResult& output : outcome.results) {
    JsonObject object;
    object.add("name", output.name);
    results.push_back(add_difference(object, output.type, output.difference).text());
  }
  for (const ComparedNode& found : outcome.nodes) {
    std::vector<std::string> reads;
    for (const ComparedInput& read : found.reads) {
      JsonObject object;
      object.add("name", read.name).add("type", to_string(read.type)).add("relative", read.relative);
      if (read.value) object.add("value", *read.value).add("reference", *read.reference);
      reads.push_back(object.text());
    }
    JsonObject object;
    object.add("op", found.node).add("scope", found.scope).add("result", found.result);
    nodes.push_back(add_difference(object, found.type, found.difference).add_json("read", json_array(reads)).text());
  }
  JsonObject all;
  all.add("device", outcome.ours).add("with", outcome.theirs).add("equal", outcome.is_equal);
  all.add_json("results", json_array(results)).add_json("nodes", json_array(nodes));
  if (!outcome.note.empty()) all.add("note", outcome.note);
  print("{}\n", all.text());
}

int compare(CompareOptions options) {
  if (options.with == "torch") {
    throw UsageError(
        "--with torch: PyTorch runs in Python: paoding.torch.compare(model, args) names the first op that differs");
  }
  if (std::error_code failed; options.is_recorded() && !std::filesystem::exists(options.with, failed)) {
    throw UsageError(
        fmt::format("--with is '{}', needs to be cpu, f64, or a safetensors file of results", options.with));
  }
  options.compile.options();  // wrong words are found first
  std::map<std::string, Tensor> recorded;
  if (options.is_recorded()) recorded = load_safetensors(options.with);
  const auto types = [&] {
    std::map<std::string, Type> fed = options.feeds.types();
    for (const auto& [name, tensor] : recorded) fed.emplace(name, tensor.type());
    return fed;
  };
  LoadedGraph loaded = load_graph(options.file, options.which, types);
  Graph& graph = *loaded.graph;
  fetch_assigned(graph);
  if (graph.fetches().empty()) {
    fail(ErrorKind::argument, "{}: the graph has no results; a line `fetch NAME` names one", options.file);
  }
  if (options.is_recorded()) recorded = recorded_results(options, graph, std::move(recorded), &loaded.parameters);
  const bool is_made_up = !options.is_recorded() && options.feeds.paths.empty() && !options.feeds.seed;
  if (is_made_up) options.feeds.seed = kMadeUpSeed;
  const std::map<std::string, Tensor> feeds = options.feeds.collect(graph, std::move(loaded.parameters));
  const Compared outcome = compare_with(
      graph, feeds,
      {options.with, std::move(recorded), options.compile.options(), options.tolerance, options.every_node});
  options.json ? print_compared_json(outcome) : print_compared(outcome);
  return outcome.is_equal ? kOk : kDiffers;
}

}  // namespace

void add_compare(CLI::App& app, Commands* commands) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* sub = app.add_subcommand(
      "compare",
      "Compute a graph in two ways and name the first node whose results differ\n\n"
      "One way is the program that `paoding run` would run here: its device, passes, kernels and precision. The other\n"
      "is op by op, without passes, on the CPU (--with cpu), the same with every float in f64 (--with f64), or "
      "results\n"
      "that were recorded, as of PyTorch (--with FILE, of tensors by the names of results, and of inputs, which are "
      "then\n"
      "fed). Where results differ, all nodes are compared in the order of the graph, and the first that differs is "
      "named\n"
      "with both values and what it read. Differences are relative to the largest magnitude of a result. What is not "
      "fed\n"
      "is random, of seed 1 where there is neither --feed nor --random. A record tells nothing of nodes: they are\n"
      "compared with f64.\n\n"
      "Exit code: 0 equal, 1 different, 2 when something is wrong.");
  sub->add_option("FILE", options->file, "A graph's text, or a model file (.pd); - is a text on stdin")
      ->type_name("")
      ->required();
  sub->add_option("--with", options->with, "cpu, f64, or a safetensors file of results")->type_name("WAY")->required();
  options->feeds.add_to(*sub);
  options->which.add_to(*sub);
  options->compile.add_to(*sub);
  sub->add_option_function<double>(
         "--tolerance", [options](const double& number) { options->tolerance = number; },
         "Largest relative difference of floats that counts as equal [f64 1e-9, f32 1e-3, f16 and TF32 2e-2, bf16 "
         "6e-2]")
      ->check(real_number(0, 1e30))
      ->type_name("NUMBER");
  sub->add_flag("--every-node", options->every_node, "Compare the nodes also where the results are equal");
  sub->add_flag("--json", options->json, "Print one JSON object");
  sub->footer(
      "Examples:\n"
      "  paoding compare examples/graphs/lstm.txt --with f64\n"
      "  paoding compare model.pd --with f64 --extents batch=2,time=80 --random 7 --dtype bf16\n"
      "  paoding compare model.pd --with cpu --extents batch=2,time=80 --device cuda\n"
      "  paoding compare model.pd --with recorded.safetensors --tolerance 1e-4");
  commands->push_back({.app = sub, .run = [options] { return compare(*options); }, .failed = kUncomparable});
}

}  // namespace paoding::cli
