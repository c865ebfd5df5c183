// SPDX-License-Identifier: Apache-2.0
// pack_weights: a product on the CPU puts its weights into an order of the library's own before it multiplies. Weights
// that stay the same while many products read them are put so once.
//
//   scan(h0, w) [ .. matmul(h, w) .. ]
// becomes
//   p = pack_weights(w) {rows = 64, elements = 524288};  scan(h0, p) [ .. matmul_packed(h, p) {rows = 64, ..} .. ]
//
// Weights are values that a body reads unchanged in every step, or views of them: packed in front of the outermost loop
// that does not change them, in every run anew. Values that many products outside of loops read are packed too, and
// parameters that a program only reads for each product: that is done when they change, not in a run
// (runtime/parameter_preprocessing.h).
//
// When it pays: measured with oneDNN 2.6.3 on a core of Sapphire Rapids, M from 5 to 640, weights from 16 KB to 7 MB. A
// pack's cost is saved in 1.3 to 3.6 products in f32 and 2.1 to 5.9 in bf16 (whose products are faster, not its packs).
// Smaller weights save up to 1 us a product. Nor do rows of f32 of less than 2 KB save anything: oneDNN reads them in
// place, as fast as packed ones, unless the matrix is large.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "base/check.h"
#include "base/one_line.h"
#include "graph/keep_names.h"
#include "ops/decision.h"
#include "ops/matmul/matmul_packed.h"
#include "ops/scan/scan.h"
#include "paoding/op.h"
#include "passes/large_product.h"
#include "passes/pass.h"
#include "passes/scan_parts.h"

namespace paoding {
namespace {

constexpr std::int64_t kLeastElements = 16'384;
constexpr std::int64_t kMostRows = 640;  // of products of parameters: with more, packing is little of each
// Rows that parameters are packed for, if the product's order is the same: so programs of other extents share them.
constexpr std::int64_t kUsualRows = 64;
constexpr std::int64_t kShortWeightRow = 512, kLeastElementsInShortRows = 131'072;  // of f32, not transposed

std::int64_t least_uses(DType dtype) { return dtype == DType::f32 ? 4 : 6; }

// A scan around a product, and the graph that it is a node of.
struct Loop {
  Graph* graph;
  NodeId scan;
  friend auto operator<=>(const Loop&, const Loop&) = default;
};

struct PackedProduct {
  Graph* graph;
  NodeId id;
  std::vector<Loop> inside;  // the loops between its weights and it, outermost first
};

// Weights with the products that read them in one order.
struct Weights {
  Graph* home;  // where they are made
  Ref source;   // made of this value: `views`, the last one first, come between
  std::vector<const Node*> views;
  bool is_transposed;
  PackedOrder order;
  std::int64_t rows, columns;
  std::int64_t uses;  // in a run
  bool is_packed_once;
  std::vector<PackedProduct> products;

  bool are_those_of(const Weights& other) const {
    const auto is_same = [](const Node* a, const Node* b) { return a->op == b->op && a->attrs == b->attrs; };
    return home == other.home && source == other.source && is_transposed == other.is_transposed &&
           columns == other.columns && order == other.order &&
           std::equal(views.begin(), views.end(), other.views.begin(), other.views.end(), is_same);
  }
};

class WeightPacking {
 public:
  WeightPacking(Graph& graph, PassNotes& notes)
      : notes_(notes),
        preprocessed_from_(notes.preprocesses() && !graph.inputs().empty() && graph.assigns().empty() ? &graph
                                                                                                      : nullptr) {}

  // Nothing is changed before everything has been looked at.
  void find(Graph& graph, const std::vector<Loop>& loops) {
    for (NodeId id = 0; id < graph.size(); ++id) {
      const Node& node = graph.node(id);
      if (multiplies_matrices(node)) consider(graph, id, loops);
      if (node.op->is_fusion_group()) continue;
      // Who enters another body, and how often, is not known: it is looked at on its own.
      std::vector<Loop> inner;
      if (node.op->is_scan()) inner = loops, inner.push_back({&graph, id});
      for (const auto& body : node.bodies) find(*body, inner);
    }
  }

  bool pack() {
    bool is_any = false;
    for (const auto& [unused, list] : found_) {
      for (const Weights& weights : list) is_any |= pack(weights);
    }
    for (auto& [graph, replaced] : replaced_) graph->replace(replaced);
    return is_any;
  }

 private:
  static std::string text(const Weights& weights) {
    const PackedProduct& product = weights.products[0];
    const Node& node = product.graph->node(product.id);
    return fmt::format("{} of {} {}{}{}", to_string(product.graph->type(node.inputs[1])), node.label(),
                       to_string(node.types[0]), weights.is_transposed ? ", transposed" : "",
                       in_scope(node.scope.str()));
  }

  // The inputs of a scan's body that are the same in every step, and their values outside.
  const std::map<NodeId, Ref>& constants_of(const ScanView& scan) {
    const auto [it, is_new] = constants_.try_emplace(&scan.body);
    for (int i = scan.first_constant(); is_new && i < static_cast<int>(scan.node.inputs.size()); ++i) {
      const auto at = static_cast<std::size_t>(i);
      it->second.emplace(scan.body.inputs()[at], scan.node.inputs[at]);
    }
    return it->second;
  }

  // Traces the weights to their source, through views and into the loops around the product.
  Weights trace(Graph& graph, NodeId id, const std::vector<Loop>& loops) {
    Weights weights{
        &graph, graph.node(id).inputs[1], {}, graph.node(id).attrs.get_bool("transpose_b"), {}, 0, 0, 1, false, {}};
    PackedProduct product{&graph, id, {}};
    std::vector<const Node*> views;  // since the innermost body
    Ref ref = weights.source;
    Graph* at = &graph;
    for (std::size_t level = loops.size(); level > 0;) {
      const Node& node = at->node(ref.node);
      if (node.op->kind == OpKind::view && node.inputs.size() == 1) {
        views.push_back(&node);
        ref = node.inputs[0];
        continue;
      }
      if (!node.op->is(OpRole::source)) break;
      const Loop& loop = loops[level - 1];
      const ScanView scan(loop.graph->node(loop.scan));
      const auto constant = constants_of(scan).find(ref.node);
      if (constant == constants_of(scan).end()) break;
      ref = constant->second;
      at = loop.graph;
      --level;
      weights.home = at;
      weights.source = ref;
      weights.views = views;
      weights.uses *= scan.length;
      product.inside.insert(product.inside.begin(), loop);
    }
    weights.products.push_back(std::move(product));
    return weights;
  }

  void consider(Graph& graph, NodeId id, const std::vector<Loop>& loops) {
    const Node& node = graph.node(id);
    Weights weights = trace(graph, id, loops);
    const Type &a = graph.type(node.inputs[0]), &b = graph.type(node.inputs[1]);
    if (weights.uses == 0) return;
    const auto decline = [&](const std::string& why) {
      if (weights.uses > 1) notes_.add(fmt::format("not packed: {}: {}", text(weights), why));
    };
    if (a.shape.rank() != 2 || b.shape.rank() != 2) return decline("it is a product of batches");
    if (node.attrs.get_bool("transpose_a")) return decline("the other operand is transposed");
    if (b.shape.elements() < kLeastElements) {
      return decline(fmt::format("fewer than {} elements: little would be saved", kLeastElements));
    }
    if (b.dtype == DType::f32 && !weights.is_transposed && b.shape[1] < kShortWeightRow &&
        b.shape.elements() < kLeastElementsInShortRows) {
      return decline(fmt::format("rows of fewer than {} elements are read in place as fast", kShortWeightRow));
    }
    const KernelImplementation* const kernel = decide(graph, id, notes_.kernel_setting()).kernel();
    if (kernel == nullptr || !kernel->packs_weights) {
      return decline(fmt::format("the kernel '{}' reads them as they are", kernel == nullptr ? "none" : kernel->name));
    }
    weights.rows = a.shape[0];
    weights.columns = node.types[0].shape[1];
    weights.order = order_of(b.dtype, weights.rows, a.shape[1], weights.columns);
    if (weights.order.order.empty()) return decline("products here have no order of their own for them");
    weights.is_packed_once = weights.home == preprocessed_from_ && weights.rows <= kMostRows &&
                             weights.home->node(weights.source.node).op->is_kept;
    if (weights.is_packed_once && order_of(b.dtype, kUsualRows, a.shape[1], weights.columns) == weights.order) {
      weights.rows = kUsualRows;
    }
    std::vector<Weights>& list = found_[{index_of(weights.home), weights.source}];
    const auto it = std::ranges::find_if(list, [&](const Weights& other) { return other.are_those_of(weights); });
    if (it == list.end()) {
      list.push_back(std::move(weights));
    } else {
      it->uses += weights.uses;
      it->is_packed_once |= weights.is_packed_once;
      it->products.push_back(std::move(weights.products[0]));
    }
  }

  const PackedOrder& order_of(DType dtype, std::int64_t rows, std::int64_t inner, std::int64_t columns) {
    const auto [it, is_new] = orders_.try_emplace({dtype, rows, inner, columns});
    if (is_new) it->second = packed_order(dtype, rows, inner, columns);
    return it->second;
  }

  // Graphs by the order in which they were met: addresses would order packs differently from run to run.
  std::size_t index_of(Graph* graph) { return indices_.try_emplace(graph, indices_.size()).first->second; }

  bool pack(const Weights& weights) {
    const PackedProduct& first = weights.products[0];
    const Node& node = first.graph->node(first.id);
    const DType dtype = node.types[0].dtype;
    if (!weights.is_packed_once && weights.uses < least_uses(dtype)) {
      if (weights.uses > 1) {
        notes_.add(fmt::format("not packed: {}: read {} times, a pack pays from {}", text(weights), weights.uses,
                               least_uses(dtype)));
      }
      return false;
    }
    const KeepNames keep(*weights.home, node);
    Value value = weights.home->value(weights.source);
    for (auto view = weights.views.rbegin(); view != weights.views.rend(); ++view) {
      value = call(*(*view)->op, std::array{value}, (*view)->attrs).front();
    }
    const Value packed =
        call("pack_weights", {value},
             {{"rows", weights.rows}, {"elements", weights.order.elements}, {"transpose", weights.is_transposed}});
    for (const PackedProduct& product : weights.products) multiply(product, packed.ref(), weights);
    notes_.add(fmt::format("packed {}: read {} times{}", text(weights), weights.uses,
                           weights.is_packed_once ? " in every run, packed when they change" : ""));
    return true;
  }

  void multiply(const PackedProduct& product, Ref packed, const Weights& weights) {
    for (const Loop& loop : product.inside) packed = argument(loop, packed);
    Graph& graph = *product.graph;
    const Node& node = graph.node(product.id);
    const KeepNames keep(graph, node);
    const Value made = call("matmul_packed", {graph.value(node.inputs[0]), graph.value(packed)},
                            {{"rows", weights.rows}, {"columns", weights.columns}});
    replaced_[&graph][{product.id, 0}] = made.ref();
  }

  // The input of the scan's body for `outer`; inputs that are the same in every step are its last ones.
  Ref argument(const Loop& loop, Ref outer) {
    auto [it, is_new] = arguments_.try_emplace({loop, outer});
    if (!is_new) return it->second;
    const Type type = loop.graph->type(outer);
    Node& scan = loop.graph->mutable_node(loop.scan);
    Graph& body = *scan.bodies[0];
    std::string name = fmt::format("packed_{}", body.size());
    while (body.find(name).valid()) name += "_";
    scan.inputs.push_back(outer);
    return it->second = body.input(name, type.dtype, type.shape).ref();
  }

  PassNotes& notes_;
  Graph* const preprocessed_from_;  // of whose parameters something is made when they change; nullptr: of none
  std::map<const Graph*, std::map<NodeId, Ref>> constants_;  // by the scan's body
  std::map<Graph*, std::size_t> indices_;
  std::map<std::pair<std::size_t, Ref>, std::vector<Weights>> found_;  // by graph and source
  std::map<std::tuple<DType, std::int64_t, std::int64_t, std::int64_t>, PackedOrder> orders_;
  std::map<std::pair<Loop, Ref>, Ref> arguments_;
  std::map<Graph*, std::map<Ref, Ref>> replaced_;
};

bool reads_all_arguments(const Node& scan) {
  const ScanView view(scan);
  std::set<NodeId> read;
  for (NodeId id = 0; id < view.body.size(); ++id) {
    for (const Ref& ref : view.body.node(id).inputs) read.insert(ref.node);
  }
  for (const Graph::Fetch& fetch : view.body.fetches()) read.insert(fetch.ref.node);
  const auto& inputs = view.body.inputs();
  return std::all_of(inputs.begin() + view.first_constant(), inputs.end(),
                     [&](NodeId id) { return read.contains(id); });
}

}  // namespace

void pack_weights(Graph& graph, PassNotes& notes) {
  if (notes.target().is_gpu()) return;
  WeightPacking packing(graph, notes);
  packing.find(graph, {});
  if (!packing.pack()) return;
  // Loops no longer take the weights that only packed products read.
  for_each_graph(graph, [](Graph& each) {
    each.compact();
    std::map<Ref, Ref> replaced;
    const NodeId size = each.size();
    for (NodeId id = 0; id < size; ++id) {
      if (!each.node(id).op->is_scan() || reads_all_arguments(each.node(id))) continue;
      ScanParts(each, id).rebuild(&replaced);
    }
    each.replace(replaced);
    each.compact();
  });
}

}  // namespace paoding
