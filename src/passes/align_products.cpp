// SPDX-License-Identifier: Apache-2.0
// align_products: the fast kernels of a GPU's library move 16 bytes at once, and want every row of a product's matrices
// to begin at a multiple of them. Rows that do not, as those of 7,709 words, are padded with zeros.
//
//   y = matmul(x [6400, 512], w [512, 7709])
// becomes
//   y = slice(matmul(x, pad(w)), 7709 columns)          of a product [6400, 7712]
//
// A gradient that sums over the words, dx = matmul(dy, w) {transpose_b}, reads dy and w padded alike: the padding adds
// zero to its sums. Groups read the slice in place and write into the pad, so only values that nothing here computes,
// such as parameters, are copied.
//
// When it pays: of rows that are not aligned an H200's products of 16 bits take as long as those of TF32, both several
// times as long as others (benchmarks/results/2026-11-24-aligned-products.txt).
#include <fmt/format.h>

#include <array>
#include <map>
#include <set>
#include <tuple>

#include "base/one_line.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kAlignedBytes = 16;
constexpr double kSavedPerOperation = 6e-9;  // us, of products whose rows are not aligned
constexpr double kLaunch = 2;                // us, of a kernel that copies an operand or fills the padding beside one

std::int64_t rounded_up(std::int64_t extent, std::int64_t to) { return (extent + to - 1) / to * to; }

// How much is added after the rows, the columns of a and the columns of b of matmul(a, b).
struct Added {
  std::int64_t m = 0, k = 0, n = 0;
  bool is_any() const { return m > 0 || k > 0 || n > 0; }
};

class ProductAlignment {
 public:
  ProductAlignment(Graph& graph, PassNotes& notes) : graph_(graph), notes_(notes), rewriter_(graph) {}

  void run() {
    for (const Graph::Fetch& fetch : graph_.fetches()) is_dense_.insert(source(fetch.ref));
    for (NodeId id = 0; id < rewriter_.first_new; ++id) {
      const Node& node = graph_.node(id);
      if (is_product(node) || node.op->kind != OpKind::kernel) continue;
      for (const Ref& ref : node.inputs) is_dense_.insert(source(ref));
    }
    for (NodeId id = 0; id < rewriter_.first_new; ++id) {
      if (is_product(rewriter_.enter(id))) consider(id);
    }
    rewriter_.finish();
  }

 private:
  static bool is_product(const Node& node) { return node.op->contracts; }

  // The value that `ref` is a view of.
  Ref source(Ref ref) const {
    while (graph_.node(ref.node).op->kind == OpKind::view && graph_.node(ref.node).inputs.size() == 1) {
      ref = graph_.node(ref.node).inputs[0];
    }
    return ref;
  }

  // Whether the kernel that computes `ref` can as well write it between padding.
  bool is_written_anywhere(Ref ref) const {
    const OpKind kind = graph_.node(source(ref).node).op->kind;
    return kind == OpKind::formula || kind == OpKind::reduction;
  }

  bool is_of_tensor_cores(DType dtype) const { return size_bytes(dtype) == 2 || (dtype == f32 && notes_.allow_tf32()); }

  void consider(NodeId id) {
    const Node& node = graph_.node(id);
    const Type a = graph_.type(node.inputs[0]), y = node.types[0];
    if (!is_of_tensor_cores(a.dtype) || y.shape.elements() == 0) return;
    const bool is_a_transposed = node.attrs.get_bool("transpose_a"),
               is_b_transposed = node.attrs.get_bool("transpose_b");
    const int last = y.shape.rank() - 1;
    const std::int64_t m = y.shape[last - 1], n = y.shape[last];
    const std::int64_t k = a.shape[a.shape.rank() - (is_a_transposed ? 2 : 1)];
    const std::int64_t aligned = kAlignedBytes / size_bytes(a.dtype);
    const auto missing = [&](std::int64_t extent) { return rounded_up(extent, aligned) - extent; };
    // The inner extents in memory: of y n; of a k or, transposed, m; of b n or, transposed, k.
    const Added added{is_a_transposed ? missing(m) : 0, is_a_transposed && !is_b_transposed ? 0 : missing(k),
                      missing(n)};
    if (!added.is_any()) return;

    const double saved = 2.0 * static_cast<double>(y.shape.elements()) * static_cast<double>(k) * kSavedPerOperation;
    double copies = 0;  // us
    const auto count = [&](Ref ref, bool is_copied) {
      const Type& type = graph_.type(ref);
      const auto bytes = static_cast<double>(type.shape.elements()) * static_cast<double>(size_bytes(type.dtype));
      copies += kLaunch + (is_copied ? notes_.target().stream_us(bytes, bytes) : 0);
    };
    if (added.m > 0 || added.k > 0) count(node.inputs[0], !is_written_anywhere(node.inputs[0]));
    if (added.k > 0 || added.n > 0) count(node.inputs[1], !is_written_anywhere(node.inputs[1]));
    if (added.n > 0 && is_dense_.contains({id, 0})) count({id, 0}, true);
    const std::string what = fmt::format("{} {} [{} x {} x {}]{}", one_line(node.label()), to_string(y), m, k, n,
                                         in_scope(node.scope.str()));
    if (saved <= copies) {
      notes_.add(fmt::format("not aligned: {}: copies would take {:.1f} us, of {:.1f} that it might save", what, copies,
                             saved));
      return;
    }
    notes_.add(fmt::format("aligned {}: to [{} x {} x {}]", what, m + added.m, k + added.k, n + added.n));
    align(id, added);
  }

  void align(NodeId id, const Added& added) {
    const Node& node = graph_.node(id);
    const OpDef& op = *node.op;
    const Attrs attrs = node.attrs;
    const Shape shape = node.types[0].shape;
    const Ref left = node.inputs[0], right = node.inputs[1];
    const Value a = attrs.get_bool("transpose_a") ? padded(left, added.k, added.m) : padded(left, added.m, added.k);
    const Value b = attrs.get_bool("transpose_b") ? padded(right, added.n, added.k) : padded(right, added.k, added.n);
    const Value made = call(op, std::array{a, b}, attrs).front();
    const Ints start(static_cast<std::size_t>(shape.rank()), 0);
    const bool is_larger = added.m > 0 || added.n > 0;
    rewriter_.replace({id, 0}, is_larger ? slice(made, start, Ints(shape.begin(), shape.end())).ref() : made.ref());
  }

  // `ref` with so many zeros after its last two axes: one value for all products that read it so.
  Value padded(Ref ref, std::int64_t rows, std::int64_t columns) {
    if (rows == 0 && columns == 0) return graph_.value(ref);
    const auto [it, is_new] = padded_.try_emplace({ref, rows, columns});
    if (is_new) {
      const auto rank = static_cast<std::size_t>(graph_.type(ref).shape.rank());
      Ints after(rank, 0);
      after[rank - 2] = rows, after[rank - 1] = columns;
      it->second = pad(graph_.value(ref), Ints(rank, 0), after).ref();
    }
    return graph_.value(it->second);
  }

  Graph& graph_;
  PassNotes& notes_;
  Rewriter rewriter_;
  std::set<Ref> is_dense_;  // fetched values, and those read by kernels that were not asked for the rows they take
  std::map<std::tuple<Ref, std::int64_t, std::int64_t>, Ref> padded_;
};

}  // namespace

void align_products(Graph& graph, PassNotes& notes) {
  if (!notes.target().is_gpu()) return;
  for_each_graph(graph, [&](Graph& each) { ProductAlignment(each, notes).run(); });
}

}  // namespace paoding
