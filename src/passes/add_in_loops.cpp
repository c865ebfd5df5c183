// SPDX-License-Identifier: Apache-2.0
// add_in_loops: a term that is added to a product in front of a loop, the same for every step, is added in the loop,
// whose kernels do that for free; in front of it, it would be a pass over memory of its own. The bias of a recurrent
// layer:
//
//   xw = matmul(xs, w) + b;  scan(h0, xw, u) [ .. element + matmul(h, u) .. ]
// becomes
//   p = matmul(xs, w);  scan(h0, p, u, b) [ .. (element + b) + matmul(h, u) .. ]
//
// also where xw is stored in 16 bits (store_as): then p is. A recurrence that a kernel runs as a whole gets it as an
// input of its own, where the kernel takes one:
//
//   lstm_recurrence(xw, u, h0, c0)
// becomes
//   lstm_recurrence(p, u, h0, c0, b) {bias=true}
//
// and its gradient is summed in the gradient's kernel: sum_in_recurrences.cpp.
#include <fmt/format.h>

#include <map>
#include <optional>
#include <vector>

#include "graph/keep_names.h"
#include "ops/recurrence/cell.h"
#include "ops/views.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/claimed_by.h"
#include "passes/count_uses.h"
#include "passes/formula_patterns.h"
#include "passes/rewriter.h"
#include "passes/scan_parts.h"

namespace paoding {
namespace {

bool is_product(const Graph& graph, Ref ref) {
  const Node* node = &graph.node(ref.node);
  while (node->op->kind == OpKind::view && node->inputs.size() == 1) node = &graph.node(node->inputs[0].node);
  return node->op->contracts;
}

// Whether all that reads `ref` in the body is elementwise, perhaps through views.
bool is_read_by_formulas(const ScanParts& parts, Ref ref) {
  for (const auto& carry : parts.carries) {
    if (carry.next == ref) return false;
  }
  for (const auto& output : parts.outputs) {
    if (output.value == ref) return false;
  }
  for (NodeId id = ref.node + 1; id < parts.body.size(); ++id) {
    const Node& node = parts.body.node(id);
    for (const Ref& read : node.inputs) {
      if (!(read == ref) || node.op->kind == OpKind::formula) continue;
      if (node.op->kind != OpKind::view || !is_read_by_formulas(parts, {id, 0})) return false;
    }
  }
  return true;
}

// A value as the sum of a product in front of it and a term, and whether the sum is stored in 16 bits.
struct BiasedProduct {
  Ref sum, product, added;
  bool is_stored = false;  // then so are the product and the sum in the steps
};

class Uses {
 public:
  explicit Uses(const Graph& graph) : counts_(count_uses(graph)) {}
  bool is_read_once(Ref ref) const {
    const auto at = static_cast<std::size_t>(ref.node);
    return at < counts_.size() && counts_[at] == 1;
  }

 private:
  std::vector<int> counts_;
};

// None unless only one node reads `ref`, and the added term is the same for all entries of its first axis.
std::optional<BiasedProduct> biased_product(const Graph& graph, Ref ref, const Uses& uses) {
  const Node& given = graph.node(ref.node);
  BiasedProduct found{
      .sum = ref, .product = {}, .added = {}, .is_stored = given.op->conversion == Conversion::in_memory};
  if (found.is_stored) found.sum = given.inputs[0];
  const Node& sum = graph.node(found.sum.node);
  if (!computes_of_two(sum, Prim::add) || !uses.is_read_once(ref) || !uses.is_read_once(found.sum)) return {};
  const Shape& shape = sum.types[0].shape;
  for (const std::size_t k : {0, 1}) {
    found.product = argument(sum, k), found.added = argument(sum, 1 - k);
    if (!(graph.type(found.product).shape == shape) || !is_product(graph, found.product)) continue;
    const Shape& same = graph.type(found.added).shape;
    if (same.rank() < shape.rank() || same[0] == 1) return found;
  }
  return {};
}

class AddInLoop {
 public:
  AddInLoop(Graph& graph, NodeId id, const Uses& uses, PassNotes& notes)
      : graph_(graph), uses_(uses), notes_(notes), parts_(graph, id) {}

  void run(std::map<Ref, Ref>* replaced) {
    const std::vector<ScanParts::Argument> sequences = parts_.sequences;
    bool is_changed = false;
    for (const ScanParts::Argument& argument : sequences) is_changed |= take_in(argument);
    if (is_changed) parts_.rebuild(replaced);
  }

 private:
  bool take_in(const ScanParts::Argument& argument) {
    const std::optional<BiasedProduct> found = biased_product(graph_, argument.outer, uses_);
    if (!found || !is_read_by_formulas(parts_, argument.input)) return false;
    const Node sum = graph_.node(found->sum.node);
    Ref constant = found->added;
    const Shape same = graph_.type(constant).shape;
    if (same.rank() == sum.types[0].shape.rank()) {
      const KeepNames keep(graph_, sum);
      constant = reshape(graph_.value(constant), same.with_removed(0)).ref();
    }
    const auto stored = [&](const Value& value) {
      const DType dtype = parts_.body.type(argument.input).dtype;
      return found->is_stored ? call("store_as", {value}, {{"dtype", dtype}}) : value;
    };
    const KeepNames keep_outer(graph_, sum);
    const Ref element = parts_.add_sequence(stored(graph_.value(found->product)).ref());
    const Ref whole = parts_.add_constant(constant);
    const KeepNames keep(parts_.body, graph_.node(parts_.scan));
    const Value inside = stored(parts_.body.value(element) + parts_.body.value(whole));
    parts_.body.replace(argument.input, inside.ref());
    notes_.add(fmt::format("{} {} is added in the steps", sum.label(), to_string(sum.types[0])));
    return true;
  }

  Graph& graph_;
  const Uses& uses_;
  PassNotes& notes_;
  ScanParts parts_;
};

// Recurrences that are still whole here: a kernel runs them.
void add_in_recurrences(Graph& graph, PassNotes& notes) {
  const Uses uses(graph);
  Rewriter rewriter(graph);
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = rewriter.enter(id);
    if (cell_over_time(*node.op) == nullptr || node.attrs.get_bool("bias")) continue;
    const std::optional<BiasedProduct> found = biased_product(graph, node.inputs[0], uses);
    if (!found) continue;
    const Type type = graph.type(found->added), wanted = graph.type(node.inputs[0]);
    if (type.shape.elements() != wanted.shape[2] || type.shape[type.shape.rank() - 1] != wanted.shape[2]) continue;
    const Node kept = node, sum = graph.node(found->sum.node);
    Value product = graph.value(found->product);
    if (found->is_stored) product = call("store_as", {product}, {{"dtype", wanted.dtype}});
    Values inputs = {product};
    for (std::size_t i = 1; i < kept.inputs.size(); ++i) inputs.push_back(graph.value(kept.inputs[i]));
    inputs.push_back(reshape(graph.value(found->added), Shape{wanted.shape[2]}));
    Attrs attrs = kept.attrs;
    attrs.set("bias", true);
    const Values made = call(*kept.op, inputs, attrs);
    if (claimed_by(graph, made[0].ref().node, notes) == nullptr) continue;
    for (std::size_t k = 0; k < made.size(); ++k) {
      rewriter.replace({id, static_cast<std::int32_t>(k)}, made[k].ref());
    }
    notes.add(fmt::format("{} {} is added in {}", sum.label(), to_string(sum.types[0]), kept.op->name));
  }
  rewriter.finish();
}

}  // namespace

void add_in_loops(Graph& graph, PassNotes& notes) {
  for_each_graph(graph, [&](Graph& each) {
    add_in_recurrences(each, notes);
    sum_in_recurrences(each, notes);
    const Uses uses(each);
    for_each_scan(each,
                  [&](NodeId id, std::map<Ref, Ref>* replaced) { AddInLoop(each, id, uses, notes).run(replaced); });
  });
}

}  // namespace paoding
