// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "paoding/ops.h"
#include "paoding/program.h"
#include "passes/pass.h"
#include "tests/support/pass_check.h"
#include "tests/support/program_check.h"

namespace paoding {
namespace {

using testing_program::Dense, testing_program::Tensors, testing_program::to_tensors;

std::vector<std::string> combine_on(const char* chip, Graph& graph, bool allow_tf32 = false) {
  PassNotes notes(std::make_shared<const Target>(named_target(chip)), f32, allow_tf32);
  combine_matmul_rows(graph, notes);
  verify(graph, "combine_matmul_rows");
  return notes.list();
}

bool is_in(const std::vector<std::string>& notes, std::string_view part) {
  return std::any_of(notes.begin(), notes.end(), [&](const std::string& note) { return note.find(part) != note.npos; });
}

struct Layers {
  std::int64_t steps, rows, width, count;
  std::vector<bool> is_reverse;  // by layer
  DType dtype = bf16;
  std::int64_t gates = 4;
};

// Weights' gradients of recurrent layers, one reading the other's result; states are made of inputs, and the right
// factors of a layer's gradients from those of the next layer.
void build(Graph& g, const Layers& s) {
  Value x = g.input("x", s.dtype, {s.steps, s.rows, s.width}), gradient = g.input("g", s.dtype, {});
  Values before, inputs;
  for (std::int64_t layer = 0; layer < s.count; ++layer) {
    const Value h0 = g.input("h0" + std::to_string(layer), s.dtype, {1, s.rows, s.width}), made = tanh(x * 0.5);
    const bool is_reverse = s.is_reverse[static_cast<std::size_t>(layer)];
    const Value states = tanh(is_reverse ? concat(std::array{made, h0}, 0) : concat(std::array{h0, made}, 0));
    inputs.push_back(x);
    x = is_reverse ? slice(states, 0, 0, s.steps) : slice(states, 0, 1, s.steps + 1);
    before.push_back(is_reverse ? slice(states, 0, 1, s.steps + 1) : slice(states, 0, 0, s.steps));
  }
  const auto flat = [](const Value& value, std::int64_t columns) {
    return reshape(value, Shape{value.shape().elements() / columns, columns});
  };
  const std::int64_t columns = s.gates * s.width;
  Value next = expand(gradient, Shape{s.steps * s.rows, columns});
  for (std::int64_t layer = s.count; layer-- > 0;) {
    const auto at = static_cast<std::size_t>(layer);
    next = tanh(next + g.input("dy" + std::to_string(layer), s.dtype, {s.steps * s.rows, columns}));
    g.fetch("dw" + std::to_string(layer), matmul(flat(inputs[at], s.width), next, true) * 0.25);
    g.fetch("du" + std::to_string(layer), matmul(flat(before[at], s.width), next, true) * 0.25);
  }
}

TEST(CombineMatmulRows, MakesOneBatchOfTheGradientsOfALayerIn16Bits) {
  for (const DType dtype : {bf16, f16}) {
    for (const bool is_reverse : {false, true}) {
      Graph g;
      build(
          g,
          {.steps = 50, .rows = 64, .width = 256, .count = 2, .is_reverse = {is_reverse, is_reverse}, .dtype = dtype});
      const auto notes = combine_on("h200", g);
      EXPECT_EQ(notes.size(), 2U);
      EXPECT_EQ(count_here(g, "matmul"), 2);
      EXPECT_EQ(count_here(g, "concat"), 3) << "of two layers' states, and of the input with both";
      for (NodeId id = 0; id < g.size(); ++id) {
        if (g.node(id).op->name != "matmul") continue;
        EXPECT_EQ(g.node(id).types[0].shape, (Shape{2, 256, 1024}));
      }
    }
  }
}

TEST(CombineMatmulRows, PutsTransposedFactorsAboveEachOtherInTf32) {
  Graph g;
  build(g, {.steps = 50, .rows = 128, .width = 512, .count = 2, .is_reverse = {false, true}, .dtype = f32});
  combine_on("h200", g, true);
  EXPECT_EQ(count_here(g, "matmul"), 2);
  for (NodeId id = 0; id < g.size(); ++id) {
    const Node& node = g.node(id);
    if (node.op->name != "matmul") continue;
    EXPECT_EQ(node.types[0].shape, (Shape{1024, 2048}));
    EXPECT_FALSE(node.attrs.get_bool("transpose_a"));
    EXPECT_EQ(g.node(node.inputs[0].node).op->name, "concat");
  }
}

TEST(CombineMatmulRows, LeavesOtherChipsAndExactProductsAlone) {
  const Layers s{.steps = 50, .rows = 128, .width = 512, .count = 1, .is_reverse = {false}, .dtype = f32};
  Graph exact, older;
  build(exact, s), build(older, s);
  EXPECT_TRUE(combine_on("h200", exact).empty());
  EXPECT_TRUE(combine_on("a100", older, true).empty());
  Graph cpu;
  build(cpu, s);
  PassNotes notes;
  combine_matmul_rows(cpu, notes);
  EXPECT_TRUE(notes.list().empty());
  EXPECT_EQ(count_here(cpu, "matmul"), 2);
}

TEST(CombineMatmulRows, SaysWhatKeepsProductsApart) {
  const auto notes_of = [](const Layers& s, bool allow_tf32) {
    Graph g;
    build(g, s);
    const auto notes = combine_on("h200", g, allow_tf32);
    EXPECT_EQ(count_here(g, "matmul"), 2 * s.count);
    return notes;
  };
  Layers s{.steps = 64, .rows = 4, .width = 256, .count = 1, .is_reverse = {false}, .dtype = f32};
  EXPECT_TRUE(is_in(notes_of(s, true), "with transposed copies it would take"));
  s = {.steps = 1024, .rows = 16, .width = 768, .count = 1, .is_reverse = {false}};
  EXPECT_TRUE(is_in(notes_of(s, false), "copies would take")) << "the input would be copied";
  s = {.steps = 50, .rows = 128, .width = 500, .count = 1, .is_reverse = {false}};
  s.rows = 127;
  EXPECT_TRUE(is_in(notes_of(s, false), "are not a multiple of 256 bytes"));
}

TEST(CombineMatmulRows, PutsNoValueAtTwoPlaces) {
  // Both products want the states in front of another value.
  Graph g;
  const Value x = tanh(g.input("x", bf16, {640, 512})), y = tanh(g.input("y", bf16, {640, 512}));
  const Value z = tanh(g.input("z", bf16, {640, 512}));
  for (int i = 0; i < 2; ++i) {
    const Value d = g.input("d" + std::to_string(i), bf16, {640, 2048});
    g.fetch("a" + std::to_string(i), matmul(i == 0 ? y : z, d, true));
    g.fetch("b" + std::to_string(i), matmul(x, d, true));
  }
  Graph other;
  EXPECT_EQ(combine_on("h200", g).size(), 2U);
  EXPECT_EQ(count_here(g, "matmul"), 2) << "x lies after one and in front of the other";

  const Value p = tanh(other.input("p", bf16, {640, 512})), q = tanh(other.input("q", bf16, {641, 512}));
  const Value r = tanh(other.input("r", bf16, {641, 512}));
  for (int i = 0; i < 2; ++i) {
    const Value d = other.input("d" + std::to_string(i), bf16, {640, 2048});
    other.fetch("a" + std::to_string(i), matmul(p, d, true));
    other.fetch("b" + std::to_string(i), matmul(slice(i == 0 ? q : r, 0, 0, 640), d, true));
  }
  EXPECT_TRUE(is_in(combine_on("h200", other), "lies beside another already"));
  EXPECT_EQ(count_here(other, "matmul"), 3);
}

TEST(CombineMatmulRows, CombinesNothingThatFollowsFromTheOther) {
  // The second step of training reads weights that the first has changed.
  for (const DType dtype : {bf16, f32}) {
    Graph g;
    const Value d = g.input("d", dtype, {6400, 2048}), x = tanh(g.input("x", dtype, {6400, 512}));
    const Value dw = matmul(x, d, true), y = tanh(matmul(d, dw, false, true));
    g.fetch("dw", dw), g.fetch("du", matmul(y, d, true));
    EXPECT_TRUE(is_in(combine_on("h200", g, true), "one follows from another"));
    EXPECT_EQ(count_here(g, "matmul"), 3);
  }
}

TEST(CombineMatmulRows, MakesNoCycleThroughWhatLiesBesideAFactor) {
  // Each pair by itself could be combined; all factors in one place would have the first wait for results of one of
  // them.
  Graph g;
  const Value d = g.input("d", bf16, {640, 512}), e = g.input("e", bf16, {640, 512});
  const Value x = tanh(g.input("x", bf16, {640, 512})), y = tanh(g.input("y", bf16, {641, 512}));
  const Value dx = matmul(x, d, true), dy = matmul(slice(y, 0, 0, 640), d, true);
  const Value z = tanh(matmul(x, dx + dy));
  g.fetch("ez", matmul(z, e, true)), g.fetch("ey", matmul(slice(y, 0, 1, 641), e, true));
  EXPECT_TRUE(is_in(combine_on("h200", g), "one follows from another"));
  EXPECT_EQ(count_here(g, "matmul"), 4);
}

// Sizes are random, in 16 bits as the graph says it: with rounding left out, the same numbers to the last bits of
// float64.
TEST(CombineMatmulRows, ChangesNoValueOfRandomLayers) {
  std::mt19937 random(11);
  const auto below = [&](int bound) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(bound)); };
  int combined = 0;
  for (int i = 0; i < 60; ++i) {
    Layers s{.steps = 1 + below(5),
             .rows = 2 * (1 + below(4)),
             .width = 64 * (1 + below(2)),
             .count = 1 + below(3),
             .is_reverse = {}};
    for (std::int64_t layer = 0; layer < s.count; ++layer) s.is_reverse.push_back(below(2) == 0);
    s.dtype = below(2) == 0 ? bf16 : f16, s.gates = 1 + below(4);
    Graph g;
    build(g, s);
    const auto feeds = random_feeds(g, static_cast<unsigned>(i));
    const auto before = evaluate_graph(g, feeds);
    combine_on("h200", g);
    combined += count_here(g, "matmul") < 2 * s.count ? 1 : 0;
    const auto after = evaluate_graph(g, feeds);
    for (const auto& [name, values] : before) {
      ASSERT_EQ(after.at(name), values) << name << " of graph " << i;
    }
  }
  EXPECT_GT(combined, 15);
}

TEST(CombineMatmulRows, ChangesNoValueInTf32) {
  // Large enough to pay, so a program computes it, on the CPU, with the graph as it was made and as it is for the H200.
  const auto build_products = [](Graph& g) {
    const Value d = g.input("d", f32, {3000, 2000});
    for (const auto& [name, width] : {std::pair{"x", 300}, {"h", 500}, {"c", 400}}) {
      g.fetch(std::string("d") + name, matmul(tanh(g.input(name, f32, {3000, width})), d, true) * 0.5);
    }
  };
  Graph plain, combined;
  build_products(plain), build_products(combined);
  combine_on("h200", combined, true);
  EXPECT_EQ(only(combined, "matmul").types[0].shape, (Shape{1200, 2000}));
  const Tensors feeds = to_tensors(plain, random_feeds(plain, 5));
  const Tensors want = Program(plain).run(feeds), got = Program(combined).run(feeds);
  for (const auto& [name, tensor] : want) {
    const Dense a = tensor.to_doubles(), b = got.at(name).to_doubles();
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 2e-3) << name << " " << i;
  }
}

}  // namespace
}  // namespace paoding
