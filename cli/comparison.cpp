// SPDX-License-Identifier: Apache-2.0
#include "comparison.h"

#include <fmt/ranges.h>

#include "base/check.h"
#include "base/one_line.h"
#include "command.h"
#include "paoding/op.h"

namespace paoding::cli {
namespace {

ComparedInput read_of(const Graph& graph, Ref ref, const Tensor& ours, const Tensor& theirs, const DifferingNode& at) {
  const Node& node = graph.node(ref.node);
  ComparedInput read;
  read.name = node.name.empty() ? node.title() : fmt::format("{} '{}'", node.op->name, node.name.str());
  read.type = graph.type(ref);
  read.relative = difference_of(ours, theirs, 0).relative;
  if (read.type.shape == graph.type(at.ref).shape) {
    std::int64_t place = 0;
    for (int axis = 0; axis < read.type.shape.rank(); ++axis) {
      place = place * read.type.shape[axis] + at.difference.index[static_cast<std::size_t>(axis)];
    }
    if (read.type.shape.elements() > 0) {
      read.value = ours.to_doubles()[static_cast<std::size_t>(place)];
      read.reference = theirs.to_doubles()[static_cast<std::size_t>(place)];
    }
  }
  return read;
}

ComparedNode finding_of(const Graph& graph, const DifferingNode& at, const Way& way, const Way& reference) {
  const Node& node = graph.node(at.ref.node);
  ComparedNode finding{node.title(),
                       node.scope.str(),
                       graph.type(at.ref),
                       at.ref.output,
                       static_cast<int>(node.types.size()),
                       at.difference,
                       {}};
  if (node.inputs.empty()) return finding;
  const std::vector<Tensor> ours = way.values(node.inputs), theirs = reference.values(node.inputs);
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    finding.reads.push_back(read_of(graph, node.inputs[i], ours[i], theirs[i], at));
  }
  return finding;
}

// ---- comparing ----

class Comparison {
 public:
  Comparison(Graph& graph, const std::map<std::string, Tensor>& feeds, const CompareWith& with)
      : with_(with),
        graph_(graph),
        ours_(graph, feeds, with.compile, false),
        theirs_(graph, feeds, op_by_op(), with.way != "cpu") {}

  Compared compared() const {
    const std::map<std::string, Tensor>& recorded = with_.recorded;
    Compared outcome;
    outcome.ours = to_string(ours_.options().device);
    outcome.theirs_at_nodes = with_.way == "cpu" ? "the CPU, op by op" : "f64 on the CPU, op by op";
    outcome.theirs = with_.is_recorded() ? with_.way : outcome.theirs_at_nodes;
    std::vector<Ref> refs;
    for (const Graph::Fetch& fetch : graph_.fetches()) refs.push_back(fetch.ref);
    const std::vector<Tensor> here = ours_.values(refs);
    std::vector<Tensor> there;
    if (!with_.is_recorded()) there = theirs_.values(refs);
    for (std::size_t i = 0; i < refs.size(); ++i) {
      const std::string& name = graph_.fetches()[i].name;
      const auto found = recorded.find(name);
      if (with_.is_recorded() && found == recorded.end()) continue;
      const Tensor& other = with_.is_recorded() ? found->second : there[i];
      outcome.results.push_back({name, here[i].type(), output_difference(name, here[i], other)});
      outcome.is_equal = outcome.is_equal && outcome.results.back().difference.is_equal();
    }
    if (outcome.is_equal && !with_.every_node) return outcome;
    if (with_.is_recorded() && !with_.every_node && gives_the_same(refs, here)) {
      outcome.note =
          "in f64 the graph gives what it gave here: its weights, its ops or what was fed are not those of the record";
      return outcome;
    }
    find_nodes(&outcome);
    return outcome;
  }

 private:
  static CompileOptions op_by_op() {
    CompileOptions options;
    options.disabled_passes = pass_names();
    return options;
  }
  double tolerance(DType dtype) const {
    return with_.tolerance ? *with_.tolerance : tolerance_of(dtype, ours_.options());
  }
  Difference output_difference(const std::string& name, const Tensor& here, const Tensor& other) const {
    try {
      return difference_of(here, other, tolerance(here.dtype()));
    } catch (const Error& error) {
      fail(error.kind(), "result '{}' here and in {}: {}", one_line(name), with_.way, error.what());
    }
  }
  bool gives_the_same(std::span<const Ref> refs, const std::vector<Tensor>& here) const {
    const std::vector<Tensor> exact = theirs_.values(refs);
    for (std::size_t i = 0; i < refs.size(); ++i) {
      if (!difference_of(here[i], exact[i], tolerance(here[i].dtype())).is_equal()) return false;
    }
    return true;
  }
  void find_nodes(Compared* outcome) const {
    const auto differing =
        first_differing(graph_, comparable(graph_), ours_, theirs_, [this](DType dtype) { return tolerance(dtype); });
    for (const DifferingNode& each : differing) {
      outcome->nodes.push_back(finding_of(graph_, each, ours_, theirs_));
    }
    if (!differing.empty()) {
      outcome->is_equal = false;
    } else if (!outcome->is_equal) {
      outcome->note =
          "no node differs in a run that keeps the results of all: the difference comes with what passes make of the "
          "graph; --no-pass NAME leaves one out, and `paoding dump` shows them";
    }
  }

  const CompareWith& with_;
  Graph& graph_;
  const Way ours_, theirs_;
};

}  // namespace

Compared compare_with(Graph& graph, const std::map<std::string, Tensor>& feeds, const CompareWith& with) {
  return Comparison(graph, feeds, with).compared();
}

}  // namespace paoding::cli
