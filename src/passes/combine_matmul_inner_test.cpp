// SPDX-License-Identifier: Apache-2.0
// combine_matmul_inner and combine_matmul_columns: few rows, on a GPU.
#include <gtest/gtest.h>

#include <array>

#include "base/check.h"
#include "ops/scan/scan.h"
#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "plan/plan.h"
#include "tests/support/pass_check.h"

namespace paoding {
namespace {

using PassFunction = void (*)(Graph&, PassNotes&);

// Runs a pass as for a GPU.
template <PassFunction pass>
void for_gpu(Graph& graph, PassNotes& notes) {
  PassNotes gpu(std::make_shared<const Target>(named_target("h200")));
  pass(graph, gpu);
  for (std::string& note : gpu.list()) notes.add(std::move(note));
}

constexpr std::int64_t T = 5, B = 2, H = 4, I = 8;

// Two layers whose result is fed back, as in a decoder; the second layer reads a result of the step.
void build_decoder(Graph& g, bool is_reverse, bool transpose_b, bool has_dropout) {
  const auto weights = [&](const char* name, std::int64_t rows) {
    return g.parameter(name, f32, transpose_b ? Shape{4 * H, rows} : Shape{rows, 4 * H});
  };
  const Value w0 = weights("w0", I + H), u0 = weights("u0", H), w1 = weights("w1", H), u1 = weights("u1", H);
  const Value bias = g.parameter("bias", f32, {4 * H}), xs = g.input("xs", f32, {T, B, I});
  const auto cell = [&](const Value& x, const Value& w, const Value& h, const Value& u) {
    const Value z = matmul(x, w, false, transpose_b) + matmul(h, u, false, transpose_b) + bias;
    const auto gate = [&](std::int64_t i) { return slice(z, 1, i * H, (i + 1) * H); };
    return sigmoid(gate(0)) * tanh(gate(1)) + h * sigmoid(gate(2)) * gate(3);
  };
  Values start;
  for (const char* name : {"h0", "h1", "feed"}) start.push_back(g.input(name, f32, {B, H}));
  const StepResult r = scan(
      start, {xs},
      [&](const Values& carry, const Values& x) {
        const Value below = cell(concat(std::array{x[0], carry[2]}, 1), w0, carry[0], u0);
        const Value above = cell(has_dropout ? below * 0.5 : below, w1, carry[1], u1);
        return step({below, above, tanh(above)}, {above});
      },
      is_reverse);
  const Value loss = sum(r.outputs[0] * r.outputs[0]) + sum(r.carries[2]);
  Values all;
  for (NodeId id : g.parameters()) all.push_back(g.value({id, 0}));
  g.fetch("loss", loss);
  const Values d = gradients(std::array{loss}, all);
  for (std::size_t i = 0; i < d.size(); ++i) g.fetch("d" + std::to_string(i), d[i]);
}

std::vector<int> products_in_loops(const Graph& g) {
  std::vector<int> counts;
  for (NodeId id = 0; id < g.size(); ++id) {
    if (g.node(id).op->name == "scan") counts.push_back(count_here(*g.node(id).bodies[0], "matmul"));
  }
  return counts;
}

const std::vector<PassFunction> kInnerPasses = {
    merge_duplicates, simplify_views, split_products, for_gpu<combine_matmul_inner>,   sum_gradients, push_slices,
    hoist_products,   sum_over_time,  sink_products,  for_gpu<combine_matmul_columns>, stack_sources, merge_products,
    merge_duplicates, simplify_views, drop_unused};

TEST(CombineMatmulInner, ALayerIsOneProductInEitherDirection) {
  for (const bool is_reverse : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      Graph g;
      build_decoder(g, is_reverse, transpose_b, true);
      run_and_compare(g, kInnerPasses);
      EXPECT_EQ(products_in_loops(g), (std::vector<int>{2, 2}));
      // Both read the same combined weights: two layers', and no more.
      int combined = 0;
      for (NodeId id = 0; id < g.size(); ++id) {
        const Node& node = g.node(id);
        combined += node.op->name == "concat" && g.node(node.inputs[0].node).op->name == "parameter";
      }
      EXPECT_EQ(combined, 2);
      if (transpose_b) continue;
      for (const std::string& note : make_plan(g, {}).notes) {
        const bool is_concatenation = note.find("concat: copies") != std::string::npos;
        EXPECT_FALSE(is_concatenation && note.find("in every step") != std::string::npos) << note;
      }
    }
  }
}

TEST(CombineMatmulInner, KeepsApartWhatWouldBeCopied) {
  Graph g;
  build_decoder(g, false, false, false);  // the second layer's input is carried
  const auto notes = run_and_compare(g, kInnerPasses);
  EXPECT_EQ(products_in_loops(g), (std::vector<int>{3, 2}));
  EXPECT_NE(fmt::format("{}", fmt::join(notes, "; ")).find("is carried, or combined elsewhere"), std::string::npos);
}

TEST(CombineMatmulInner, KeepsApartWhatAFewStepsCannotPayFor) {
  Graph g;
  const Value a = g.input("a", f32, {2, 4096}), x = g.input("x", f32, {1, 2, 4096});
  const Value w = g.input("w", f32, {4096, 4096}), u = g.input("u", f32, {4096, 4096});
  const StepResult r = scan({a}, {x}, [&](const Values& carry, const Values& e) {
    return step({matmul(carry[0], w) + matmul(tanh(carry[0] + e[0]), u)}, {});
  });
  g.fetch("y", r.carries[0]);
  PassNotes notes(std::make_shared<const Target>(named_target("h200")));
  combine_matmul_inner(g, notes);
  EXPECT_EQ(products_in_loops(g), std::vector<int>{2});
  ASSERT_EQ(notes.list().size(), 1u);
  EXPECT_NE(notes.list()[0].find("are kept apart: 1 steps save 1.5 us"), std::string::npos) << notes.list()[0];
}

TEST(CombineMatmulColumns, LeavesProductsOnTheCpuAlone) {
  Graph g;
  build_decoder(g, false, false, true);
  std::vector<PassFunction> passes = kInnerPasses;
  std::replace(passes.begin(), passes.end(), &for_gpu<combine_matmul_inner>, &combine_matmul_inner);
  std::replace(passes.begin(), passes.end(), &for_gpu<combine_matmul_columns>, &combine_matmul_columns);
  run_and_compare(g, passes);
  EXPECT_EQ(products_in_loops(g), (std::vector<int>{4, 4}));
}

}  // namespace
}  // namespace paoding
