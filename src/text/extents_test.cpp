// SPDX-License-Identifier: Apache-2.0
// Graph text with extents: the graph at sizes, compared with the text in which the sizes are written, and errors.
#include <gtest/gtest.h>

#include "base/check.h"
#include "graph/verify.h"
#include "paoding/graph_text.h"

namespace paoding {
namespace {

const std::string kFirst = "paoding graph 1\n";
const std::string kTwo = "extent batch = 1..256\nextent time = 0..512 multiples_of(8)\n";

std::string error_at(const std::string& body, const Extents::Key& sizes) {
  try {
    GraphText(kFirst + body).at(sizes);
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.kind()), error.what());
  }
  return "";
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The integer that an expression is at batch 3 and time 7, by the shape of a value.
std::int64_t value_of(const std::string& expression) {
  const auto graph = GraphText(kFirst + kTwo + "x = iota() {shape=[" + expression + "], strides=[1]}\n").at({3, 7});
  return graph->node(0).types[0].shape[0];
}

TEST(TextWithExtents, IsAtSizesTheTextInWhichTheyAreWritten) {
  const GraphText text(kFirst + kTwo +
                       "x = input f32[batch,time,2]\n"
                       "flat = reshape(x) {shape=[batch*time,2]} : f32[batch*time,2]\n"
                       "part = slice(flat) {start=[0,0], end=[batch*(time//2),2]}\n"
                       "wide = expand(part) {shape=[3,batch*(time//2),2]}\n"
                       "n = full() {value=time, dtype=i64}\n"
                       "fetch wide\nfetch n\n");
  const std::vector<std::pair<std::int64_t, std::int64_t>> all{{1, 0}, {1, 1}, {2, 7}, {3, 8}, {255, 9}, {256, 512}};
  for (const auto& [batch, time] : all) {
    const std::int64_t rows = batch * time, half = batch * (time / 2);
    const auto plain = parse_graph(kFirst + fmt::format("x = input f32[{},{},2]\n"
                                                        "flat = reshape(x) {{shape=[{},2]}}\n"
                                                        "part = slice(flat) {{start=[0,0], end=[{},2]}}\n"
                                                        "wide = expand(part) {{shape=[3,{},2]}}\n"
                                                        "n = full() {{value={}, dtype=i64}}\n"
                                                        "fetch wide\nfetch n\n",
                                                        batch, time, rows, half, half, time));
    const auto at_sizes = text.at({{"time", time}, {"batch", batch}});
    verify(*at_sizes, "reading");
    EXPECT_EQ(to_text(*at_sizes), to_text(*plain)) << batch << ", " << time;
    EXPECT_EQ(to_text(*text.build()({batch, time})), to_text(*plain));
  }
}

TEST(TextWithExtents, ReckonsAsIntegersDo) {
  EXPECT_EQ(value_of("time"), 7);
  EXPECT_EQ(value_of("time-1"), 6);
  EXPECT_EQ(value_of("time -1"), 6);
  EXPECT_EQ(value_of("time - 1"), 6);
  EXPECT_EQ(value_of("2*time+batch*10"), 44);
  EXPECT_EQ(value_of("20 - 2*(time - batch) - 1"), 11);
  EXPECT_EQ(value_of("20 - time - batch"), 10);
  EXPECT_EQ(value_of("time // 2"), 3);
  EXPECT_EQ(value_of("(time + 1) / 2"), 4);
  EXPECT_EQ(value_of("10 - -time // 2"), 14);  // rounds down, as Python
  EXPECT_EQ(value_of("-(-time)"), 7);
  EXPECT_EQ(value_of("time * 6 // 4 / 2"), 5);
  EXPECT_EQ(value_of("-batch + time"), 4);
}

TEST(TextWithExtents, TellsOfExpressionsThatHaveNoValue) {
  const auto error = [](const std::string& expression) {
    return error_at(kTwo + "x = input f32[" + expression + "]\n", {3, 7});
  };
  EXPECT_TRUE(holds(error("time/2"), "<graph text>:4:19: 7 / 2 is no integer; // rounds down")) << error("time/2");
  EXPECT_TRUE(holds(error("time/2"), "(at batch=3, time=7)"));
  EXPECT_TRUE(holds(error("batch/(time-7)"), "3 is divided by 0"));
  EXPECT_TRUE(holds(error("time*9223372036854775807"), "does not fit 64 bits"));
  EXPECT_TRUE(holds(error("9223372036854775807+time"), "does not fit 64 bits"));
  EXPECT_TRUE(holds(error("(-9223372036854775807-1)/-1"), "does not fit 64 bits"));
  EXPECT_TRUE(holds(error("-time-9223372036854775807"), "does not fit 64 bits"));
  EXPECT_TRUE(holds(error("tme"), "there is no extent 'tme' above this line (did you mean 'time'")) << error("tme");
  EXPECT_TRUE(holds(error("time-"), "an integer or an extent was expected"));
  EXPECT_TRUE(holds(error("(time"), "')' after the expression"));
  EXPECT_TRUE(holds(error("batch-time"), "-4")) << "a negative size is an error of shapes";
  EXPECT_TRUE(holds(error(std::string(100, '(') + "1" + std::string(100, ')')), "nested deeper than 64"));
}

TEST(TextWithExtents, ChecksSizesAgainstTheBounds) {
  const std::string text = kTwo + "x = input f32[batch,time]\n";
  EXPECT_EQ(error_at(text, {1, 600}), "shape: time is 600; this class holds 0 to 512");
  EXPECT_EQ(error_at(text, {0, 1}), "shape: batch is 0; this class holds 1 to 256");
  EXPECT_TRUE(holds(error_at(text, {1}), "1 sizes for 2 extents"));
  try {
    parse_graph(kFirst + text);
    ADD_FAILURE() << "it was read without sizes";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "the text has extents, which need sizes: batch (1 to 256), time (0 to 512)\n"
                 "hint: GraphText(text).at(sizes), in Python the same");
  }
}

TEST(TextWithExtents, DeclaresBucketRules) {
  const GraphText text(kFirst +
                       "extent a = 1..100 multiples_of(8)\nextent b = 0..100 powers_of_two()\n"
                       "extent c = 2..36 sizes(4, 8, 36)\nextent d = 1 .. 9\n");
  EXPECT_EQ(text.extents().bucket_of({9, 33, 5, 7}), (Extents::Key{16, 64, 8, 7}));
  EXPECT_EQ(text.extents().bucket_of({97, 65, 36, 9}), (Extents::Key{100, 100, 36, 9}));
}

TEST(TextWithExtents, RefusesDeclarationsThatAreNone) {
  const auto error = [](const std::string& line) { return error_at(line + "\n", {}); };
  EXPECT_TRUE(holds(error("extent a = 1"), "'..' between the bounds"));
  EXPECT_TRUE(holds(error("extent a = 5..1"), "a is from 5 to 1"));
  EXPECT_TRUE(holds(error("extent a = -1..1"), "a is from -1 to 1"));
  EXPECT_TRUE(holds(error("extent a = 1..5 threes(3)"), "there is no rule 'threes'"));
  EXPECT_TRUE(holds(error("extent a = 1..5 multiples_of(0)"), "n is 0"));
  EXPECT_TRUE(holds(error("extent a = 1..5 sizes()"), "needed is at least one"));
  EXPECT_TRUE(holds(error("extent a = 1..5 sizes(4, 4)"), "sizes must ascend"));
  EXPECT_TRUE(holds(error("extent a = 1..5 sizes(4, 9)"), "a has a bucket of 9; this class holds 1 to 5"));
  EXPECT_TRUE(holds(error("extent a = 1..5\nextent a = 1..6"), "'a' is declared twice"));
  EXPECT_TRUE(holds(error("extent \"a b\" = 1..5"), "is no name of an extent"));
  EXPECT_TRUE(holds(error("extent inf = 1..5"), "is no name of an extent"));
  EXPECT_TRUE(holds(error("extent a = 1..5 6"), "the end of the line was expected"));
  std::string many;
  for (int i = 0; i < 33; ++i) many += fmt::format("extent a{} = 1..2\n", i);
  EXPECT_TRUE(holds(error(many), "more than 32 extents"));
  const std::string in_body =
      "i = input i32[]\nx = input f32[2]\ny = branch(i, x) [\n  extent a = 1..2\n  x = input f32[2]\n  fetch y = x\n]";
  EXPECT_TRUE(holds(error(in_body), "extents are declared outside of bodies"));
}

TEST(TextWithExtents, LeavesTheWordToValuesOfItsName) {
  const auto graph = parse_graph(kFirst + "extent = input f32[2]\ny = neg(extent)\nfetch y\n");
  EXPECT_EQ(to_text(*parse_graph(to_text(*graph))), to_text(*graph));
}

TEST(TextWithExtents, TakesSizesFromTheTypesOfInputs) {
  const GraphText text(kFirst + kTwo +
                       "x = input f32[batch,3]\ny = input f32[2*batch,time]\n"
                       "z = branch(x, y) [\n  a = input f32[time,9]\n  fetch a\n]\n");
  EXPECT_EQ(text.inputs_text(), "x f32[batch,3], y f32[2*batch,time]");
  const auto type = [](std::int64_t a, std::int64_t b) { return Type{f32, {a, b}}; };
  EXPECT_EQ(text.sizes_of({{"x", type(4, 3)}, {"y", type(8, 57)}}), (Extents::Key{4, 57}));
  EXPECT_EQ(text.sizes_of({{"x", type(4, 3)}}, {{"time", 9}}), (Extents::Key{4, 9}));
  EXPECT_EQ(text.sizes_of({{"x", type(4, 3)}}, {{"time", 9}, {"batch", 5}}), (Extents::Key{5, 9})) << "given ones win";
  const auto error = [&](const std::map<std::string, Type>& fed) {
    try {
      text.sizes_of(fed);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(error({{"x", type(4, 3)}}), "time has no size; the extents are: batch (1 to 256), time (0 to 512)");
  const GraphText twice(kFirst + kTwo + "x = input f32[batch]\ny = input f32[batch]\n");
  try {
    twice.sizes_of({{"x", {f32, {4}}}, {"y", {f32, {5}}}});
    ADD_FAILURE();
  } catch (const Error& different) {
    EXPECT_STREQ(different.what(), "batch is 4 in 'x' and 5 in 'y'");
  }
}

}  // namespace
}  // namespace paoding
