// SPDX-License-Identifier: Apache-2.0
// combine_matmul_rows: products of transposed left factors that share their right one, as the weights' gradients of a
// recurrent layer's input and state do, become one product with their rows one above the other. Each alone has too few
// tiles of a result to fill a GPU, whose library then cuts K into more parts, and takes smaller tiles.
//
//   dw = matmul(x, g) {transpose_a}                # [K, M], [K, N]: [M, N]
//   du = matmul(h, g) {transpose_a}
// becomes in TF32, whose tensor cores want the left factors transposed (ops/matmul/product_rules.h),
//   d = matmul(concat(transpose(x), transpose(h)), g);  dw, du = slices of d
// and in 16 bits, where the factors of all layers are written one after the other, so that those of a layer are at one
// distance,
//   s = concat(x, hs, ..);  d = matmul(slice of s as [2, K, M], g) {transpose_a}       # [2, M, N]
//
// There x, or hs without its last step, ends where the other begins: a layer's input ends with the last step of the
// states that the layer in front has made, its state begins with the first of its own states.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/one_line.h"
#include "base/rounding.h"
#include "graph/keep_names.h"
#include "group/lower.h"
#include "ops/matmul/product_rules.h"
#include "ops/views.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/pass.h"

namespace paoding {
namespace {

constexpr std::int64_t kPartAlignedBytes = 256;  // parts of a concatenation begin where values by themselves would
constexpr double kCopyLaunch = 2;                // us, of a copy beside its time in memory

// us, of a product of 16 bits beside its operations: its launch, and that K is cut into parts, which are added up,
// until every multiprocessor has one (an H200, benchmarks/results/2026-11-26-weight-gradients.txt).
constexpr double kOfProduct = 2.6, kOfPart = 0.27;
constexpr std::int64_t kTileRows = 128, kTileColumns = 256, kLeastPart = 256;
constexpr double kCombinedRate = 345e6;  // operations a us in TF32 of combined products, measured there as well

struct RowProduct {
  NodeId id;
  std::int64_t rows;  // of its result
};

// The slice of a combined product that replaces a product.
struct View {
  NodeId id;
  Value value;
};

// Elements of `source`, next to each other in memory.
struct Stretch {
  Ref source;
  std::int64_t begin = 0, end = 0, of = 0;
};

// Products of a batch of two: the left factor of one ends where its source ends, that of the other begins where its
// source begins.
struct Pair {
  RowProduct first, second;
  Stretch a, b;
};

// Sources that are to lie one after the other.
struct Batch {
  std::vector<Ref> sources;
  std::vector<Pair> pairs;
};

class RowCombination {
 public:
  RowCombination(Graph& graph, bool is_body, PassNotes& notes)
      : graph_(graph), is_body_(is_body), notes_(notes), reads_(static_cast<std::size_t>(graph.size())) {}

  void run() {
    std::map<Key, std::vector<RowProduct>> groups;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      if (node.op->is(OpRole::concatenate)) {
        for (const Ref& ref : node.inputs) placed_.insert(renamed(ref));
      }
      if (!is_weight_gradient(node)) continue;
      if (first_product_ < 0) first_product_ = id;
      groups[{node.inputs[1], node.op->name, node.types[0].dtype, node.placement}].push_back(
          {id, node.types[0].shape[0]});
    }
    // In the order of the graph.
    std::map<NodeId, const std::vector<RowProduct>*> ordered;
    for (const auto& [key, products] : groups) {
      if (products.size() > 1) ordered[products[0].id] = &products;
    }
    for (const auto& [id, products] : ordered) consider(*products);
    for (const Batch& batch : batches_) combine(batch);
    place();
    graph_.compact();
  }

 private:
  using Key = std::tuple<Ref, std::string, DType, Placement>;

  bool is_weight_gradient(const Node& node) const {
    if (!node.op->contracts) return false;
    return node.placement != Placement::cpu && node.types[0].shape.rank() == 2 && node.types[0].shape.elements() > 0 &&
           node.attrs.get_bool("transpose_a") && !node.attrs.get_bool("transpose_b") &&
           graph_.type(node.inputs[0]).shape[0] > 0;
  }
  // The value that `ref` is all of, under another shape.
  Ref renamed(Ref ref) const {
    for (;;) {
      const Node& node = graph_.node(ref.node);
      const ViewForm view = node.op->view;
      const bool is_all = view == ViewForm::reshaped || view == ViewForm::transposed ||
                          (view == ViewForm::sliced && node.types[0] == graph_.type(node.inputs[0]));
      if (!is_all) return ref;
      ref = node.inputs[0];
    }
  }
  const Node& node_of(const RowProduct& product) const { return graph_.node(product.id); }
  const Node& node_of_value(Ref ref) const { return graph_.node(ref.node); }
  Ref left_of(const RowProduct& product) const { return node_of(product).inputs[0]; }
  std::int64_t depth_of(const RowProduct& product) const { return graph_.type(left_of(product)).shape[0]; }

  std::string label(const std::vector<RowProduct>& products) const {
    const Node& node = node_of(products[0]);
    std::string shapes;
    for (const RowProduct& product : products) {
      shapes += (shapes.empty() ? "" : " and ") + to_string(node_of(product).types[0]);
    }
    return fmt::format("{} {} of {} summands{}", one_line(node.label()), shapes, depth_of(products[0]),
                       in_scope(node.scope.str()));
  }

  void consider(const std::vector<RowProduct>& products) {
    const DType dtype = graph_.type(left_of(products[0])).dtype;
    std::string why;
    if (size_bytes(dtype) == 2) {
      why = pair_up(products);
    } else if (dtype == DType::f32 && notes_.allow_tf32()) {
      why = stack(products);
    } else {
      return;
    }
    notes_.add(why.empty() ? fmt::format("one product: {}", label(products))
                           : fmt::format("kept apart: {}: {}", label(products), why));
  }

  // ---- Time that it saves ----

  std::int64_t columns_of(const RowProduct& product) const { return node_of(product).types[0].shape[1]; }

  // Time of a product of 16 bits with so many rows, beside its operations.
  double beside_operations_us(const RowProduct& like, std::int64_t rows) const {
    const std::int64_t tiles = ceil_div(rows, kTileRows) * ceil_div(columns_of(like), kTileColumns);
    const std::int64_t parts = std::min(notes_.target().sm_count / tiles, depth_of(like) / kLeastPart);
    return kOfProduct + kOfPart * static_cast<double>(std::max<std::int64_t>(parts, 1));
  }

  double copy_us(Ref ref) const {
    const auto bytes = static_cast<double>(size_bytes(graph_.type(ref)));
    return kCopyLaunch + notes_.target().stream_us(bytes, bytes);
  }

  // ---- Dependencies ----

  // Whether `ref` follows from one of the products, also through combined products.
  bool depends(Ref ref, const std::set<NodeId>& products) const {
    std::set<NodeId> seen;
    std::vector<NodeId> open{ref.node};
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      if (id < first_product_ || !seen.insert(id).second) continue;
      if (products.contains(id)) return true;
      for (const Ref& read : graph_.node(id).inputs) open.push_back(read.node);
      for (const Ref& read : reads_[static_cast<std::size_t>(id)]) open.push_back(read.node);
    }
    return false;
  }

  // Makes the products depend on all operands of the combined one, if none of these follows from one of them.
  bool wait_together(const std::set<NodeId>& products, const std::vector<Ref>& read) {
    if (std::any_of(read.begin(), read.end(), [&](Ref ref) { return depends(ref, products); })) return false;
    for (const NodeId id : products) reads_[static_cast<std::size_t>(id)] = read;
    return true;
  }

  // ---- TF32: left factors transposed, one above the other ----

  std::string stack(const std::vector<RowProduct>& products) {
    if (node_of_value(node_of(products[0]).inputs[1]).op->view == ViewForm::transposed)
      return "their right factor lies transposed";
    std::set<NodeId> ids;
    std::vector<Ref> lefts;
    std::int64_t rows = 0;
    double apart = 0, together = 0;  // us
    for (const RowProduct& product : products) {
      const Ref left = left_of(product);
      if (node_of_value(left).op->view == ViewForm::transposed) return "a left factor lies transposed already";
      if (product.rows < kTileRows) return fmt::format("a left factor has {} columns, less than a tile", product.rows);
      const std::int64_t m = product.rows, n = columns_of(product), k = depth_of(product);
      const double operations = product_operations(m, n, k);
      apart += transposing_pays(m, n, k) ? operations / kAlongRate + transposed_copy_us(std::min(m, n), k)
                                         : operations / kAcrossRate;
      together += operations / kCombinedRate + transposed_copy_us(m, k);
      lefts.push_back(left), ids.insert(product.id), rows += m;
    }
    if (rows <= kMostFewRows) return fmt::format("{} rows have another kernel", rows);
    if (apart <= together)
      return fmt::format("with transposed copies it would take {:.1f} us, not {:.1f}", together, apart);
    if (!wait_together(ids, lefts)) return "one follows from another";
    const KeepNames keep(graph_, node_of(products[0]));
    Values transposed;
    for (const Ref& left : lefts) transposed.push_back(transpose(graph_.value(left), std::vector<int>{1, 0}));
    Attrs attrs = node_of(products[0]).attrs;
    attrs.set("transpose_a", false);
    const Value made = multiply(products[0], concat(transposed, 0), attrs);
    std::int64_t row = 0;
    std::vector<View>& views = views_.emplace_back();
    for (const RowProduct& product : products) {
      views.push_back({product.id, slice(made, 0, row, row + product.rows)});
      row += product.rows;
    }
    return "";
  }

  // ---- 16 bits: a batch of two, whose left factors lie where they are made ----

  // The elements of `ref` as a stretch of the value that it is a view of.
  Stretch stretch_of(Ref ref) const {
    Stretch stretch{ref, 0, graph_.type(ref).shape.elements(), 0};
    for (;;) {
      const Node& node = graph_.node(stretch.source.node);
      if (node.op->view == ViewForm::sliced) {
        const SliceRange range = slice_range(node);
        const Shape& whole = graph_.type(node.inputs[0]).shape;
        if (!range.is_plain()) break;
        int axis = 0;  // the outermost that has more than one element
        while (axis + 1 < whole.rank() && whole[axis] == 1) ++axis;
        if (!(node.types[0].shape.with_dim(axis, whole[axis]) == whole)) break;
        const std::int64_t begin = range.start[static_cast<std::size_t>(axis)] * (whole.elements() / whole[axis]);
        stretch.begin += begin, stretch.end += begin;
      } else if (node.op->view != ViewForm::reshaped) {
        break;
      }
      stretch.source = node.inputs[0];
    }
    stretch.of = graph_.type(stretch.source).shape.elements();
    return stretch;
  }

  // Whether the kernel that makes the value can as well write it as a part of another.
  bool is_written_anywhere(Ref ref) const {
    const Node& node = node_of_value(ref);
    const bool is_computed = node.op->kind == OpKind::formula || node.op->kind == OpKind::reduction;
    return (is_computed || node.op->is_run_by_kernel() || node.op->is(OpRole::concatenate)) && !is_generated(node) &&
           !placed_.contains(ref);
  }
  // Whether it is a part of a value, or lies in another order than it counts: two copies would make it one of another.
  bool is_seen_through(Ref ref) const {
    const Node& node = node_of_value(ref);
    return node.op->kind == OpKind::view && !node.op->is(OpRole::concatenate);
  }

  std::string pair_up(const std::vector<RowProduct>& products) {
    if (is_body_) return "a step of a loop keeps its values elsewhere";
    if (products.size() != 2) return "they are more than two";
    if (products[0].rows != products[1].rows) return "their left factors are of different widths";
    Pair pair{products[0], products[1], stretch_of(left_of(products[0])), stretch_of(left_of(products[1]))};
    const double saved =
        2 * beside_operations_us(pair.first, pair.first.rows) - beside_operations_us(pair.first, 2 * pair.first.rows);
    double copies = 0;  // us
    for (const Ref& source : {pair.a.source, pair.b.source}) {
      if (is_seen_through(source)) return "a left factor is a part of what is written";
      if (size_bytes(graph_.type(source)) % kPartAlignedBytes != 0) {
        return fmt::format("{} are not a multiple of {} bytes", to_string(graph_.type(source)), kPartAlignedBytes);
      }
      if (!is_placed(source) && !is_written_anywhere(source)) copies += copy_us(source);
    }
    if (saved <= copies) return fmt::format("copies would take {:.1f} us, of {:.1f} that it might save", copies, saved);
    if (pair.a.source == pair.b.source) return "their left factors are parts of one value";
    std::string why = "neither left factor ends where the other one may begin";
    for (int order = 0; order < 2; ++order) {
      if (pair.a.end == pair.a.of && pair.b.begin == 0) why = link(pair);
      if (why.empty()) break;
      std::swap(pair.first, pair.second), std::swap(pair.a, pair.b);
    }
    return why;
  }

  bool is_placed(Ref source) const {
    const auto it = chain_of_.find(source);
    return it != chain_of_.end() && !batches_[it->second].pairs.empty();
  }

  std::size_t chain_of(Ref source) {
    const auto [it, is_new] = chain_of_.try_emplace(source, batches_.size());
    if (is_new) batches_.push_back({{source}, {}});
    return it->second;
  }

  // Puts the source of `b` right after that of `a`, with the sources after and before them.
  std::string link(const Pair& pair) {
    const std::size_t front = chain_of(pair.a.source), back = chain_of(pair.b.source);
    if (front == back || batches_[front].sources.back() != pair.a.source ||
        batches_[back].sources[0] != pair.b.source) {
      return "a left factor lies beside another already";
    }
    Batch combined = batches_[front];
    combined.sources.insert(combined.sources.end(), batches_[back].sources.begin(), batches_[back].sources.end());
    combined.pairs.insert(combined.pairs.end(), batches_[back].pairs.begin(), batches_[back].pairs.end());
    combined.pairs.push_back(pair);
    std::set<NodeId> ids;
    for (const Pair& each : combined.pairs) ids.insert({each.first.id, each.second.id});
    if (!wait_together(ids, combined.sources)) return "one follows from another";
    batches_[front] = std::move(combined);
    for (const Ref& source : batches_[back].sources) chain_of_[source] = front;
    batches_[back] = {};
    return "";
  }

  void combine(const Batch& batch) {
    if (batch.pairs.empty()) return;
    std::map<Ref, std::int64_t> begins;
    Values parts;
    std::int64_t end = 0;
    std::optional<KeepNames> keep(std::in_place, graph_, node_of(batch.pairs[0].first));
    for (const Ref& source : batch.sources) {
      const std::int64_t elements = graph_.type(source).shape.elements();
      parts.push_back(reshape(graph_.value(source), Shape{elements}));
      begins[source] = end;
      end += elements;
    }
    const Value whole = concat(parts, 0);
    keep.reset();
    for (const Pair& pair : batch.pairs) {
      const KeepNames like(graph_, node_of(pair.first));
      const Shape one = graph_.type(left_of(pair.first)).shape;
      const std::int64_t begin = begins.at(pair.a.source) + pair.a.begin;
      const Value both = slice(whole, 0, begin, begin + 2 * one.elements());
      const Value left = reshape(both, Shape{2, one[0], one[1]});
      const Value made = multiply(pair.first, left, Attrs(node_of(pair.first).attrs));
      std::int64_t at = 0;
      std::vector<View>& views = views_.emplace_back();
      for (const RowProduct& product : {pair.first, pair.second}) {
        const Shape shape = node_of(product).types[0].shape;
        views.push_back({product.id, reshape(slice(made, 0, at, at + 1), shape)});
        ++at;
      }
    }
  }

  // The slices that replace products belong to a product that is made where the last of them stood: after other
  // readers of the right factor that run right after it was made, and not after all other nodes.
  void place() {
    std::map<Ref, Ref> replaced;
    for (const std::vector<View>& views : views_) {
      const View last = *std::ranges::max_element(views, {}, &View::id);
      for (const View& view : views) {
        if (view.id != last.id) replaced[{view.id, 0}] = view.value.ref();
      }
      Node node = graph_.node(last.value.ref().node);
      node.scope = graph_.node(last.id).scope, node.origin = graph_.node(last.id).origin;
      graph_.mutable_node(last.id) = std::move(node);
    }
    graph_.replace(replaced);
  }

  // The op of the product, of another left factor.
  Value multiply(const RowProduct& product, const Value& left, const Attrs& attrs) {
    const OpDef& op = *node_of(product).op;
    const Value right = graph_.value(node_of(product).inputs[1]);
    return call(op, std::array{left, right}, attrs).front();
  }

  Graph& graph_;
  const bool is_body_;  // of a loop or a branch
  PassNotes& notes_;
  NodeId first_product_ = -1;
  std::set<Ref> placed_;                 // written where a concatenation or a pad wants them
  std::vector<std::vector<Ref>> reads_;  // by product: the values that it waits for when it is combined with others
  std::vector<Batch> batches_;
  std::map<Ref, std::size_t> chain_of_;   // by source
  std::vector<std::vector<View>> views_;  // by combined product
};

}  // namespace

void combine_matmul_rows(Graph& graph, PassNotes& notes) {
  if (!notes.target().is_gpu() || notes.target().major != 9) return;
  for_each_graph(graph, [&](Graph& each) { RowCombination(each, &each != &graph, notes).run(); });
}

}  // namespace paoding
