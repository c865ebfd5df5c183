// SPDX-License-Identifier: Apache-2.0
// recognize_recurrences: a scan around a recurrent cell becomes the op for all steps, as its gradient has taken it:
// values that the gradient computed for the op itself are the same then, and merged.
//
//   hn, cn, ys = scan(h0, c0, xs, w, u, b) [ h, c = lstm_cell(x, h, c, w, u, b) .. ]
// becomes
//   states, .., hn, cn = lstm_recurrence(matmul(xs, w) + b, u, h0, c0);  ys = slice(states)
#include <fmt/format.h>

#include <map>

#include "ops/recurrence/recognize.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

// The op that each scan of the graph is; those that are none are not in it.
std::map<NodeId, std::string> recurrences_in(const Graph& graph, PassNotes& notes) {
  std::map<NodeId, std::string> found;
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (!graph.node(id).op->is_scan()) continue;
    const ScanView scan(graph.node(id));
    std::string why_not;
    const std::string op = recurrence_of(scan, &why_not);
    if (!op.empty()) found.emplace(id, op);
    if (op.empty() && why_not.empty()) continue;
    notes.add(
        fmt::format("the scan of {} steps is {}{}", scan.length, op.empty() ? "no " : "", op.empty() ? why_not : op));
  }
  return found;
}

bool recognize_in(Graph& graph, PassNotes& notes) {
  const auto found = recurrences_in(graph, notes);
  if (found.empty()) return false;
  Rewriter rewriter(graph);
  for (NodeId id = 0; id < rewriter.first_new; ++id) {
    const Node& node = rewriter.enter(id);
    if (!found.contains(id)) continue;
    Values inputs;
    for (const Ref& ref : node.inputs) inputs.push_back(graph.value(ref));
    const Values made = as_recurrence(ScanView(node), inputs);
    for (std::size_t k = 0; k < made.size(); ++k) {
      rewriter.replace({id, static_cast<std::int32_t>(k)}, made[k].ref());
    }
  }
  rewriter.finish();
  return true;
}

}  // namespace

void recognize_recurrences(Graph& graph, PassNotes& notes) {
  bool is_any = false;
  for_each_graph(graph, [&](Graph& each) { is_any |= recognize_in(each, notes); });
  if (is_any) merge_duplicates(graph, notes);
}

}  // namespace paoding
