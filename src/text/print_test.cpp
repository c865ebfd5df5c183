// SPDX-License-Identifier: Apache-2.0
// Printing graphs, and reading the text back: seeds of the fuzzer, the page of the docs, and graphs built here.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "graph/verify.h"
#include "paoding/autodiff.h"
#include "paoding/error.h"
#include "paoding/graph_text.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "tests/support/source_root.h"
#include "text/lexer.h"

namespace paoding {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// Prints, reads back, and expects the same nodes, not only the same text.
void expect_same_after_reading(const Graph& graph) {
  const std::string text = to_text(graph);
  SCOPED_TRACE(text);
  const auto again = parse_graph(text);
  verify(*again, "parsing");
  EXPECT_EQ(to_text(*again), text);
  ASSERT_EQ(again->size(), graph.size());
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node &a = graph.node(id), &b = again->node(id);
    EXPECT_EQ(a.op, b.op);
    EXPECT_EQ(a.inputs, b.inputs);
    if (text.find("value=nan") == std::string::npos) {  // a NaN does not equal itself
      EXPECT_EQ(a.attrs, b.attrs);
    }
    EXPECT_EQ(a.types, b.types);
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.scope, b.scope);
    EXPECT_EQ(a.origin, b.origin);
    EXPECT_EQ(a.bodies.size(), b.bodies.size());
  }
  ASSERT_EQ(again->fetches().size(), graph.fetches().size());
  for (std::size_t i = 0; i < graph.fetches().size(); ++i) {
    EXPECT_EQ(again->fetches()[i].name, graph.fetches()[i].name);
    EXPECT_EQ(again->fetches()[i].ref, graph.fetches()[i].ref);
  }
}

TEST(GraphText, PrintsOneStatementALine) {
  Graph graph;
  const Value x = graph.input("x", f32, {16, 3}), w = graph.parameter("encoder/w", bf16, {3});
  Scope scope(graph, "decoder");
  graph.origin = "blend";
  const Value y = mul(x, full(graph, {}, 0.5));
  graph.origin = Name();
  graph.fetch("y", sum(y, std::vector<std::int64_t>{0, -1}, true));
  graph.fetch("w w", w);
  EXPECT_EQ(to_text(graph),
            "paoding graph 1\n"
            "x = input f32[16,3]\n"
            "\"encoder/w\" = parameter bf16[3]\n"
            "%2 = full() {value=0.5} : f32[] @\"decoder\" ~blend\n"
            "%3 = mul(x, %2) : f32[16,3] @\"decoder\" ~blend\n"
            "%4 = sum(%3) {axes=[0,-1], keepdims=true} : f32[1,1] @\"decoder\"\n"
            "fetch y = %4\n"
            "fetch \"w w\" = \"encoder/w\"\n");
  expect_same_after_reading(graph);
}

TEST(GraphText, ReadsBackScansAndTheirGradients) {
  Graph graph;
  const Value xs = graph.input("xs", f32, {6, 2, 5}), h0 = graph.input("h0", f32, {2, 4}),
              c0 = graph.input("c0", f32, {2, 4});
  const Value w = graph.parameter("w", f32, {5, 16}), u = graph.parameter("u", f32, {4, 16}),
              b = graph.parameter("b", f32, {16});
  Scope scope(graph, "encoder");
  const StepResult made = scan({h0, c0}, {xs}, [&](const Values& carries, const Values& elements) {
    const auto [h, c] = lstm_cell(elements[0], carries[0], carries[1], w, u, b);
    return step({h, c}, {h});
  });
  const Value loss = sum(made.outputs[0]);
  graph.fetch("loss", loss);
  const Values grads = gradients(loss, {w, u, b, xs});
  for (std::size_t i = 0; i < grads.size(); ++i) graph.fetch("g" + std::to_string(i), grads[i]);
  expect_same_after_reading(graph);
}

TEST(GraphText, ReadsBackAScanThatAsksForItsStepAfterItHasUsedOtherValues) {
  Graph graph;
  const Value xs = graph.input("xs", f32, {6, 4}), h0 = graph.input("h0", f32, {4}), w = graph.parameter("w", f32, {4});
  const StepResult made = scan({h0}, {xs}, [&](const Values& carries, const Values& elements) {
    const Value h = tanh(carries[0] * w + elements[0]) * cast(step_index(carries[0].graph()), f32);
    return step({h}, {h});
  });
  const Value loss = sum(made.outputs[0]);
  graph.fetch("loss", loss);
  graph.fetch("dw", gradients(loss, {w})[0]);
  expect_same_after_reading(graph);
}

TEST(GraphText, ReadsBackEveryCaseOfEveryOp) {
  int cases = 0;
  for (const OpDef* op : all_ops()) {
    if (op->name == "input" || op->name == "parameter") continue;
    for (const OpCase& op_case : op->cases) {
      if (!op_case.error.empty()) continue;
      Graph graph;
      Values inputs;
      for (std::size_t i = 0; i < op_case.shapes.size(); ++i) {
        const DType dtype = i < op_case.dtypes.size() ? op_case.dtypes[i] : f32;
        inputs.push_back(graph.input("in" + std::to_string(i), dtype, op_case.shapes[i]));
      }
      Values made;
      try {
        made = call(*op, inputs, op_case.attrs, {}, &graph);
      } catch (const Error&) {
        continue;  // whether a case is right is for the op sweep to say
      }
      ++cases;
      for (std::size_t i = 0; i < made.size(); ++i) graph.fetch("out" + std::to_string(i), made[i]);
      expect_same_after_reading(graph);
    }
  }
  EXPECT_GE(cases, 60);
}

TEST(GraphText, QuotesNamesThatAreNoWords) {
  Graph graph;
  for (const char* name :
       {"fetch", "%3", "a b", "1x", ".x", "\"", "\\", "tab\t", "\n", "\x01\x7f", "\xff\xc3", "\xc3\xa9", "input"}) {
    graph.fetch(name, neg(graph.input(name, f32, {})));
  }
  graph.fetch(std::string("\0", 1), graph.find("a b"));
  graph.fetch("", graph.find("fetch"));
  expect_same_after_reading(graph);
  EXPECT_EQ(quote("\xff\xc3\xa9\"\n"), "\"\\xff\xc3\xa9\\\"\\n\"");
  EXPECT_TRUE(is_plain_name("encoder.h_0"));
}

TEST(GraphText, PrintsNumbersThatReadBackToTheSameBits) {
  Graph graph;
  for (const double value :
       {0.0, -0.0, 0.1, 1.0 / 3, 1e16, 123456789012345680.0, 1e22, 5e-324, -1.7976931348623157e308}) {
    full(graph, {}, value, f64);
  }
  const auto again = parse_graph(to_text(graph));
  for (NodeId id = 0; id < graph.size(); ++id) {
    const double before = graph.node(id).attrs.get_float("value"), after = again->node(id).attrs.get_float("value");
    EXPECT_EQ(0, std::memcmp(&before, &after, sizeof before)) << before;
  }
}

TEST(GraphText, WritesVersionsAboveOneAndReadsThem) {
  const OpDef twice{
      .name = "text_test_twice",
      .summary = "2 a",
      .kind = OpKind::formula,
      .version = 2,
      .inputs = {"a"},
      .attrs = {{.name = "note", .example = std::string("none")}, {.name = "k", .example = std::int64_t{7}}},
      .formula = formula([](Scalar a) { return a + a; })};
  const OpDef& op = register_op(twice);
  Graph graph;
  const Value x = graph.input("x", f32, {2});
  graph.fetch("y", call(op, std::vector{x}, {{"note", std::string("a \"b\"\n")}}).front());
  EXPECT_NE(to_text(graph).find("%1 = text_test_twice.v2(x) {note=\"a \\\"b\\\"\\n\"} : f32[2]\n"), std::string::npos);
  expect_same_after_reading(graph);
  try {
    parse_graph("paoding graph 1\nx = input f32[2]\ny = text_test_twice(x)\n");
    FAIL() << "version 1 was read";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no version 1 of text_test_twice in this build, which has version 2"),
              std::string::npos);
  }
}

TEST(GraphText, ReadsTheSeedsOfTheFuzzer) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_root() / "tests/fuzz_seeds/parse")) {
    SCOPED_TRACE(entry.path().string());
    ++files;
    if (entry.path().filename().string().starts_with("bad_")) {
      EXPECT_THROW(parse_graph(read(entry.path())), Error);
    } else {
      const GraphText text(read(entry.path()));
      expect_same_after_reading(*text.at(text.extents().smallest()));
    }
  }
  EXPECT_GE(files, 12);
}

TEST(GraphText, ReadsTheExampleOfTheDocs) {
  const std::string page = read(source_root() / "docs/reference/graph_text.md");
  const std::size_t start = page.find("```\npaoding graph 1"), end = page.find("\n```", start + 4);
  ASSERT_NE(start, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  const auto graph = parse_graph(std::string_view(page).substr(start + 4, end - start - 3));
  EXPECT_EQ(graph->inputs().size(), 3u);
  EXPECT_EQ(graph->parameters().size(), 3u);
  EXPECT_EQ(graph->fetches().size(), 2u);
  expect_same_after_reading(*graph);
}

}  // namespace
}  // namespace paoding
