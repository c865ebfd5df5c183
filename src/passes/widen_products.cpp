// SPDX-License-Identifier: Apache-2.0
// widen_products: on the CPU, where no library multiplies f16, products and convolutions of f16 are done in f32.
//
//   y = matmul(a, b)                    a, b, y f16
// becomes
//   wide_a = cast(a) {dtype = f32};  wide_b = cast(b) {dtype = f32}
//   wide_y = matmul(wide_a, wide_b);  y = cast(wide_y) {dtype = f16}
//
// The sums were f32 before and are rounded once, as before. Casts fuse with what is around them; a product in a loop
// widens what does not change in it on every turn, which is still several times faster than loops over f16.
#include <algorithm>
#include <array>
#include <string_view>

#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

bool multiplies(std::string_view op) {
  constexpr std::array<std::string_view, 5> kProducts = {"matmul", "conv2d", "conv2d_bias", "conv2d_grad_input",
                                                         "conv2d_grad_weight"};
  return std::find(kProducts.begin(), kProducts.end(), op) != kProducts.end();
}

int widen_in(Graph& graph) {
  Rewriter rewriter(graph);
  int count = 0;
  for (NodeId id = 0; id < rewriter.first_new; ++id) {
    const Node& node = rewriter.enter(id);
    const bool is_wide = node.op->name == "conv2d_grad_weight_wide";
    if (!is_wide && !multiplies(node.op->name)) continue;
    if (graph.type(node.inputs[0]).dtype != DType::f16) continue;
    const OpDef* op = is_wide ? find_op("conv2d_grad_weight") : node.op;
    const Attrs attrs = node.attrs;
    Values wide;
    for (const Ref& input : std::vector<Ref>(node.inputs)) wide.push_back(cast(graph.value(input), f32));
    const Value made = call(*op, wide, attrs)[0];
    rewriter.replace({id, 0}, is_wide ? made.ref() : cast(made, DType::f16).ref());
    ++count;
  }
  rewriter.finish();
  return count;
}

}  // namespace

void widen_products(Graph& graph, PassNotes& notes) {
  if (notes.target().is_gpu()) return;
  int count = 0;
  for_each_graph(graph, [&](Graph& each) { count += widen_in(each); });
  if (count > 0) notes.add(std::to_string(count) + " products of f16 are computed in f32");
}

}  // namespace paoding
