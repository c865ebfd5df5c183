// SPDX-License-Identifier: Apache-2.0
// sum_over_time: a carry that only ever has something added to it is a sum over the steps. It becomes a stacked value
// that is summed after the loop, which sink_products and merge_products then turn into one large product:
//
//   dw = scan(zeros, ..) [ next = sum + matmul(x, dg) ]          (T small products, T additions)
// becomes
//   s = scan(..) [ out = matmul(x, dg) ];  dw = sum(s, axes=[0])
//
// Where the addend is a product or a reduction, nothing is really stacked in the end. Anything else is stacked only up
// to kMaxStackedBytes: writing it once and reading it once costs no more traffic than the running sum did, but memory.
#include <map>
#include <set>

#include "base/check.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/pass.h"
#include "passes/scan_parts.h"

namespace paoding {
namespace {

constexpr std::int64_t kMaxStackedBytes = std::int64_t{64} << 20;

bool is_zeros(const Graph& graph, Ref ref) {
  const Node* node = &graph.node(ref.node);
  while (node->op->name == "expand" || node->op->name == "reshape") node = &graph.node(node->inputs[0].node);
  return node->op->name == "full" && node->attrs.get_float("value") == 0;
}

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

bool is_sinkable(const Graph& body, Ref ref) {
  const Node* node = &body.node(ref.node);
  while (node->op->kind == OpKind::view && node->inputs.size() == 1) node = &body.node(node->inputs[0].node);
  return node->op->kind == OpKind::kernel || node->op->kind == OpKind::reduction;
}

void take_sums_out(Graph& graph, NodeId id, PassNotes& notes) {
  ScanParts parts(graph, id);
  const std::map<Ref, int> uses = count_uses(parts);
  struct Sum {
    ScanParts::Carry carry;
    std::vector<std::size_t> outputs;
  };
  std::vector<Sum> sums;
  std::vector<ScanParts::Carry> kept;
  for (const ScanParts::Carry& carry : parts.carries) {
    const Node& add = parts.body.node(carry.next.node);
    const bool adds = add.op->name == "add" || add.op->name == "add_n";
    std::vector<Ref> addends;
    int self = 0;
    for (const Ref& ref : add.inputs) {
      if (ref == carry.input) {
        ++self;
      } else {
        addends.push_back(ref);
      }
    }
    const auto used = [&](Ref ref) { return uses.contains(ref) ? uses.at(ref) : 0; };
    bool fits =
        adds && self == 1 && used(carry.input) == 1 && used(carry.next) == 1 && !addends.empty() && parts.length > 0;
    for (const Ref& ref : addends) {
      const Type& type = parts.body.type(ref);
      fits = fits && type == parts.body.type(carry.next) &&
             (is_sinkable(parts.body, ref) || size_bytes(type) * parts.length <= kMaxStackedBytes);
    }
    if (!fits) {
      kept.push_back(carry);
      continue;
    }
    Sum sum{carry, {}};
    for (const Ref& ref : addends) sum.outputs.push_back(parts.add_output(ref));
    sums.push_back(sum);
  }
  if (sums.empty()) return;
  parts.carries = kept;
  std::map<Ref, Ref> replaced;
  const NodeId made = parts.rebuild(&replaced);
  for (const Sum& sum : sums) {
    Values terms;
    if (!is_zeros(graph, sum.carry.initial)) terms.push_back(graph.value(sum.carry.initial));
    for (std::size_t output : sum.outputs) {
      const Ref stacked{made, static_cast<std::int32_t>(parts.carries.size() + output)};
      const Node& addend = parts.body.node(parts.outputs[output].value.node);
      const Name saved_origin = graph.origin, saved_scope = graph.scope;
      graph.origin = addend.origin;
      graph.scope = addend.scope;
      terms.push_back(paoding::sum(graph.value(stacked), std::array<std::int64_t, 1>{0}));
      graph.origin = saved_origin;
      graph.scope = saved_scope;
    }
    replaced[sum.carry.last] = (terms.size() == 1 ? terms[0] : add_n(terms)).ref();
  }
  notes.add(fmt::format("{} sums over {} steps are taken after the loop", sums.size(), parts.length));
  graph.replace(replaced);
}

}  // namespace

void sum_over_time(Graph& graph, PassNotes& notes) {
  for_each_graph(graph, [&](Graph& each) {
    const NodeId size = each.size();
    for (NodeId id = 0; id < size; ++id) {
      if (each.node(id).op->name == "scan") take_sums_out(each, id, notes);
    }
    each.compact();
  });
}

}  // namespace paoding
