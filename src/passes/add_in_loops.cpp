// SPDX-License-Identifier: Apache-2.0
// add_in_loops: what is added to a product in front of a loop, the same for every step, is added in the loop, whose
// kernels do that for free; in front of it, it would be a pass over memory of its own. The bias of a recurrent layer:
//
//   xw = matmul(xs, w) + b;  scan(h0, xw, u) [ .. element + matmul(h, u) .. ]
// becomes
//   p = matmul(xs, w);  scan(h0, p, u, b) [ .. (element + b) + matmul(h, u) .. ]
//
// also where xw is stored in 16 bits (store_as): then p is.
#include <fmt/format.h>

#include <map>
#include <vector>

#include "graph/keep_names.h"
#include "ops/views.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/pass.h"
#include "passes/scan_parts.h"

namespace paoding {
namespace {

bool is_product(const Graph& graph, Ref ref) {
  const Node* node = &graph.node(ref.node);
  while (node->op->kind == OpKind::view && node->inputs.size() == 1) node = &graph.node(node->inputs[0].node);
  return node->op->name == "matmul";
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

class AddInLoop {
 public:
  AddInLoop(Graph& graph, NodeId id, const std::vector<int>& uses, PassNotes& notes)
      : graph_(graph), uses_(uses), notes_(notes), parts_(graph, id) {}

  void run(std::map<Ref, Ref>* replaced) {
    const std::vector<ScanParts::Argument> sequences = parts_.sequences;
    bool is_changed = false;
    for (const ScanParts::Argument& argument : sequences) is_changed |= take_in(argument);
    if (is_changed) parts_.rebuild(replaced);
  }

 private:
  bool take_in(const ScanParts::Argument& argument) {
    const Node& given = graph_.node(argument.outer.node);
    const bool is_stored = given.op->name == "store_as";  // then so are the product and the sum in the steps
    const Ref outer = is_stored ? given.inputs[0] : argument.outer;
    const Node sum = graph_.node(outer.node);
    if (sum.op->name != "add" || !is_read_once(argument.outer) || !is_read_once(outer)) return false;
    const Shape& shape = sum.types[0].shape;
    for (const std::size_t k : {0, 1}) {
      const Ref product = sum.inputs[k], added = sum.inputs[1 - k];
      if (!(graph_.type(product).shape == shape) || !is_product(graph_, product)) continue;
      const Shape& same = graph_.type(added).shape;
      if (same.rank() == shape.rank() && same[0] != 1) continue;
      if (!is_read_by_formulas(parts_, argument.input)) return false;
      Ref constant = added;
      if (same.rank() == shape.rank()) {
        const KeepNames keep(graph_, sum);
        constant = reshape(graph_.value(added), same.with_removed(0)).ref();
      }
      const auto stored = [&](const Value& value) {
        return is_stored ? call("store_as", {value}, {{"dtype", parts_.body.type(argument.input).dtype}}) : value;
      };
      const KeepNames keep_outer(graph_, sum);
      const Ref element = parts_.add_sequence(stored(graph_.value(product)).ref());
      const Ref whole = parts_.add_constant(constant);
      const KeepNames keep(parts_.body, graph_.node(parts_.scan));
      const Value inside = stored(parts_.body.value(element) + parts_.body.value(whole));
      parts_.body.replace(argument.input, inside.ref());
      notes_.add(fmt::format("{} {} is added in the steps", sum.label(), to_string(sum.types[0])));
      return true;
    }
    return false;
  }

  bool is_read_once(Ref ref) const {
    const auto at = static_cast<std::size_t>(ref.node);
    return at < uses_.size() && uses_[at] == 1;
  }

  Graph& graph_;
  const std::vector<int>& uses_;
  PassNotes& notes_;
  ScanParts parts_;
};

}  // namespace

void add_in_loops(Graph& graph, PassNotes& notes) {
  for_each_graph(graph, [&](Graph& each) {
    std::vector<int> uses(static_cast<std::size_t>(each.size()), 0);
    for (NodeId id = 0; id < each.size(); ++id) {
      for (const Ref& ref : each.node(id).inputs) ++uses[static_cast<std::size_t>(ref.node)];
    }
    for (const Graph::Fetch& fetch : each.fetches()) ++uses[static_cast<std::size_t>(fetch.ref.node)];
    for_each_scan(each,
                  [&](NodeId id, std::map<Ref, Ref>* replaced) { AddInLoop(each, id, uses, notes).run(replaced); });
  });
}

}  // namespace paoding
