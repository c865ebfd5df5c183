// SPDX-License-Identifier: Apache-2.0
// A sum of products over time becomes one product with time in its inner extent: the weight gradient of a recurrence
// is then one large matmul. A batched product with one matrix for all of the batch becomes one product as well.
//
//   before:  %2 = matmul(%0, %1, transpose_a = true)   # [T, B, K], [T, B, N]: [T, K, N]
//            %3 = sum(%2, axes = [0])
//   after:   %4 = reshape(%0, shape = [T * B, K])
//            %5 = reshape(%1, shape = [T * B, N])
//            %3 = matmul(%4, %5, transpose_a = true)   # [K, N]
//
// So does a sum of elementwise products of values that repeat each other's axes (the gradient of attention's inputs):
//
//   before:  %2 = mul(%0, %1)                          # [T, S, B, 1], [T, 1, B, N]: [T, S, B, N]
//            %3 = sum(%2, axes = [0])
//   after:   %4 = transpose(%0)                        # [B, S, T]
//            %5 = transpose(%1)                        # [B, T, N]
//            %3 = transpose(matmul(%4, %5))            # [B, S, N], seen as [S, B, N]
#include <fmt/format.h>

#include <algorithm>

#include "ops/axes.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/broadcast_product.h"
#include "passes/formula_patterns.h"
#include "passes/large_product.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

class ProductMerger {
 public:
  ProductMerger(Graph& graph, PassNotes& notes) : graph_(graph), notes_(notes), rewriter_(graph) {}

  void run() {
    for (NodeId id = 0; id < rewriter_.first_new; ++id) {
      const Node& node = rewriter_.enter(id);
      Value merged;
      if (node.op->reduces_with == Prim::add) merged = merge_sum(node);
      if (multiplies_matrices(node)) merged = merge_shared(node);
      if (merged.valid()) rewriter_.replace({id, 0}, merged.ref());
    }
    rewriter_.finish();
  }

 private:
  const Node& node_of(const Value& value) const { return graph_.node(value.ref().node); }

  // The matrices of a value [.., R, C], one under the other: [prod(..) * R, C].
  Value stacked(const Value& value) {
    const Shape& shape = value.shape();
    const std::int64_t columns = shape[shape.rank() - 1];
    std::int64_t rows = 1;  // by hand: -1 cannot be computed when there are no columns
    for (int axis = 0; axis + 1 < shape.rank(); ++axis) rows *= shape[axis];
    return reshape(value, Shape{rows, columns});
  }

  Value merge_sum(const Node& sum) {
    const Node& product = graph_.node(sum.inputs[0].node);
    if (computes(product, Prim::mul)) return merge_contraction(sum);
    if (!multiplies_matrices(product)) return {};
    const int batch_axes = product.types[0].shape.rank() - 2;
    const std::vector<int> axes = plain_axes(sum.attrs.get_ints("axes"), batch_axes + 2);
    if (batch_axes == 0 || axes[0] != 0) return {};
    const auto decline = [&](std::string_view why) {
      notes_.add(fmt::format("sum over axes of {} {} kept: {}", product.label(), to_string(product.types[0]), why));
      return Value();
    };
    if (static_cast<int>(axes.size()) != batch_axes || axes.back() != batch_axes - 1) {
      return decline("it is not over exactly the batch axes");
    }
    if (rewriter_.uses(sum.inputs[0].node) > 1) return decline("the product is read elsewhere too");
    const Value a = graph_.value(product.inputs[0]), b = graph_.value(product.inputs[1]);
    if (!product.attrs.get_bool("transpose_a") || product.attrs.get_bool("transpose_b")) {
      return decline("the summed extent is not next to the batch axes in both operands");
    }
    for (int axis = 0; axis < batch_axes; ++axis) {
      if (a.shape().rank() != b.shape().rank() || a.shape()[axis] != b.shape()[axis]) {
        return decline("an operand broadcasts over the batch");
      }
    }
    return reshape(matmul(stacked(a), stacked(b), true, false), sum.types[0].shape);
  }

  using Axes = std::vector<std::int64_t>;

  // `value` as matrices of its axes `rows` and `columns`, one per element of its axes `batch`; its other axes are of
  // extent 1. The two are swapped when columns would not be contiguous in memory.
  Value matrices(const Value& value, int rank, const Axes& batch, Axes rows, Axes columns, bool* is_swapped) {
    *is_swapped = rows.back() > columns.back();
    if (*is_swapped) std::swap(rows, columns);
    const Value aligned = reshape(value, aligned_shape(value.shape(), rank));
    Axes order, dims;
    for (const Axes* axes : std::initializer_list<const Axes*>{&batch, &rows, &columns}) {
      std::int64_t extent = 1;
      for (const std::int64_t axis : *axes) extent *= aligned.shape()[static_cast<int>(axis)];
      if (axes != &batch || !batch.empty()) dims.push_back(extent);
      order.insert(order.end(), axes->begin(), axes->end());
    }
    for (int axis = 0; axis < rank; ++axis) {
      if (std::find(order.begin(), order.end(), axis) == order.end()) order.push_back(axis);
    }
    return reshape(transpose(aligned, order), dims);
  }

  // A sum of products of values that repeat each other's axes.
  Value merge_contraction(const Node& sum) {
    const Ref product = sum.inputs[0];
    auto factors = broadcast_product(graph_, product);
    if (!factors) return {};
    const Shape space = graph_.type(product).shape;
    const int rank = space.rank();
    const auto decline = [&](std::string_view why) {
      notes_.add(fmt::format("sum of {} {} kept: {}", graph_.node(product.node).label(), to_string(space), why));
      return Value();
    };
    const std::vector<int> summed = plain_axes(sum.attrs.get_ints("axes"), rank);
    Axes batch, rows, columns, inner;
    const Shape a = aligned_shape(factors->a.shape(), rank), b = aligned_shape(factors->b.shape(), rank);
    for (int axis = 0; axis < rank; ++axis) {
      if (space[axis] == 1) continue;
      const bool in_a = a[axis] == space[axis], in_b = b[axis] == space[axis];
      const bool is_summed = std::find(summed.begin(), summed.end(), axis) != summed.end();
      if (is_summed && !(in_a && in_b)) return decline("a factor repeats along a summed axis");
      (is_summed ? inner : in_a && in_b ? batch : in_a ? rows : columns).push_back(axis);
    }
    if (inner.empty()) return {};
    if (rewriter_.uses(product.node) > 1) return decline("the product is read elsewhere too");
    if (rows.back() > columns.back()) {  // the result's columns are contiguous in memory
      std::swap(factors->a, factors->b);
      std::swap(rows, columns);
    }
    bool a_is_swapped, b_is_swapped;
    const Value left = matrices(factors->a, rank, batch, rows, inner, &a_is_swapped);
    const Value right = matrices(factors->b, rank, batch, inner, columns, &b_is_swapped);
    const Value made = matmul(left, right, a_is_swapped, b_is_swapped);
    // The axes of the result where the sum has them.
    Axes order, dims;
    for (const Axes* axes : {&batch, &rows, &columns}) order.insert(order.end(), axes->begin(), axes->end());
    for (const std::int64_t axis : order) dims.push_back(space[static_cast<int>(axis)]);
    Axes places(order.size());  // axis i of the sum's is axis places[i] of the product's
    for (std::size_t i = 0; i < places.size(); ++i) places[i] = static_cast<std::int64_t>(i);
    std::sort(places.begin(), places.end(), [&](std::int64_t x, std::int64_t y) {
      return order[static_cast<std::size_t>(x)] < order[static_cast<std::size_t>(y)];
    });
    notes_.add(fmt::format("sum of {} {} is one product", graph_.node(product.node).label(), to_string(space)));
    return reshape(transpose(reshape(made, dims), places), sum.types[0].shape);
  }

  // The one matrix that `value` [.., R, C] repeats; invalid when it holds several.
  Value repeated_matrix(const Value& value) {
    const auto single = [&](const Value& v) {
      const Shape& shape = v.shape();
      for (int axis = 0; axis + 2 < shape.rank(); ++axis) {
        if (shape[axis] != 1) return Value();
      }
      return reshape(v, Shape{shape[shape.rank() - 2], shape[shape.rank() - 1]});
    };
    if (node_of(value).op->view != ViewForm::broadcast) return single(value);
    const Value source = graph_.value(node_of(value).inputs[0]);
    const int from = source.shape().rank(), to = value.shape().rank();
    if (from < 2 || source.shape()[from - 1] != value.shape()[to - 1] ||
        source.shape()[from - 2] != value.shape()[to - 2]) {
      return {};
    }
    return single(source);
  }

  Value merge_shared(const Node& product) {
    const Value a = graph_.value(product.inputs[0]), b = graph_.value(product.inputs[1]);
    const Shape& result = product.types[0].shape;
    if (a.shape().rank() < 3 || a.shape().rank() != result.rank()) return {};
    for (int axis = 0; axis + 2 < result.rank(); ++axis) {
      if (a.shape()[axis] != result[axis]) return {};  // the batch is b's
    }
    const Value matrix = repeated_matrix(b);
    if (!matrix.valid()) return {};
    if (product.attrs.get_bool("transpose_a")) {
      notes_.add(fmt::format("{} {} with one matrix for its batch kept batched: its first operand is transposed",
                             product.label(), to_string(product.types[0])));
      return {};
    }
    return reshape(matmul(stacked(a), matrix, false, product.attrs.get_bool("transpose_b")), result);
  }

  Graph& graph_;
  PassNotes& notes_;
  Rewriter rewriter_;
};

}  // namespace

void merge_products(Graph& graph, PassNotes& notes) {
  for_each_graph(graph, [&](Graph& g) { ProductMerger(g, notes).run(); });
}

}  // namespace paoding
