// SPDX-License-Identifier: Apache-2.0
// sink_products: a product or reduction in a loop that no carry needs only feeds stacked results. It moves after the
// loop, where it is done for all steps at once on the stacked operands:
//
//   dx = scan(..) [ .. out = matmul(dg, w, transpose_b=true) ]
// becomes
//   s = scan(..) [ .. out = dg ];  dx = matmul(s, w, transpose_b=true)
//
// A product of values that repeat each other's axes moves when it is only summed over the steps: merge_products makes
// one product of matrices of that.
//
// A stacked reshape is a reshape of the stacked value, so it moves too: inside it would be a copy.
#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "graph/lift.h"
#include "group/lower.h"
#include "ops/axes.h"
#include "paoding/op.h"
#include "passes/broadcast_product.h"
#include "passes/formula_patterns.h"
#include "passes/large_product.h"
#include "passes/pass.h"
#include "passes/scan_parts.h"

namespace paoding {
namespace {

constexpr std::int64_t kMaxStackedBytes = std::int64_t{256} << 20;

class Sink {
 public:
  Sink(Graph& graph, NodeId id, PassNotes& notes) : graph_(graph), notes_(notes), parts_(graph, id) {}

  void run(std::map<Ref, Ref>* replaced) {
    mark();
    if (!has_marked_ || !all_can_be_lifted()) return;
    // Operands that stay inside are stacked; values that exist outside already are used as they are.
    for (const auto& argument : parts_.sequences) outside_[argument.input] = {graph_.value(argument.outer), true};
    for (const auto& argument : parts_.constants) outside_[argument.input] = {graph_.value(argument.outer), false};
    for (NodeId id = 0; id < parts_.body.size(); ++id) {
      if (!marked_[static_cast<std::size_t>(id)]) continue;
      for (const Ref& ref : parts_.body.node(id).inputs) {
        if (!marked_[static_cast<std::size_t>(ref.node)]) find_outside(ref);
      }
    }
    const std::vector<ScanParts::Output> old_outputs = parts_.outputs;
    std::vector<ScanParts::Output> kept;
    std::vector<ScanParts::Output> sunk;
    for (const ScanParts::Output& output : old_outputs) {
      (marked_[static_cast<std::size_t>(output.value.node)] ? sunk : kept).push_back(output);
    }
    parts_.outputs = kept;
    const NodeId made = parts_.rebuild(replaced);
    for (std::size_t i = 0; i < parts_.outputs.size(); ++i) {
      const Ref inside = parts_.outputs[i].value, stacked{made, static_cast<std::int32_t>(parts_.carries.size() + i)};
      if (to_stack_.contains(inside)) outside_[inside] = {graph_.value(stacked), true};
    }
    build_outside();
    for (const ScanParts::Output& output : sunk) {
      (*replaced)[output.stacked] = with_time(outside_.at(output.value)).ref();
    }
  }

 private:
  // A product gains a lot; a reduction as long as stacking its operand costs little memory.
  bool is_worth_sinking(NodeId id) const {
    const Node& node = parts_.body.node(id);
    if (node.op->is_run_by_kernel()) return !is_large_by_itself(parts_.body, node);
    if (computes(node, Prim::mul)) return broadcast_product(parts_.body, {id, 0}) && is_only_summed({id, 0});
    if (node.op->kind != OpKind::reduction) return false;
    return size_bytes(parts_.body.type(node.inputs[0])) <= kMaxStackedBytes / std::max<std::int64_t>(parts_.length, 1);
  }

  // Whether a value of the body is stacked and read by nothing but sums over the steps.
  bool is_only_summed(Ref ref) const {
    bool is_summed = false;
    for (const ScanParts::Output& output : parts_.outputs) {
      if (!(output.value == ref)) continue;
      for (const Graph::Fetch& fetch : graph_.fetches()) {
        if (fetch.ref == output.stacked) return false;
      }
      for (NodeId id = 0; id < graph_.size(); ++id) {
        const Node& node = graph_.node(id);
        if (std::find(node.inputs.begin(), node.inputs.end(), output.stacked) == node.inputs.end()) continue;
        if (node.op->reduces_with != Prim::add) return false;
        if (plain_axes(node.attrs.get_ints("axes"), graph_.type(output.stacked).shape.rank())[0] != 0) return false;
        is_summed = true;
      }
    }
    return is_summed;
  }

  // Products and reductions that no carry needs, and everything made from them.
  void mark() {
    const std::vector<char> feeds = feeds_carries(parts_);
    std::vector<char> is_read(static_cast<std::size_t>(parts_.body.size()), 0);  // by a node of the body
    for (NodeId id = 0; id < parts_.body.size(); ++id) {
      for (const Ref& ref : parts_.body.node(id).inputs) is_read[static_cast<std::size_t>(ref.node)] = 1;
    }
    marked_.assign(static_cast<std::size_t>(parts_.body.size()), 0);
    is_worth_ = marked_;
    for (NodeId id = 0; id < parts_.body.size(); ++id) {
      const Node& node = parts_.body.node(id);
      const auto at = static_cast<std::size_t>(id);
      if (feeds[at] || node.op->is(OpRole::source)) continue;
      is_worth_[at] = is_worth_sinking(id);
      bool from_marked = is_worth_[at] || (node.op->view == ViewForm::reshaped && !is_read[at]);
      for (const Ref& ref : node.inputs) from_marked |= marked_[static_cast<std::size_t>(ref.node)] != 0;
      marked_[at] = from_marked;
      has_marked_ |= from_marked;
    }
  }

  bool all_can_be_lifted() {
    for (NodeId id = 0; id < parts_.body.size(); ++id) {
      const Node& node = parts_.body.node(id);
      if (!marked_[static_cast<std::size_t>(id)]) continue;
      const bool is_too_deep = std::any_of(node.types.begin(), node.types.end(),
                                           [](const Type& type) { return type.shape.rank() == Shape::kMaxRank; }) ||
                               std::any_of(node.inputs.begin(), node.inputs.end(), [&](const Ref& ref) {
                                 return parts_.body.type(ref).shape.rank() == Shape::kMaxRank;
                               });
      if (is_too_deep) {
        notes_.add(fmt::format("nothing is moved after the loop: {} has as many axes as there may be", node.op->name));
        return false;
      }
      if (node.op->kind != OpKind::formula && node.op->kind != OpKind::composed && !node.op->lift) {
        notes_.add(fmt::format("nothing is moved after the loop: {} has no rule for all steps at once", node.op->name));
        return false;
      }
    }
    return kernels_can_be_lifted();
  }

  // The rule of a kernel op may decline: a convolution with weights per step does. It is tried on inputs like those it
  // would get.
  bool kernels_can_be_lifted() {
    std::vector<char> has_time(static_cast<std::size_t>(parts_.body.size()), 1);
    for (const auto& argument : parts_.constants) has_time[static_cast<std::size_t>(argument.input.node)] = 0;
    for (NodeId id = 0; id < parts_.body.size(); ++id) {
      const Node& node = parts_.body.node(id);
      const auto at = static_cast<std::size_t>(id);
      if (node.op->is_uniform) has_time[at] = 0;
      if (!marked_[at]) continue;
      Graph tried;
      std::vector<Lifted> inputs;
      bool any_time = false;
      for (const Ref& ref : node.inputs) {
        const Type& type = parts_.body.type(ref);
        const bool is_lifted = has_time[static_cast<std::size_t>(ref.node)] != 0;
        any_time |= is_lifted;
        inputs.push_back({tried.input(std::to_string(inputs.size()), type.dtype,
                                      is_lifted ? type.shape.with_inserted(0, parts_.length) : type.shape),
                          is_lifted});
      }
      has_time[at] = any_time;
      std::string why_not;
      if (node.op->is_run_by_kernel() && !lift_node(tried, node, inputs, parts_.length, &why_not)) {
        notes_.add("nothing is moved after the loop: " + why_not);
        return false;
      }
    }
    return true;
  }

  // How the outside sees `ref`, a value that stays in the loop. A view of an argument is made outside again.
  void find_outside(Ref ref) {
    if (outside_.contains(ref) || to_stack_.contains(ref)) return;
    const Node& node = parts_.body.node(ref.node);
    if (is_generated(node)) {
      std::string why_not;
      const auto lifted = lift_node(graph_, node, {}, parts_.length, &why_not);
      PD_ASSERT(lifted.has_value(), "what is generated needs no rule");
      outside_[ref] = (*lifted)[0];
      return;
    }
    to_stack_.insert(ref);
    parts_.add_output(ref);
  }

  void build_outside() {
    for (NodeId id = 0; id < parts_.body.size(); ++id) {
      if (!marked_[static_cast<std::size_t>(id)]) continue;
      const Node& node = parts_.body.node(id);
      std::vector<Lifted> inputs;
      for (const Ref& ref : node.inputs) inputs.push_back(outside_.at(ref));
      std::string why_not;
      const auto lifted = lift_node(graph_, node, inputs, parts_.length, &why_not);
      PD_ASSERT(lifted.has_value(), "all_can_be_lifted() said it could");
      for (std::size_t k = 0; k < lifted->size(); ++k) outside_[{id, static_cast<std::int32_t>(k)}] = (*lifted)[k];
      if (is_worth_[static_cast<std::size_t>(id)]) {
        notes_.add(fmt::format("moved {} {} after {} steps", node.op->name, to_string(node.types[0]), parts_.length));
      }
    }
  }

  Value with_time(const Lifted& lifted) {
    if (lifted.has_time) return lifted.value;
    return expand_over_time(lifted.value);
  }

  Value expand_over_time(const Value& value) {
    const Shape target = value.shape().with_inserted(0, parts_.length);
    return call("expand", {value}, {{"shape", std::vector<std::int64_t>(target.begin(), target.end())}});
  }

  Graph& graph_;
  PassNotes& notes_;
  ScanParts parts_;
  std::vector<char> marked_;    // per node of the body: moves out
  std::vector<char> is_worth_;  // per node of the body: is why something moves out
  bool has_marked_ = false;
  std::map<Ref, Lifted> outside_;
  std::set<Ref> to_stack_;
};

}  // namespace

void sink_products(Graph& graph, PassNotes& notes) {
  for_each_graph(graph, [&](Graph& each) {
    for_each_scan(each, [&](NodeId id, std::map<Ref, Ref>* replaced) { Sink(each, id, notes).run(replaced); });
  });
}

}  // namespace paoding
