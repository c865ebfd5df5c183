// SPDX-License-Identifier: Apache-2.0
// Reading graph text: its graph, compared with the same one built by functions, and the texts of its errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "base/check.h"
#include "graph/verify.h"
#include "paoding/autodiff.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

std::unique_ptr<Graph> parse(const std::string& body) {
  auto graph = parse_graph("paoding graph 1\n" + body);
  verify(*graph, "parsing");
  return graph;
}

// "kind: message" of the error of a text without its first line; "" when it parses.
std::string error_of(const std::string& body) {
  try {
    parse_graph("paoding graph 1\n" + body);
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.kind()), error.what());
  }
  return "";
}

#define EXPECT_ERROR(body, start) EXPECT_EQ(error_of(body).substr(0, std::string_view(start).size()), start)

constexpr const char* kXy = "x = input f32[4,3]\ny = input f32[3]\n";

TEST(ParseGraph, BuildsWhatTheFunctionsBuild) {
  Graph built;
  const Value x = built.input("x", f32, {16, 8}), w = built.parameter("w", f32, {8, 4});
  Value product, total;
  {
    Scope scope(built, "decoder");
    product = matmul(x, w);
    total = sum(product, std::vector<std::int64_t>{0}, true);
  }
  built.fetch("out", total);
  const auto parsed = parse(
      "x = input f32[16,8]\nw = parameter f32[8,4]\n"
      "p = matmul(x, w) @decoder\nt = sum(p) {axes=[0], keepdims=true} @\"decoder\"\nfetch out = t\n");
  EXPECT_EQ(to_text(*parsed), to_text(built));
  ASSERT_EQ(parsed->size(), 4);
  EXPECT_EQ(parsed->node(3).op->name, "sum");
  EXPECT_EQ(parsed->node(3).attrs.get_ints("axes"), std::vector<std::int64_t>{0});
  EXPECT_TRUE(parsed->node(3).attrs.get_bool("keepdims"));
  EXPECT_EQ(parsed->node(3).types[0], (Type{f32, {1, 4}}));
  EXPECT_EQ(parsed->node(3).scope.str(), "decoder");
  EXPECT_EQ(parsed->inputs(), std::vector<NodeId>{0});
  EXPECT_EQ(parsed->parameters(), std::vector<NodeId>{1});
  EXPECT_EQ(parsed->fetches().at(0).name, "out");
  EXPECT_EQ(parsed->fetches().at(0).ref, (Ref{3, 0}));
}

TEST(ParseGraph, ExpandsComposedOpsAsCallDoes) {
  Graph built;
  const Value x = built.input("x", f32, {2, 5}), h = built.input("h", f32, {2, 4}), c = built.input("c", f32, {2, 4});
  const Value w = built.input("w", f32, {5, 16}), u = built.input("u", f32, {4, 16}), b = built.input("b", f32, {16});
  const auto [new_h, new_c] = lstm_cell(x, h, c, w, u, b);
  built.fetch("h", new_h);
  built.fetch("c", new_c);
  const auto parsed = parse(
      "x = input f32[2,5]\nh = input f32[2,4]\nc = input f32[2,4]\nw = input f32[5,16]\nu = input f32[4,16]\n"
      "b = input f32[16]\nhn, cn = lstm_cell(x, h, c, w, u, b) : f32[2,4], f32[2,4]\nfetch h = hn\nfetch c = cn\n");
  EXPECT_EQ(to_text(*parsed), to_text(built));
}

TEST(ParseGraph, ExpandsGradientsAsTheFunctionDoes) {
  for (const bool has_seed : {false, true}) {
    Graph built;
    const Value x = built.input("x", f32, {4, 3}), seed = built.input("seed", f32, {4, 3});
    const Value y = tanh(x), loss = sum(y);
    const Value dx =
        has_seed ? gradients(std::vector{y}, std::vector{x}, std::vector{seed})[0] : gradients(loss, {x})[0];
    built.fetch("dx", dx);
    const auto parsed = parse(std::string("x = input f32[4,3]\nseed = input f32[4,3]\ny = tanh(x)\nloss = sum(y)\n") +
                              (has_seed ? "dx = gradients(y, seed) by (x)" : "dx = gradients(loss) by (x)") +
                              " : f32[4,3]\nfetch dx\n");
    EXPECT_EQ(to_text(*parsed), to_text(built));
  }
}

TEST(ParseGraph, TakesSeveralOutputsOfGradients) {
  const std::string start = "x = input f32[2]\ns = input f32[2]\na = exp(x)\nb = tanh(x)\nk = sum(a)\nl = sum(b)\n";
  EXPECT_EQ(error_of(start + "d = gradients(a, b; s, s) by (x)\n"), "");
  EXPECT_EQ(error_of(start + "d = gradients(k, l;) by (x)\n"), "");
  EXPECT_ERROR(start + "d = gradients(k, l, k) by (x)\n", "file: <graph text>:8:5: several outputs are separated");
  EXPECT_ERROR(start + "d = gradients(a) by (x)\n", "argument: line 8: gradients: output 0 is f32[2], which is not");
  EXPECT_ERROR(start + "d = gradients(k)\n", "file: <graph text>:8:17: the end of the line where 'by'");
  EXPECT_ERROR(start + "d = gradients(k) by (x) ~me\n", "file: <graph text>:8:25: 'gradients' is expanded");
}

TEST(ParseGraph, GivesScanItsBody) {
  const auto parsed = parse(
      "h0 = input f32[2]\nxs = input f32[7,2]\nlast, all = scan(h0, xs) {carries=1, sequences=1, length=7} [\n"
      "  h0 = input f32[2]  # the same name, another value\n  x = input f32[2]\n\n  y = mul(h0, x)\n"
      "  fetch a = y\n  fetch b = x\n] : f32[2], f32[7,2] @\"loop\"\nfetch all\n");
  const Node& scan = parsed->node(2);
  ASSERT_EQ(scan.bodies.size(), 1u);
  EXPECT_EQ(scan.scope.str(), "loop");
  EXPECT_EQ(scan.types, (std::vector<Type>{{f32, {2}}, {f32, {7, 2}}}));
  EXPECT_EQ(scan.bodies[0]->fetches().at(1).ref, (Ref{1, 0}));
  EXPECT_EQ(parsed->fetches().at(0).ref, (Ref{2, 1}));
}

TEST(ParseGraph, ReadsEveryKindOfNumberExactly) {
  const auto value = [](const std::string& text) {
    return parse("a = full() {value=" + text + ", dtype=f64}\n")->node(0).attrs.get_float("value");
  };
  EXPECT_EQ(value("0.1"), 0.1);
  EXPECT_EQ(value("+3"), 3.0);
  EXPECT_EQ(value("5e-324"), 5e-324);
  EXPECT_EQ(value("1.7976931348623157e+308"), 1.7976931348623157e308);
  EXPECT_EQ(value("-inf"), -INFINITY);
  EXPECT_TRUE(std::isnan(value("nan")));
  EXPECT_TRUE(std::signbit(value("-0.0")));
  EXPECT_EQ(value("9007199254740993"), 9007199254740992.0);
  EXPECT_ERROR("a = full() {value=1e999}\n", "file: <graph text>:2:19: '1e999' does not fit an f64");
  EXPECT_ERROR("a = full() {value=1.2.3}\n", "file: <graph text>:2:19: '1.2.3' is not a number");
  EXPECT_ERROR("a = full() {value=\"inf\"}\n", "file: <graph text>:2:19: \"inf\" where a number was expected");
  EXPECT_ERROR("a = full() {value=true}\n", "file: <graph text>:2:19: 'true' where a number was expected");
  EXPECT_ERROR("a = input f32[9223372036854775808]\n",
               "file: <graph text>:2:15: '9223372036854775808' does not fit 64");
  EXPECT_ERROR("a = input f32[1.5]\n", "file: <graph text>:2:15: '1.5' is not an integer");
}

TEST(ParseGraph, ShowsTheLineAndACaretBelowTheMistake) {
  EXPECT_EQ(error_of("\"\xc3\xa9\" = input f32[2]\n\ty = mull(\"\xc3\xa9\")\n"),
            "file: <graph text>:3:6: there is no op 'mull' (did you mean 'full' or 'mul' or 'all'?); `paoding ops` "
            "lists them\n"
            "   y = mull(\"\xc3\xa9\")\n"
            "       ^");
  EXPECT_EQ(error_of("\"\xc3\xa9\" = input f64[2] : f64[2]\n"),
            "file: <graph text>:2:20: ':' where the end of the line was expected\n"
            "  \"\xc3\xa9\" = input f64[2] : f64[2]\n"
            "                     ^");
}

TEST(ParseGraph, SaysWhatWasExpected) {
  const std::string xy = kXy;
  EXPECT_ERROR(xy + "z = add(x, yy)\n",
               "file: <graph text>:4:12: there is no value 'yy' above this line (did you mean 'y'?)");
  EXPECT_ERROR(xy + "z = add(x y)\n",
               "file: <graph text>:4:11: 'y' where ',' or ')' in the list of values was expected");
  EXPECT_ERROR(xy + "z = add(x, y\n", "file: <graph text>:4:13: the end of the line where ','");
  EXPECT_ERROR(xy + "z = add(x, y)) \n", "file: <graph text>:4:14: ')' where the end of the line");
  EXPECT_ERROR(xy + "add(x, y)\n", "file: <graph text>:4:4: '(' where '=': name the results");
  EXPECT_ERROR(xy + "x = neg(y)\n", "file: <graph text>:4:1: 'x' is already defined on line 2");
  EXPECT_ERROR(xy + "w = parameter f32[]\nz = assign(w, w)\n",
               "file: <graph text>:5:5: assign gives no value: it is a statement, as in 'assign w = x'");
  EXPECT_ERROR(xy + "a, b = neg(y)\n", "file: <graph text>:4:1: 'neg' gives 1 values, but 2 stand on the left");
  EXPECT_ERROR(xy + "z = add(x, y) : f32[3]\n", "file: <graph text>:4:15: 'z' is f32[4,3], but the text says f32[3]");
  EXPECT_ERROR(xy + "z = add(x, y) : f32[4,3], f32[3]\n", "file: <graph text>:4:15: 2 types for 1 values");
  EXPECT_ERROR(xy + "z = sum(x) {axis=[0]}\n",
               "file: <graph text>:4:13: sum has no attribute 'axis'; it takes: axes, keepdims");
  EXPECT_ERROR(xy + "z = sum(x) {axes=0}\n", "file: <graph text>:4:18: '0' where a list of integers, as in [0,1] was");
  EXPECT_ERROR(xy + "z = sum(x) {axes=[0], axes=[0]}\n", "file: <graph text>:4:23: attribute 'axes' stands twice");
  EXPECT_ERROR(xy + "z = cast(x) {dtype=f31}\n", "file: <graph text>:4:20: 'f31' where a dtype (f64, f32");
  EXPECT_ERROR(xy + "z = input f32\n",
               "file: <graph text>:4:14: the end of the line where a shape, as in f32[2,3], or f32[]");
  EXPECT_ERROR(xy + "%4 = input f32[]\n", "file: <graph text>:4:1: a name was expected");
  EXPECT_ERROR(xy + "fetch a = x\nfetch a = y\n", "file: <graph text>:5:7: 'a' is already fetched on line 4");
  EXPECT_ERROR(xy + "fetch %3\n", "file: <graph text>:4:7: a fetch needs a name, as in 'fetch y = %3'");
  EXPECT_ERROR(xy + "z = neg(\"x)\n", "file: <graph text>:4:9: this quote is not closed");
  EXPECT_ERROR(xy + "z = neg(\"\\q\")\n", "file: <graph text>:4:10: unknown escape");
  EXPECT_ERROR(xy + "z = scan(x) {carries=1, sequences=0, length=1} [\nx = neg(x)\n]\n",
               "file: <graph text>:5:9: 'x' is a value outside");
  EXPECT_ERROR(xy + "z = scan(x) {carries=1, sequences=0, length=1} [\n",
               "file: <graph text>:4:48: this body is not closed");
}

TEST(ParseGraph, KeepsTheKindOfAnErrorOfAnOp) {
  EXPECT_ERROR("x = input f32[4,3]\ny = input f32[5]\nz = add(x, y) @\"decoder\"\n",
               "shape: line 4: add: b has shape [5], which does not broadcast with [4, 3] (in decoder)");
  EXPECT_ERROR("x = input bool[3]\ny = sum(x)\n", "dtype: line 3: sum: a is bool");
  EXPECT_ERROR("x = input f32[3]\ny = add(x)\n", "argument: line 3: add: has 1 inputs");
  EXPECT_ERROR("x = input f32[-1]\n", "shape: line 2: shape: extent -1");
  EXPECT_ERROR("x = input f32[1,1,1,1,1,1,1,1,1]\n", "shape: line 2: shape: more than 8 axes");
}

TEST(ParseGraph, RefusesVersionsItDoesNotHave) {
  const auto header = [](const char* text) {
    try {
      parse_graph(text);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(header("paoding graph 2\n").find("1:15: this text is version 2, but this build reads up to version 1"),
            std::string::npos);
  EXPECT_NE(header("paoding graph 0\n").find("there is no version 0"), std::string::npos);
  EXPECT_NE(header("x = input f32[]\n").find("1:1: 'x' where the first line 'paoding graph 1' was"), std::string::npos);
  EXPECT_NE(header("").find("1:1: the end of the text where the first line"), std::string::npos);
  EXPECT_EQ(error_of("x = input f32[2]\ny = neg.v1(x)\n"), "");
  EXPECT_ERROR("x = input f32[2]\ny = neg.v3(x)\n",
               "file: <graph text>:3:5: there is no version 3 of neg in this build, which has version 1: a newer");
  EXPECT_ERROR("x = input f32[2]\ny = neg.v0(x)\n", "file: <graph text>:3:5: '.v0' is not a version");
}

TEST(ParseGraph, RefusesBytesThatAreNoText) {
  EXPECT_ERROR(std::string("x = input f32[2]\n# \0 comment\n", 30), "file: <graph text>:3:3: control character 0x00");
  EXPECT_ERROR("x = input f32[2] # \xff\n", "file: <graph text>:2:20: this byte is not UTF-8 text");
  EXPECT_ERROR("x = input f32[2] # \xc0\x80\n", "file: <graph text>:2:20: this byte is not UTF-8 text");
  EXPECT_ERROR("\xc3\xa9 = input f32[2]\n",
               "file: <graph text>:2:1: '\xc3\xa9' is not expected here; such names go in quotes");
}

TEST(ParseGraph, LimitsDepthNodesNamesAndNumbers) {
  std::string deep = "x = input f32[]\n";
  for (int i = 0; i < 100'000; ++i) deep += "y = scan(x) {carries=1, sequences=0, length=1} [\nx = input f32[]\n";
  EXPECT_ERROR(deep, "file: <graph text>:35:48: bodies are nested deeper than 16");
  EXPECT_ERROR("\"" + std::string(70'000, 'n') + "\" = input f32[]\n",
               "file: <graph text>:2:1: a name of more than 65536");
  EXPECT_ERROR(std::string(70'000, 'n') + " = input f32[]\n", "file: <graph text>:2:1: a name of more than 65536");
  EXPECT_ERROR("x = input f32[" + std::string(70'000, '1') + "]\n",
               "file: <graph text>:2:15: a number of more than 512");
  std::string wide = "x = input f32[]\n";
  for (int i = 0; i < 2000; ++i) wide += fmt::format("a{} = neg(x)\nb{} = gradients(a{}) by (x)\n", i, i, i);
  EXPECT_NE(error_of(wide).find("gradients statements walk over more than 4000000 nodes in all"), std::string::npos);
}

TEST(ParseGraph, TakesTimeProportionalToTheText) {
  // Many inputs, fetches and attributes, a deep chain, and a very long line: each would take minutes if it were
  // quadratic.
  std::string text = "paoding graph 1\n";
  for (int i = 0; i < 50'000; ++i) text += fmt::format("i{} = input f32[]\n", i);
  text += "%0 = neg(i0)\n";
  for (int i = 1; i < 50'000; ++i) text += fmt::format("%{} = neg(%{})\nfetch f{} = %{}\n", i, i - 1, i, i);
  text += "s = add_n(i0";
  for (int i = 1; i < 50'000; ++i) text += fmt::format(", i{}", i);
  text += ")\nd = gradients(s) by (i1)\n";
  const std::clock_t start = std::clock();  // of the processor: others may use the machine
  const auto graph = parse_graph(text);
  const std::string printed = to_text(*graph);
  EXPECT_EQ(to_text(*parse_graph(printed)), printed);
  EXPECT_LT(std::clock() - start, 20 * CLOCKS_PER_SEC);
  EXPECT_GE(graph->size(), 100'001);
}

}  // namespace
}  // namespace paoding
