// SPDX-License-Identifier: Apache-2.0
// rematerialize_masks: a gradient that a ReLU masks has two kinds of readers, sums and values computed from the sums.
// They run as two kernels, so the masked gradient g would be stored by the first and read by the second. Both compute g
// again instead, with a mask from the ReLU's argument, which follows from inputs that they read anyway.
//
//   z = x * a + b;  y = relu(z);  g = select(y > 0, dy, 0)
//   s = sum(g * (x * c + d));  dx = g * a + x * s
// becomes
//   s = sum(select(x * a + b > 0, dy, 0) * (x * c + d));  dx = select(x * a + b > 0, dy, 0) * a + x * s
//
// where a, b, c and d have one element a channel, as in the gradient of a batch norm. Neither y nor g is read or
// stored.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/formula_patterns.h"
#include "passes/has_node.h"
#include "passes/pass.h"
#include "passes/readers.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

constexpr int kMostRematerialized = 8;       // ops between the inputs and the ReLU's argument
constexpr std::int64_t kLeastOfNumber = 64;  // elements of the image for one of a channel's

class MaskRematerialization {
 public:
  explicit MaskRematerialization(Graph& graph) : graph_(graph), rewriter_(graph), readers_(graph) {}

  int run() {
    for (const Graph::Fetch& fetch : graph_.fetches()) fetched_.insert(fetch.ref);
    for (NodeId id = 0; id < rewriter_.first_new; ++id) {
      if (is_choice(rewriter_.enter(id))) rematerialize(id);
    }
    for (const auto& [user, input] : moved_) graph_.mutable_node(user).inputs[input.first] = input.second;
    rewriter_.finish();
    return rematerialized_;
  }

 private:
  const Node& node(Ref ref) const { return graph_.node(ref.node); }
  bool is_formula(Ref ref) const { return node(ref).op->kind == OpKind::formula; }
  std::int64_t elements(Ref ref) const { return graph_.type(ref).shape.elements(); }
  std::span<const NodeId> users(Ref ref) const { return readers_.of(ref); }

  Ref relu_argument(Ref ref) const {
    while (node(ref).op->conversion != Conversion::none) ref = node(ref).inputs[0];
    const Ref argument = rectified(graph_, ref);
    return argument.valid() && elements(argument) == elements(ref) ? argument : Ref();
  }

  // Collects the formulas, inputs first, that make `ref` of one value of its size and of values that many elements
  // share; false when it is not made so.
  bool collect(Ref ref, std::vector<NodeId>* formulas, Ref* source) const {
    if (elements(ref) * kLeastOfNumber <= size_) return true;
    if (std::find(formulas->begin(), formulas->end(), ref.node) != formulas->end()) return true;
    if (!is_formula(ref)) {
      if (source->valid() && !(*source == ref)) return false;
      *source = ref;
      return true;
    }
    for (const Ref input : node(ref).inputs) {
      if (!collect(input, formulas, source)) return false;
    }
    formulas->push_back(ref.node);
    return formulas->size() <= kMostRematerialized;
  }

  // Whether the values made of `id` alone end in sums.
  bool is_summed(NodeId id) const {
    while (true) {
      const Node& node = graph_.node(id);
      if (node.op->kind == OpKind::reduction) return true;
      const auto next = users({id, 0});
      if (node.op->kind != OpKind::formula || next.size() != 1 || fetched_.contains({id, 0})) return false;
      id = next[0];
    }
  }

  void rematerialize(NodeId id) {
    const Ref masked{id, 0};
    const Node select_node = graph_.node(id);
    size_ = elements(masked);
    const Ref condition = argument(select_node, 0);
    const auto test = sign_test(graph_, condition);
    if (!test || elements(test->value) != size_ || fetched_.contains(masked)) return;
    const Ref z = relu_argument(test->value);
    if (!z.valid()) return;
    std::vector<NodeId> formulas;
    Ref source;
    if (!collect(z, &formulas, &source) || !source.valid() || formulas.empty()) return;
    std::vector<std::pair<NodeId, std::size_t>> others;  // users that are not summed, and which of their inputs
    bool has_sums = false;
    for (const NodeId user : users(masked)) {
      const OpKind kind = graph_.node(user).op->kind;
      if (kind != OpKind::formula && kind != OpKind::reduction) return;
      if (is_summed(user)) {
        has_sums = true;
        continue;
      }
      const auto& inputs = graph_.node(user).inputs;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i] == masked) others.emplace_back(user, i);
      }
    }
    if (!has_sums || others.empty()) return;
    rewriter_.replace(masked, made_again(select_node, condition, test->input, z, formulas));
    const Ref other = made_again(select_node, condition, test->input, z, formulas);
    for (const auto& [user, input] : others) moved_.emplace(user, std::pair(input, other));
    ++rematerialized_;
  }

  // `asked`: the input of the condition that it tests.
  Ref made_again(const Node& masked, Ref condition, std::size_t asked, Ref z, const std::vector<NodeId>& formulas) {
    std::map<NodeId, Ref> copies;
    const auto copied = [&](Ref ref) {
      const auto found = copies.find(ref.node);
      return graph_.value(found == copies.end() ? ref : found->second);
    };
    const auto again = [&](const Node& from, const std::map<std::size_t, Ref>& given) {
      Values inputs;
      for (std::size_t i = 0; i < from.inputs.size(); ++i) {
        inputs.push_back(given.contains(i) ? graph_.value(given.at(i)) : copied(from.inputs[i]));
      }
      return call(*from.op, inputs, from.attrs).front().ref();
    };
    for (const NodeId id : formulas) {
      const Node from = graph_.node(id);
      copies[id] = again(from, {});
    }
    const Node comparison = node(condition);
    const DType dtype = graph_.type(comparison.inputs[asked]).dtype;
    const Ref mask = again(comparison, {{asked, cast(copied(z), dtype).ref()}});
    return again(masked, {{static_cast<std::size_t>(masked.op->primitive.arguments[0].input), mask}});
  }

  Graph& graph_;
  Rewriter rewriter_;
  const Readers readers_;
  std::set<Ref> fetched_;
  std::multimap<NodeId, std::pair<std::size_t, Ref>>
      moved_;  // of users: the input that is replaced, and by which value
  std::int64_t size_ = 0;
  int rematerialized_ = 0;
};

}  // namespace

void rematerialize_masks(Graph& graph, PassNotes& notes) {
  int rematerialized = 0;
  for_each_graph(graph, [&](Graph& each) {
    if (has_node(each, is_choice)) rematerialized += MaskRematerialization(each).run();
  });
  if (rematerialized > 0)
    notes.add(fmt::format("{} masked gradients are made again where they are read", rematerialized));
}

}  // namespace paoding
