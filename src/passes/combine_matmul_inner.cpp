// SPDX-License-Identifier: Apache-2.0
// combine_matmul_inner: products of a loop that are added become one product with their inner extents side by side. On
// a GPU a step of few rows is bound by launches: an LSTM's products of its input and state are one product.
//
//   before (in a scan's body, h is carried):   after:
//            %3 = matmul(%x, w)                         %3 = concat(%x, h)
//            %4 = matmul(h, u)                          %4 = matmul(%3, wu)
//            %5 = add(%3, %4)
//
// where wu, w above u, is made in front of the loop. The concatenation costs nothing: the planner has its parts written
// where they belong, also the one that a step leaves for the next. Values that would have to be copied into it stay
// apart, and so do products that hoist_products takes out.
#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "graph/keep_names.h"
#include "group/lower.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/combined_weights.h"
#include "passes/large_product.h"
#include "passes/pass.h"

namespace paoding {
namespace {

struct SumProduct {
  WeightsPiece weights;
  Ref left;
  std::size_t term = 0;  // of the sum
};

class CombineMatmulInner {
 public:
  CombineMatmulInner(Graph& graph, NodeId id, PassNotes& notes)
      : graph_(graph), notes_(notes), parts_(graph, id), depends_(depends_on_carries(parts_)) {
    const auto use = [&](Ref ref) { users_[ref].push_back(-1); };
    for (NodeId inner = 0; inner < parts_.body.size(); ++inner) {
      const Node& node = parts_.body.node(inner);
      for (const Ref& ref : node.inputs) users_[ref].push_back(inner);
    }
    for (NodeId inner = 0; inner < parts_.body.size(); ++inner) {
      const Node& node = parts_.body.node(inner);
      if (!node.op->is(OpRole::concatenate)) continue;
      // stack_sources takes out of the loop values that are only stacked and concatenate the loop's inputs or carries.
      const bool is_of_inputs = std::all_of(node.inputs.begin(), node.inputs.end(), [&](const Ref& ref) {
        return parts_.body.node(ref.node).op->is(OpRole::source);
      });
      if (is_of_inputs && node.op->view == ViewForm::concatenated && !users_.contains({inner, 0})) continue;
      placed_.insert(node.inputs.begin(), node.inputs.end());
    }
    for (const ScanParts::Carry& carry : parts_.carries) use(carry.next), placed_.insert(carry.next);
    for (const ScanParts::Output& output : parts_.outputs) use(output.value);
  }

  void run() {
    const NodeId size = parts_.body.size();
    for (NodeId id = 0; id < size; ++id) {
      if (is_sum(id) && !is_term(id)) combine(id);
    }
    if (replaced_.empty()) return;
    parts_.body.replace(replaced_);
    const auto moved = [&](Ref* ref) {
      if (const auto it = replaced_.find(*ref); it != replaced_.end()) *ref = it->second;
    };
    for (ScanParts::Carry& carry : parts_.carries) moved(&carry.next);
    for (ScanParts::Output& output : parts_.outputs) moved(&output.value);
    std::map<Ref, Ref> results;
    parts_.rebuild(&results);
    graph_.replace(results);
  }

 private:
  bool is_sum(NodeId id) const { return parts_.body.node(id).op->is(OpRole::sum); }
  bool is_read_once(Ref ref) const { return users_.contains(ref) && users_.at(ref).size() == 1; }
  // Whether the only thing that reads it is a sum of the same type.
  bool is_term(NodeId id) const {
    if (!is_read_once({id, 0})) return false;
    const NodeId user = users_.at({id, 0})[0];
    return user >= 0 && is_sum(user) && parts_.body.type({user, 0}) == parts_.body.type({id, 0});
  }

  void collect(NodeId sum, std::vector<Ref>* terms) const {
    for (const Ref& ref : parts_.body.node(sum).inputs) {
      if (is_sum(ref.node) && is_term(ref.node)) {
        collect(ref.node, terms);
      } else {
        terms->push_back(ref);
      }
    }
  }

  // Why a concatenation would have to copy the value; empty when it is written where it belongs.
  std::string why_copied(Ref ref) const {
    const Node& node = parts_.body.node(ref.node);
    if (placed_.contains(ref)) return "is carried, or combined elsewhere";
    if (node.op->is(OpRole::source)) {
      return parts_.carry_read_as(ref) != nullptr ? "" : "is given to the loop";
    }
    if (node.op->kind == OpKind::view || is_generated(node) || !node.bodies.empty()) return "is a view";
    return "";
  }

  void combine(NodeId sum) {
    std::vector<Ref> terms;
    collect(sum, &terms);
    for (const bool transpose_b : {false, true}) {
      std::vector<SumProduct> products;
      std::set<Ref> lefts;
      for (std::size_t term = 0; term < terms.size(); ++term) {
        const Node& node = parts_.body.node(terms[term].node);
        if (!multiplies_matrices(node) || !depends_[static_cast<std::size_t>(terms[term].node)]) continue;
        if (!is_read_once(terms[term]) || node.types[0] != parts_.body.type({sum, 0})) continue;
        if (node.attrs.get_bool("transpose_a") || node.attrs.get_bool("transpose_b") != transpose_b) continue;
        const Ref left = node.inputs[0];
        const auto piece = weights_piece(parts_, node.inputs[1], transpose_b ? 1 : 0);
        if (!piece || parts_.body.type(left).shape.rank() != 2) continue;
        const std::string why = lefts.insert(left).second ? why_copied(left) : "is multiplied twice";
        if (!why.empty()) {
          notes_.add(fmt::format("{} {} is not combined with others: what it multiplies {}", node.label(),
                                 to_string(node.types[0]), why));
          continue;
        }
        products.push_back({*piece, left, term});
      }
      if (products.size() < 2) continue;
      std::sort(products.begin(), products.end(),
                [](const SumProduct& a, const SumProduct& b) { return a.weights < b.weights; });
      if (combine(sum, terms, products, transpose_b)) return;
    }
  }

  bool combine(NodeId sum, const std::vector<Ref>& terms, const std::vector<SumProduct>& products, bool transpose_b) {
    const int axis = transpose_b ? 1 : 0;
    std::vector<WeightsPiece> pieces;
    for (const SumProduct& product : products) pieces.push_back(product.weights);
    const Node first = parts_.body.node(terms[products[0].term].node);
    const std::string what = fmt::format("{} products {} that are added", products.size(), to_string(first.types[0]));
    if (const std::string why = why_apart(notes_.target(), parts_, pieces, axis); !why.empty()) {
      notes_.add(fmt::format("{} are kept apart: {}", what, why));
      return false;
    }
    const KeepNames keep_outer(graph_, first), keep_body(parts_.body, first);
    Values lefts, rest;
    std::set<std::size_t> combined_terms;
    for (const SumProduct& product : products) {
      lefts.push_back(parts_.body.value(product.left));
      placed_.insert(product.left);
      combined_terms.insert(product.term);
    }
    const Value weights = parts_.body.value(combined_weights(parts_, pieces, axis));
    Value result = matmul(concat(lefts, 1), weights, false, transpose_b);
    for (std::size_t term = 0; term < terms.size(); ++term) {
      if (!combined_terms.contains(term)) result = add(parts_.body.value(terms[term]), result);
    }
    replaced_[{sum, 0}] = result.ref();
    notes_.add(what + " are one");
    return true;
  }

  Graph& graph_;
  PassNotes& notes_;
  ScanParts parts_;
  const std::vector<char> depends_;
  std::map<Ref, std::vector<NodeId>> users_;  // of values of the body; -1 for the loop itself
  std::set<Ref> placed_;                      // written where something else wants them
  std::map<Ref, Ref> replaced_;
};

}  // namespace

void combine_matmul_inner(Graph& graph, PassNotes& notes) {
  if (!notes.target().is_gpu()) return;
  for_each_graph(graph, [&](Graph& each) {
    const NodeId size = each.size();
    for (NodeId id = 0; id < size; ++id) {
      if (each.node(id).op->is_scan()) CombineMatmulInner(each, id, notes).run();
    }
    each.compact();
  });
}

}  // namespace paoding
