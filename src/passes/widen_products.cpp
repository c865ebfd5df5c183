// SPDX-License-Identifier: Apache-2.0
// widen_products: on the CPU, where no library multiplies f16, products and convolutions of f16 are done in f32; those
// of bf16 too where there is no AVX-512, which the library wants for them.
//
//   y = matmul(a, b)                    a, b, y f16
// becomes
//   wide_a = cast(a) {dtype = f32};  wide_b = cast(b) {dtype = f32}
//   wide_y = matmul(wide_a, wide_b);  y = cast(wide_y) {dtype = f16}
//
// The sums were f32 before and are rounded once, as before. Casts fuse with the ops around them; a product in a loop
// widens its constant operands on every turn, which is still several times faster than loops over f16. Few rows of bf16
// times a matrix have a kernel of their own, which reads the matrix in half the bytes.
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/large_product.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

bool multiplies(const OpDef& op) { return op.precision == PrecisionRule::product || op.is_wide(); }

bool has_few_rows(const Graph& graph, const Node& node) {
  constexpr std::int64_t kFewRows = 4;
  if (!multiplies_matrices(node)) return false;
  const Shape& a = graph.type(node.inputs[0]).shape;
  return a[a.rank() - (node.attrs.get_bool("transpose_a") ? 1 : 2)] <= kFewRows;
}

int widen_in(Graph& graph, bool has_bf16) {
  Rewriter rewriter(graph);
  int count = 0;
  for (NodeId id = 0; id < rewriter.first_new; ++id) {
    const Node& node = rewriter.enter(id);
    if (!multiplies(*node.op)) continue;
    const DType dtype = graph.type(node.inputs[0]).dtype;
    const bool is_widened = dtype == DType::f16 || (dtype == DType::bf16 && !has_bf16 && !has_few_rows(graph, node));
    if (!is_widened) continue;
    const bool is_wide = node.op->is_wide();
    const OpDef* op = is_wide ? find_op(node.op->narrow_form) : node.op;
    const Attrs attrs = node.attrs;
    Values wide;
    for (const Ref& input : std::vector<Ref>(node.inputs)) wide.push_back(cast(graph.value(input), f32));
    const Value made = call(*op, wide, attrs)[0];
    rewriter.replace({id, 0}, is_wide ? made.ref() : cast(made, dtype).ref());
    ++count;
  }
  rewriter.finish();
  return count;
}

}  // namespace

void widen_products(Graph& graph, PassNotes& notes) {
  if (notes.target().is_gpu()) return;
  const bool has_bf16 = notes.target().isa == VectorIsa::avx512;
  int count = 0;
  for_each_graph(graph, [&](Graph& each) { count += widen_in(each, has_bf16); });
  if (count > 0) notes.add(std::to_string(count) + " products of 16 bits are computed in f32");
}

}  // namespace paoding
