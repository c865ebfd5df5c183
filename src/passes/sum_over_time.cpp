// SPDX-License-Identifier: Apache-2.0
// sum_over_time: a carry that only ever has something added to it is a sum over the steps. It becomes a stacked value
// that is summed after the loop, which sink_products and merge_products then turn into one large product:
//
//   dw = scan(zeros, ..) [ next = sum + matmul(x, dg) ]          (T small products, T additions)
// becomes
//   s = scan(..) [ out = matmul(x, dg) ];  dw = sum(s, axes=[0])
//
// Rows that are added at places of a table are stacked themselves, with their places, and added to one table in the
// end, where a table for each step would be stacked else.
//
// Where the addend is a product or a reduction, nothing is really stacked in the end. Of a product of values that
// repeat each other's axes only these are stacked, which are smaller; addends that are such are taken one by one.
// Anything else is stacked only up to kMaxStackedTermBytes: writing it once and reading it once costs no more traffic
// than the running sum did, but memory.
#include <map>

#include "base/check.h"
#include "graph/keep_names.h"
#include "graph/number_everywhere.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/broadcast_product.h"
#include "passes/large_product.h"
#include "passes/pass.h"
#include "passes/row_additions.h"
#include "passes/scan_parts.h"

namespace paoding {
namespace {

constexpr std::int64_t kMaxStackedTermBytes = std::int64_t{64} << 20;

// How often each value of the body is read by nodes, carries and outputs.
std::map<Ref, int> count_uses(const ScanParts& parts) {
  std::map<Ref, int> uses;
  for (NodeId id = 0; id < parts.body.size(); ++id) {
    for (const Ref& ref : parts.body.node(id).inputs) ++uses[ref];
  }
  for (const auto& carry : parts.carries) ++uses[carry.next];
  for (const auto& output : parts.outputs) ++uses[output.value];
  return uses;
}

bool is_sinkable(Graph& body, Ref ref) {
  if (broadcast_product(body, ref)) return true;
  const Node* node = &body.node(ref.node);
  while (node->op->kind == OpKind::view && node->inputs.size() == 1) node = &body.node(node->inputs[0].node);
  return node->op->is_run_by_kernel() || node->op->kind == OpKind::reduction;
}

// The addends of a sum; a sum among them that nobody else reads stands for its own, if those can all be sunk.
std::vector<Ref> addends_of(ScanParts& parts, const std::map<Ref, int>& uses, Ref ref, int depth = 0) {
  constexpr int kMostNested = 32;  // each looks at all addends below it
  const Node& node = parts.body.node(ref.node);
  if (!node.op->is(OpRole::sum)) return {ref};
  std::vector<Ref> all;
  for (const Ref& addend : node.inputs) {
    const Node& inner = parts.body.node(addend.node);
    bool is_taken_apart = depth < kMostNested && inner.op->is(OpRole::sum) && uses.at(addend) == 1;
    std::vector<Ref> list;
    if (is_taken_apart) list = addends_of(parts, uses, addend, depth + 1);
    for (const Ref& each : list) {
      is_taken_apart = is_taken_apart && parts.body.type(each) == inner.types[0] && is_sinkable(parts.body, each);
    }
    if (!is_taken_apart) list = {addend};
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

// The value to stack for an addend: for a product of values that repeat each other's axes one of its own, which the
// steps need not make, whatever else they make of it.
Ref to_stack(Graph& body, Ref addend) {
  const auto product = broadcast_product(body, addend);
  if (!product) return addend;
  const Node& node = body.node(addend.node);
  const KeepNames keep(body, node);
  return call("mul", {product->a, product->b}).ref();
}

// Whether a node adds rows at places along the first axis of a table. Stacked places and rows mean the same, of all
// steps.
bool adds_rows_of_steps(const Node& node) { return adds_rows(node) && node.inputs.size() == 2 && row_axis(node) == 0; }

// The values that an addend stacks: one to be summed, or the inputs of a node that adds rows.
std::vector<std::size_t> stack_addend(ScanParts& parts, Ref addend) {
  const Node& node = parts.body.node(addend.node);
  if (!adds_rows_of_steps(node)) return {parts.add_output(to_stack(parts.body, addend))};
  const Ref places = node.inputs[0], rows = node.inputs[1];
  const std::size_t first = parts.add_output(places);
  return {first, parts.add_output(rows)};
}

void take_sums_out(Graph& graph, NodeId id, std::map<Ref, Ref>* replaced, PassNotes& notes) {
  ScanParts parts(graph, id);
  const std::map<Ref, int> uses = count_uses(parts);
  struct Sum {
    ScanParts::Carry carry;
    std::vector<std::pair<Ref, std::vector<std::size_t>>> addends;  // with the outputs that they stack
  };
  std::vector<Sum> sums;
  std::vector<ScanParts::Carry> kept;
  for (const ScanParts::Carry& carry : parts.carries) {
    const auto is_used_once = [&](Ref ref) { return uses.contains(ref) && uses.at(ref) == 1; };
    if (!parts.body.node(carry.next.node).op->is(OpRole::sum) || !is_used_once(carry.input) ||
        !is_used_once(carry.next)) {
      kept.push_back(carry);
      continue;
    }
    std::vector<Ref> addends;
    int self = 0;
    for (const Ref& ref : addends_of(parts, uses, carry.next)) {
      if (ref == carry.input) {
        ++self;
      } else {
        addends.push_back(ref);
      }
    }
    bool fits = self == 1 && !addends.empty() && parts.length > 0;
    for (const Ref& ref : addends) {
      const Type& type = parts.body.type(ref);
      fits = fits && type == parts.body.type(carry.next) && !sums_many_rows(parts.body, parts.body.node(ref.node)) &&
             (is_sinkable(parts.body, ref) || size_bytes(type) * parts.length <= kMaxStackedTermBytes);
    }
    if (!fits) {
      kept.push_back(carry);
      continue;
    }
    Sum sum{carry, {}};
    for (const Ref& ref : addends) sum.addends.emplace_back(ref, stack_addend(parts, ref));
    sums.push_back(sum);
  }
  if (sums.empty()) return;
  parts.carries = kept;
  const NodeId made = parts.rebuild(replaced);
  for (const Sum& sum : sums) {
    Values terms;
    if (!is_everywhere(graph, sum.carry.initial, 0)) terms.push_back(graph.value(sum.carry.initial));
    for (const auto& [ref, outputs] : sum.addends) {
      Values stacked;
      for (const std::size_t output : outputs) {
        stacked.push_back(graph.value({made, static_cast<std::int32_t>(parts.carries.size() + output)}));
      }
      const bool is_one = stacked.size() == 1;
      const Node& addend = parts.body.node(is_one ? parts.outputs[outputs[0]].value.node : ref.node);
      const KeepNames keep(graph, addend);
      if (is_one) {
        terms.push_back(paoding::sum(stacked[0], std::array<std::int64_t, 1>{0}));
      } else {
        Attrs attrs = addend.attrs;
        if (attrs.find("axis") != nullptr) attrs.set("axis", std::int64_t{0});
        terms.push_back(call(*addend.op, stacked, attrs)[0]);
      }
    }
    const Node& add = parts.body.node(sum.carry.next.node);
    const KeepNames keep(graph, add);
    (*replaced)[sum.carry.last] = (terms.size() == 1 ? terms[0] : add_n(terms)).ref();
  }
  notes.add(fmt::format("{} sums over {} steps are taken after the loop", sums.size(), parts.length));
}

}  // namespace

void sum_over_time(Graph& graph, PassNotes& notes) {
  for_each_graph(graph, [&](Graph& each) {
    for_each_scan(each, [&](NodeId id, std::map<Ref, Ref>* replaced) { take_sums_out(each, id, replaced, notes); });
  });
}

}  // namespace paoding
