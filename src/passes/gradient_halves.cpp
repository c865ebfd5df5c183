// SPDX-License-Identifier: Apache-2.0
// A graph and its gradient as two graphs, for callers who run them at two times: PyTorch's autograd. Loops that came
// unrolled are rolled first, so that the gradient is one loop too.
#include "paoding/gradient_halves.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "paoding/autodiff.h"
#include "paoding/op.h"
#include "passes/pass.h"

namespace paoding {
namespace {

const char* const kSeed = "seed/";
const char* const kGradient = "gradient/";
const char* const kSaved = "saved/";

class Cut {
 public:
  explicit Cut(const Graph& whole) : whole_(whole), depends_(static_cast<std::size_t>(whole.size())) {
    for (NodeId id = 0; id < whole.size(); ++id) {
      const Node& node = whole.node(id);
      bool depends = node.name.str().starts_with(kSeed);
      for (const Ref input : node.inputs) depends = depends || is_of_gradient(input.node);
      depends_[static_cast<std::size_t>(id)] = depends;
    }
  }

  // Values that the gradient reads and that a run of it would have to compute again.
  std::set<Ref> saved() {
    for (NodeId id = 0; id < whole_.size(); ++id) {
      if (!is_of_gradient(id)) continue;
      for (const Ref input : whole_.node(id).inputs) add(input);
    }
    for (const Graph::Fetch& fetch : whole_.fetches()) {
      if (fetch.name.starts_with(kGradient)) add(fetch.ref);
    }
    return saved_;
  }

 private:
  bool is_of_gradient(NodeId id) const { return depends_[static_cast<std::size_t>(id)]; }
  std::int64_t bytes(Ref ref) const {
    const Type& type = whole_.type(ref);
    return type.shape.elements() * size_bytes(type.dtype);
  }
  static bool is_given(const Node& node) { return node.inputs.empty(); }

  // A view is made again where its operand is given, or takes no more memory to keep.
  void add(Ref ref) {
    const Node& node = whole_.node(ref.node);
    if (is_of_gradient(ref.node) || is_given(node) || !seen_.insert(ref).second) return;
    const bool is_light = node.op->kind == OpKind::view && std::ranges::all_of(node.inputs, [&](Ref input) {
                            return is_given(whole_.node(input.node)) || bytes(input) <= bytes(ref);
                          });
    if (!is_light) return void(saved_.insert(ref));
    for (const Ref input : node.inputs) add(input);
  }

  const Graph& whole_;
  std::vector<bool> depends_;  // per node: on a seed
  std::set<Ref> seen_, saved_;
};

// Leaves only the fetches whose names are those of the gradient, or only the others.
void keep_fetches(Graph& graph, bool of_gradient) {
  std::erase_if(graph.mutable_fetches(),
                [&](const Graph::Fetch& fetch) { return fetch.name.starts_with(kGradient) != of_gradient; });
  graph.compact(true);
}

}  // namespace

GradientHalves gradient_halves(const Graph& graph, std::span<const std::string> results,
                               std::span<const std::string> inputs) {
  if (!graph.effects().empty() || !graph.parameters().empty()) {
    fail(ErrorKind::unsupported, "gradient_halves: the graph has parameters, or ops with an effect");
  }
  const std::unique_ptr<Graph> whole = graph.clone();
  PassNotes notes;
  reroll_loops(*whole, notes);
  Values outputs, wanted, seeds;
  for (const std::string& name : results) {
    const auto found = std::ranges::find(whole->fetches(), name, &Graph::Fetch::name);
    if (found == whole->fetches().end()) fail(ErrorKind::argument, "gradient_halves: there is no result '{}'", name);
    outputs.push_back(whole->value(found->ref));
    seeds.push_back(whole->input(kSeed + name, outputs.back().dtype(), outputs.back().shape()));
  }
  for (const std::string& name : inputs) {
    wanted.push_back(whole->find(name));
    if (!wanted.back().valid()) fail(ErrorKind::argument, "gradient_halves: there is no input '{}'", name);
  }
  const Values found = gradients(outputs, wanted, seeds);
  for (std::size_t i = 0; i < found.size(); ++i) whole->fetch(kGradient + inputs[i], found[i]);
  whole->compact();

  GradientHalves halves{whole->clone(), whole->clone(), std::move(notes.list())};
  std::map<Ref, Ref> replaced;
  for (const Ref ref : Cut(*whole).saved()) {
    const std::string name = kSaved + std::to_string(replaced.size());
    const Type& type = whole->type(ref);
    halves.forward->fetch(name, halves.forward->value(ref));
    replaced.emplace(ref, halves.backward->input(name, type.dtype, type.shape).ref());
  }
  halves.backward->replace(replaced);
  keep_fetches(*halves.forward, false);
  keep_fetches(*halves.backward, true);
  return halves;
}

}  // namespace paoding
