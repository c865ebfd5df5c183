// SPDX-License-Identifier: Apache-2.0
// In a loop, a product of a concatenation of which a part depends on the carried state becomes a sum of products, so
// that the other part can leave the loop. Input feeding keeps only its fed-back half inside.
//
//   before (in a scan's body, h is carried):   after:
//            %3 = concat(%x, %h, axis = 1)              %4 = matmul(%x, slice(%w, rows of x))
//            %4 = matmul(%3, %w)                        %5 = matmul(%h, slice(%w, rows of h))
//                                                       %6 = add(%4, %5)
#include <fmt/format.h>

#include <map>

#include "base/one_line.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/large_product.h"
#include "passes/pass.h"
#include "passes/rewriter.h"
#include "passes/scan_parts.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::size_t kMostRuns = 16;  // each becomes a product of its own

// Adjacent pieces of a concatenation that all depend on the carried state, or all do not.
struct Run {
  Values pieces;
  Value combined;  // when a product has needed it
  bool depends = false;
  std::int64_t extent = 0;  // along the last axis
};

class Splitter {
 public:
  Splitter(Graph& body, const std::vector<char>& depends, PassNotes& notes)
      : body_(body), depends_(depends), notes_(notes), rewriter_(body) {}

  void run() {
    for (NodeId id = 0; id < rewriter_.first_new; ++id) {
      const Node& node = rewriter_.enter(id);
      if (multiplies_matrices(node) && depends_[static_cast<std::size_t>(id)]) split(id);
    }
    rewriter_.finish();
  }

 private:
  void split(NodeId id) {
    const Node& product = body_.node(id);
    const Value left = body_.value(product.inputs[0]);
    // The builder flattens leading axes of a product with one matrix; only the last axis matters here.
    Value whole = left;
    if (body_.node(whole.ref().node).op->view == ViewForm::reshaped) {
      const Value source = body_.value(body_.node(whole.ref().node).inputs[0]);
      const int rank = source.shape().rank();
      if (rank > 0 && source.shape()[rank - 1] == left.shape()[left.shape().rank() - 1]) whole = source;
    }
    const Node& node = body_.node(whole.ref().node);
    if (node.op->view != ViewForm::concatenated || whole.ref().node >= rewriter_.first_new) return;
    std::vector<Run>& runs = runs_of(whole.ref().node);
    if (runs.size() < 2) return;
    const std::int64_t axis = node.attrs.get_int("axis");
    if (axis != -1 && axis != whole.shape().rank() - 1) return;  // rows, not the summed extent, are concatenated
    if (product.attrs.get_bool("transpose_a")) {
      notes_.add(fmt::format("matmul of a concatenation (in {}) kept whole: its concatenation is transposed",
                             product.scope.empty() ? "the top scope" : one_line(product.scope.str())));
      return;
    }
    if (runs.size() > kMostRuns) {
      notes_.add(fmt::format("matmul of a concatenation (in {}) kept whole: it would become {} products, more than {}",
                             product.scope.empty() ? "the top scope" : one_line(product.scope.str()), runs.size(),
                             kMostRuns));
      return;
    }
    rewriter_.replace({id, 0}, sum_of_products(product, left, runs).ref());
    notes_.add(fmt::format("matmul of a concatenation of {} became {} products", to_string(whole.type()), runs.size()));
  }

  // Looked at once for all products of the concatenation, so that its pieces are combined once.
  std::vector<Run>& runs_of(NodeId id) {
    const auto [it, is_new] = runs_.try_emplace(id);
    std::vector<Run>& runs = it->second;
    if (!is_new) return runs;
    for (const Ref& ref : body_.node(id).inputs) {
      const Value piece = body_.value(ref);
      // A node that this pass has made stands for a product that depends.
      const bool depends = ref.node >= rewriter_.first_new || depends_[static_cast<std::size_t>(ref.node)];
      if (runs.empty() || runs.back().depends != depends) runs.push_back({{}, {}, depends, 0});
      runs.back().pieces.push_back(piece);
      runs.back().extent += piece.shape().rank() == 0 ? 0 : piece.shape()[piece.shape().rank() - 1];
    }
    return runs;
  }

  static Value combined(Run& run) {
    if (!run.combined.valid()) run.combined = run.pieces.size() == 1 ? run.pieces[0] : concat(run.pieces, -1);
    return run.combined;
  }

  Value sum_of_products(const Node& product, const Value& left, std::vector<Run>& runs) {
    const Value weights = body_.value(product.inputs[1]);
    const bool transpose_b = product.attrs.get_bool("transpose_b");
    const int last = left.shape().rank() - 1, rows = weights.shape().rank() - (transpose_b ? 1 : 2);
    Values terms;
    std::int64_t start = 0;
    for (Run& run : runs) {
      const Value piece = reshape(combined(run), left.shape().with_dim(last, run.extent));
      terms.push_back(matmul(piece, slice(weights, rows, start, start + run.extent), false, transpose_b));
      start += run.extent;
    }
    return terms.size() == 2 ? add(terms[0], terms[1]) : add_n(terms);
  }

  Graph& body_;
  const std::vector<char>& depends_;
  PassNotes& notes_;
  Rewriter rewriter_;
  std::map<NodeId, std::vector<Run>> runs_;  // of concatenations
};

}  // namespace

void split_products(Graph& graph, PassNotes& notes) {
  for_each_graph(graph, [&](Graph& g) {
    for (NodeId id = 0; id < g.size(); ++id) {
      if (!g.node(id).op->is_scan()) continue;
      const ScanParts parts(g, id);
      const std::vector<char> depends = depends_on_carries(parts);
      Splitter(parts.body, depends, notes).run();
    }
    g.compact();
  });
}

}  // namespace paoding
