// SPDX-License-Identifier: Apache-2.0
// lower_collectives: collectives when it is known how many ranks there are, and which this is.
//
//   y = all_reduce(x) {reduction = "mean"}                      with 4 ranks, on rank 0
//   b = is_rank() {number = 0}
// becomes
//   s = all_reduce(x) {reduction = "sum"};  y = mul(s, 0.25)
//   b = constant() {values = [1]}
// and with one rank y = x. Random ops of rank 3 draw with another seed than those of rank 0, so that the ranks drop
// other elements: the state, which is the same on all, stays as it is. The constant is no `full`, which other
// passes would compute with: the ranks' graphs stay alike, so that all start the same collectives.
#include <array>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/one_line.h"
#include "ops/collective/reduction_attr.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

class Lowering {
 public:
  Lowering(Graph& graph, const Communicator* communicator) : rewriter_(graph), communicator_(communicator) {}

  void run() {
    for (NodeId id = 0; id < rewriter_.first_new; ++id) {
      if (rewriter_.enter(id).op->collective != Collective::none) lower(id);
    }
    rewriter_.finish();
  }

 private:
  [[noreturn]] static void wrong(const Node& node, const std::string& what) {
    fail(ErrorKind::argument, "{}: {}{}", node.op->name, what, in_scope(node.scope.str()));
  }

  // The attribute that names a rank, which must be there.
  std::int64_t rank_in(const Node& node, const char* attr) const {
    const std::int64_t number = node.attrs.get_int(attr);
    if (number >= communicator_->size()) {
      wrong(node, fmt::format("{} = {}, but there are {} ranks", attr, number, communicator_->size()));
    }
    return number;
  }

  void lower(NodeId id) {
    const Node node = rewriter_.graph.node(id);
    if (communicator_ == nullptr) {
      wrong(node,
            "the program has no communicator\n"
            "hint: CompileOptions::communicator says which ranks take part (in Python Program(.., communicator=))");
    }
    const int size = communicator_->size();
    if (node.attrs.find("ranks") != nullptr && node.attrs.get_int("ranks") != size) {
      wrong(node, fmt::format("ranks = {}, but there are {}", node.attrs.get_int("ranks"), size));
    }
    if (node.op->collective == Collective::rank_test) {
      const bool is_it = rank_in(node, "number") == communicator_->rank();
      const Value told = constant(rewriter_.graph, {}, std::array{is_it ? 1.0 : 0.0}, DType::boolean);
      return rewriter_.replace({id, 0}, told.ref());
    }
    if (node.op->collective == Collective::broadcast) rank_in(node, "root");
    if (size == 1) return rewriter_.replace({id, 0}, node.inputs[0]);
    if (!asks_for_mean(node.attrs)) return;
    const Value sum = call(*node.op, std::array{rewriter_.graph.value(node.inputs[0])}, with_sum(node.attrs))[0];
    rewriter_.replace({id, 0}, (sum * (1.0 / size)).ref());
  }

  Rewriter rewriter_;
  const Communicator* communicator_;
};

constexpr double kSeedsApart = 1'000'003;  // of neighbouring ranks; seeds stay where f64 holds them

// Random ops read the state with the rank's own seed; the count of runs that is assigned to it follows from the state.
void draw_apart(Graph& graph, std::string_view name, int rank) {
  const NodeId state = graph.find(name).ref().node, before = graph.size();
  std::set<NodeId> kept;  // the assign, and the node that makes its value
  for (const NodeId id : graph.assigns()) {
    if (graph.node(id).inputs[0].node != state) continue;
    kept.insert(id);
    kept.insert(graph.node(id).inputs[1].node);
  }
  const Value mine = graph.value({state, 0}) + constant(graph, {2}, std::array{rank * kSeedsApart, 0.0}, DType::i64);
  for (NodeId id = 0; id < before; ++id) {
    if (kept.contains(id)) continue;
    for (Ref& ref : graph.mutable_node(id).inputs) {
      if (ref.node == state) ref = mine.ref();
    }
  }
  graph.compact();
}

bool has_collectives(const Graph& graph) {
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.op->collective != Collective::none) return true;
    for (const auto& body : node.bodies) {
      if (!node.op->is_fusion_group() && has_collectives(*body)) return true;
    }
  }
  return false;
}

}  // namespace

void lower_collectives(Graph& graph, PassNotes& notes) {
  if (!has_collectives(graph)) return;
  const Communicator* const communicator = notes.kernel_setting().environment->communicator.get();
  for_each_graph(graph, [&](Graph& each) { Lowering(each, communicator).run(); });
  if (communicator->rank() == 0) return;
  std::vector<std::string> states;
  for (const NodeId id : graph.parameters()) {
    const std::string& name = graph.node(id).name.str();
    if (graph.role(name) == ParameterRole::random) states.push_back(name);
  }
  for (const std::string& name : states) draw_apart(graph, name, communicator->rank());
}

}  // namespace paoding
