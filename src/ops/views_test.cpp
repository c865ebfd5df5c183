// SPDX-License-Identifier: Apache-2.0
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

// Runs the graph on the CPU and compares every fetch with the float64 evaluator. Returns the notes of the plan.
std::vector<std::string> check(const Graph& graph, double tolerance = 1e-5, const CompileOptions& options = {}) {
  const Feeds feeds = make_feeds(graph, 7);
  Program program(graph, options);
  const Tensors got = program.run(to_tensors(graph, feeds));
  for (const auto& [name, values] : evaluate_graph(graph, feeds)) {
    expect_close(name, got.at(name).to_doubles(), values, tolerance);
  }
  return program.report().plan_notes;
}

TEST(Views, HaveTheElementsThatNumPyGives) {
  Graph g;
  Dense counted(24);
  for (std::size_t i = 0; i < counted.size(); ++i) counted[i] = static_cast<double>(i);
  const Value a = g.input("a", f32, {2, 3, 4});
  g.fetch("transposed", transpose(a, Ints{2, 0, 1}));
  g.fetch("strided", slice(a, -1, 3, -1, -2));
  g.fetch("flipped", flip(a, Ints{0, -1}));
  g.fetch("tiled", tile(slice(a, 0, 0, 1), Ints{2, 1, 1}));
  g.fetch("repeated", repeat(slice(reshape(a, Ints{24}), 0, 0, 3), 2, 0));
  g.fetch("rolled", roll(slice(reshape(a, Ints{24}), 0, 0, 5), 2, 0));
  g.fetch("padded", pad(slice(reshape(a, Ints{24}), 0, 1, 3), Ints{1}, Ints{2}, 9, Ints{1}));
  g.fetch("stacked", stack(unstack(slice(a, 1, 0, 2), 0), -1));
  g.fetch("third", split(reshape(a, Ints{24}), Ints{1, 2, 21})[1]);
  g.fetch("shape", shape_of(a));
  Program program(g, {});
  const Tensors got = program.run({{"a", Tensor::from(f32, {2, 3, 4}, counted)}});
  const auto is = [&](const char* name, const Dense& values) { EXPECT_EQ(got.at(name).to_doubles(), values) << name; };
  is("transposed", {0, 4, 8, 12, 16, 20, 1, 5, 9, 13, 17, 21, 2, 6, 10, 14, 18, 22, 3, 7, 11, 15, 19, 23});
  is("strided", {3, 1, 7, 5, 11, 9, 15, 13, 19, 17, 23, 21});
  is("flipped", {15, 14, 13, 12, 19, 18, 17, 16, 23, 22, 21, 20, 3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8});
  is("tiled", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  is("repeated", {0, 0, 1, 1, 2, 2});
  is("rolled", {3, 4, 0, 1, 2});
  is("padded", {9, 1, 9, 2, 9, 9});
  is("stacked", {0, 12, 1, 13, 2, 14, 3, 15, 4, 16, 5, 17, 6, 18, 7, 19});
  is("third", {1, 2});
  is("shape", {2, 3, 4});
}

TEST(Views, AreReadInPlaceByElementwiseOps) {
  for (const DType dtype : {f32, f64, bf16, f16}) {
    Graph g;
    const Value a = g.input("a", dtype, {6, 33}), b = g.input("b", dtype, {33, 6});
    g.fetch("y", flip(a) * 0.5 + transpose(b, Ints{1, 0}));
    g.fetch("z", slice(a, 1, 32, -1, -3) - slice(a, 1, 0, 33, 3));
    g.fetch("s", sum(transpose(a, Ints{1, 0}) * slice(b, 1, 5, -1, -1), Ints{0}));
    EXPECT_EQ(check(g, 0.02), std::vector<std::string>()) << to_string(dtype);
  }
}

TEST(Views, OfViewsThatAreOneRunNeedNoCopy) {
  Graph g;
  const Value a = g.input("a", f32, {4, 6, 8});
  const Value part = slice(a, 0, 1, 3);  // two whole matrices: their axes still merge
  g.fetch("x", reshape(slice(part, 2, 0, 4), Ints{12, 4}) + 1.0);
  g.fetch("y", reshape(transpose(a, Ints{2, 0, 1}), Ints{8, 24}) + 1.0);
  EXPECT_EQ(check(g), std::vector<std::string>());
}

TEST(Concatenations, AreWrittenByTheOpsThatMakeTheirParts) {
  Graph g;
  const Value a = g.input("a", f32, {5, 7}), b = g.input("b", f32, {5, 7});
  g.fetch("stack", stack(std::array{tanh(a), exp(b)}, -1));
  g.fetch("transposed", concat(std::array{transpose(sigmoid(a), Ints{1, 0}), flip(tanh(transpose(b, Ints{1, 0})))}, 0));
  g.fetch("pad", pad(tanh(a + b), Ints{0, 2}, Ints{0, 3}, 1.5));
  g.fetch("zeros", concat(std::array{a * b, zeros(g, {2, 7})}, 0));
  EXPECT_EQ(check(g), std::vector<std::string>());
}

TEST(Matmul, ReadsTransposedOperandsInPlace) {
  Graph g;
  const Value q = g.input("q", f32, {2, 9, 3, 16}), k = g.input("k", f32, {2, 9, 3, 16});
  const Value heads = transpose(q, Ints{0, 2, 1, 3}), keys = transpose(k, Ints{0, 2, 3, 1});
  const Value scores = matmul(heads, keys);  // [2, 3, 9, 9]
  g.fetch("scores", scores);
  g.fetch("joined", reshape(transpose(matmul(scores, heads), Ints{0, 2, 1, 3}), Ints{2, 9, 48}) + 1.0);
  for (const std::string& note : check(g)) EXPECT_EQ(note.find("copies"), std::string::npos) << note;
}

TEST(Matmul, OfFlippedRowsIsRight) {
  Graph g;
  const Value a = g.input("a", f32, {40, 40}), b = g.input("b", f32, {40, 80});
  g.fetch("y", matmul(flip(a), slice(b, 1, 0, 80, 2)));
  check(g);
}

TEST(Gradients, OfInterleavedSlicesAreOneConcatenation) {
  Graph g;
  const Value x = g.input("x", f32, {3, 8});
  const Value even = slice(x, 1, 0, 8, 2), odd = slice(x, 1, 1, 8, 2);
  g.fetch("dx", gradients(sum(tanh(even) * odd * odd), {x})[0]);
  std::string text;
  CompileOptions options;
  options.after_pass = [&](const std::string& pass, const Graph& graph) {
    if (pass == "sum_gradients") text = to_text(graph);
  };
  check(g, 1e-5, options);
  EXPECT_EQ(text.find("pad("), std::string::npos) << text;
  EXPECT_NE(text.find("concat("), std::string::npos) << text;
}

TEST(Constants, ComeBackFromTextAndKeepTheirValues) {
  Graph g;
  const Value table = constant(g, {2, 2}, Dense{1, -2.5, 1e30, -0.0});
  const Value x = g.input("x", f32, {3, 2, 2});
  g.fetch("y", scan({zeros(g, {2, 2})}, {x}, [&](const Values& carry, const Values& element) {
                 return step({carry[0] + element[0] * table}, {});
               }).carries[0]);
  g.fetch("table", table);
  g.fetch("same", constant(g, {3}, Dense{7, 7, 7}, i64) + full(g, {3}, 1, i64));
  const std::string text = to_text(g);
  EXPECT_NE(text.find("{values=[1,-2.5,1e+30,-0.0], shape=[2,2]}"), std::string::npos) << text;
  EXPECT_EQ(to_text(*parse_graph(text)), text);
  check(g);
  EXPECT_THROW(constant(g, {70000}, Dense(70000)), Error);
}

TEST(SimplifyTransposes, CancelsTransposesAroundAnElementwiseChain) {
  Graph g;
  const Value x = g.input("x", f32, {4, 6});
  g.fetch("y", transpose(tanh(transpose(x, Ints{1, 0}) * 2.0), Ints{1, 0}));
  std::string text;
  CompileOptions options;
  options.after_pass = [&](const std::string&, const Graph& graph) { text = to_text(graph); };
  check(g, 1e-5, options);
  EXPECT_EQ(text.find("transpose"), std::string::npos) << text;
}

TEST(ScanOfViews, WalksSequencesBackwardsAndStacksTransposed) {
  Graph g;
  const Value x = g.input("x", f32, {6, 3, 4});
  const StepResult made = scan({zeros(g, {3, 4})}, {flip(x, Ints{0}), slice(tile(x, Ints{2, 1, 1}), 0, 0, 12, 2)},
                               [&](const Values& carry, const Values& element) {
                                 const Value next = tanh(carry[0] + element[0] * element[1]);
                                 return step({next}, {transpose(next, Ints{1, 0}), flip(next * 2.0)});
                               });
  for (std::size_t i = 0; i < 2; ++i) g.fetch("y" + std::to_string(i), made.outputs[i]);
  g.fetch("dx", gradients(sum(made.outputs[0] * made.outputs[0]), {x})[0]);
  check(g);
}

}  // namespace
}  // namespace paoding::testing_program
