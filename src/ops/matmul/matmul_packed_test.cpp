// SPDX-License-Identifier: Apache-2.0
// Products with packed weights, in programs: against float64, in every run anew, in the text form, and the refusals.
#include "ops/matmul/matmul_packed.h"

#include <gtest/gtest.h>

#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

#define SKIP_WITHOUT_ORDER(dtype)                      \
  if (packed_order(dtype, 64, 128, 128).order.empty()) \
  GTEST_SKIP() << "NOT CHECKED: oneDNN reads plain weights on this machine"

struct PackedCase {
  DType dtype;
  std::int64_t rows, inner, columns;
  bool transpose = false;
  bool is_slice = false;  // of wider weights
};

std::string title(const PackedCase& c) {
  return std::string(to_string(c.dtype)) + " " + std::to_string(c.rows) + " x " + std::to_string(c.inner) + " x " +
         std::to_string(c.columns) + (c.transpose ? " transposed" : "") + (c.is_slice ? " slice" : "");
}

// A sum over 6 steps of products of each step's rows; the carry goes into the product, so that it stays in the loop.
void build(Graph& g, const PackedCase& c) {
  const Value xs = g.input("xs", c.dtype, {6, c.rows, c.inner}), s0 = g.input("s0", c.dtype, {c.rows, c.columns});
  const Shape plain = c.transpose ? Shape{c.columns, c.inner} : Shape{c.inner, c.columns};
  const Value whole = g.input("w", c.dtype, c.is_slice ? Shape{plain[0], plain[1] + 7} : plain);
  const StepResult made = scan({s0}, {xs}, [&](const Values& carry, const Values& element) {
    const Value w = c.is_slice ? slice(whole, 1, 3, 3 + plain[1]) : whole;
    const Value a = element[0] + sum(carry[0], Ints{1}, true) * 0.001;
    const Value y = matmul(a, w, false, c.transpose) * 0.125;
    return step({y}, {y});
  });
  g.fetch("ys", made.outputs[0]);
}

double tolerance(const PackedCase& c) { return c.dtype == f32 ? 1e-5 : 0.03; }

TEST(PackedWeights, GiveWhatPlainOnesGive) {
  const PackedCase cases[] = {{f32, 64, 128, 576},
                              {f32, 64, 320, 256, true},
                              {f32, 5, 100, 513},         // columns that fill no block
                              {f32, 33, 131, 129, true},  // nor rows
                              {f32, 17, 33, 530, false, true},
                              {f32, 7, 140, 128, true, true},
                              {f32, 300, 64, 512},
                              {bf16, 64, 256, 320},
                              {bf16, 64, 320, 256, true},
                              {bf16, 5, 129, 130},  // an odd inner extent
                              {bf16, 17, 131, 129, true, true}};
  for (const PackedCase& c : cases) {
    SKIP_WITHOUT_ORDER(f32);
    if (packed_order(c.dtype, c.rows, c.inner, c.columns).order.empty()) continue;
    SCOPED_TRACE(title(c));
    Graph g;
    build(g, c);
    Program program(g);
    const std::string plan = program.plan_text();
    EXPECT_NE(plan.find("pack_weights"), std::string::npos) << plan;
    EXPECT_NE(plan.find("matmul_packed"), std::string::npos) << plan;
    // Twice with other weights: they are packed in every run.
    for (const unsigned seed : {1, 2}) {
      const Feeds feeds = make_feeds(g, seed);
      const Tensors got = program.run(to_tensors(g, feeds));
      expect_close("ys", got.at("ys").to_doubles(), evaluate_graph(g, feeds).at("ys"), tolerance(c));
      expect_same_bits(got, program.run(to_tensors(g, feeds)));
    }
  }
}

TEST(PackedWeights, FollowParametersThatARunAssigns) {
  SKIP_WITHOUT_ORDER(f32);
  Graph g;
  const Value w = g.parameter("w", f32, {128, 128}), h0 = g.input("h0", f32, {8, 128});
  const Value xs = full(g, {6, 8, 128}, 0.5, f32);
  const Value h = scan({h0}, {xs}, [&](const Values& carry, const Values& element) {
                    return step({tanh(matmul(carry[0], w, false, true) * 0.01 + element[0])}, {});
                  }).carries[0];
  g.fetch("h", h);
  g.assign(w, w * -0.5);
  Parameters parameters(g, Device::cpu());
  Feeds feeds = make_feeds(g, 4);
  parameters.set("w", Tensor::from(f32, {128, 128}, feeds.at("w")));
  Program program(g, {}, &parameters);
  EXPECT_NE(program.plan_text().find("pack_weights"), std::string::npos);
  for (int run = 0; run < 3; ++run) {
    const Tensors got = program.run(to_tensors(g, feeds));
    expect_close("h", got.at("h").to_doubles(), evaluate_graph(g, feeds).at("h"), 1e-5);
    for (double& value : feeds.at("w")) value *= -0.5;
    expect_close("w", parameters.get("w").to_doubles(), feeds.at("w"), 1e-6);
  }
}

TEST(PackedWeights, OfATrainedRecurrenceKeepItsGradients) {
  SKIP_WITHOUT_ORDER(f32);
  LstmSize size{.steps = 6, .batch = 8, .inputs = 64, .hidden = 128};
  for (const bool reverse : {false, true}) {
    size.reverse = reverse;
    Graph g;
    build_lstm(g, size);
    Feeds feeds = make_feeds(g, 3);
    for (const char* name : {"w", "u"}) {
      for (double& value : feeds.at(name)) value = rounded({f32, {1}}, {value * 0.05})[0];
    }
    Program program(g);
    EXPECT_NE(program.plan_text().find("pack_weights"), std::string::npos);
    const Tensors got = program.run(to_tensors(g, feeds));
    for (const auto& [name, values] : evaluate_graph(g, feeds)) {
      expect_close(name, got.at(name).to_doubles(), values, 1e-5);
    }
  }
}

TEST(PackedWeights, AreBoundToOtherLengthsAndBatches) {
  SKIP_WITHOUT_ORDER(f32);
  Graph first;
  build(first, {f32, 8, 128, 128, true});
  Program program(first);
  for (const std::int64_t rows : {3, 16, 100}) {  // of 3 rows there is no packed product
    Graph other;
    build(other, {f32, rows, 128, 128, true});
    Program bound = program.bind(other);
    EXPECT_EQ(bound.report().kernels_compiled, 0);
    EXPECT_EQ(bound.plan_text().find("pack_weights") != std::string::npos, rows > 4);
    const Feeds feeds = make_feeds(other, 7);
    expect_close("ys", bound.run(to_tensors(other, feeds)).at("ys").to_doubles(), evaluate_graph(other, feeds).at("ys"),
                 1e-5);
  }
}

TEST(PackedWeights, LiveAsLongAsTheirLoop) {
  SKIP_WITHOUT_ORDER(f32);
  // Four loops one after the other, each with weights of its own: no two packs are needed at once.
  Graph g;
  Value h = g.input("h0", f32, {8, 256});
  for (int i = 0; i < 4; ++i) {
    const Value w = g.input("w" + std::to_string(i), f32, {256, 256}), xs = full(g, {6, 8, 256}, 0.5, f32);
    h = scan({h}, {xs}, [&](const Values& carry, const Values& element) {
          return step({tanh(matmul(carry[0], w, false, true) * 0.01 + element[0])}, {});
        }).carries[0];
  }
  g.fetch("h", h);
  Program program(g);
  const std::int64_t packed = 4 * packed_order(f32, 8, 256, 256).elements;
  EXPECT_LT(program.report().arena_bytes, packed + 100'000) << program.plan_text();
  EXPECT_LE(program.report().arena_bytes, program.report().peak_live_bytes * 11 / 10);
}

TEST(PackedWeights, ArePrintedAndParsed) {
  SKIP_WITHOUT_ORDER(f32);
  Graph g;
  build(g, {f32, 64, 128, 128, true});
  PassNotes notes;
  pack_weights(g, notes);
  const std::string text = to_text(g);
  EXPECT_NE(text.find("pack_weights("), std::string::npos) << text;
  EXPECT_NE(text.find("matmul_packed("), std::string::npos) << text;
  const auto parsed = parse_graph(text);
  EXPECT_EQ(to_text(*parsed), text);
  Program program(*parsed);
  const Feeds feeds = make_feeds(g, 9);
  expect_close("ys", program.run(to_tensors(g, feeds)).at("ys").to_doubles(), evaluate_graph(g, feeds).at("ys"), 1e-5);
}

TEST(PackedWeights, AreRefusedWhereTheyDoNotFit) {
  SKIP_WITHOUT_ORDER(f32);
  const auto expect_error = [](ErrorKind kind, const std::string& text, const std::function<void()>& run) {
    try {
      run();
      ADD_FAILURE() << "no error; expected one with '" << text << "'";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  Graph g;
  const Value b = g.input("b", f32, {128, 130}), a = g.input("a", f32, {8, 128}), row = g.input("row", f32, {128}),
              few = g.input("few", f32, {100}), half = g.input("half", bf16, {20000}),
              ids = g.input("ids", i32, {4, 4});
  const Attrs pack{{"rows", std::int64_t{8}}, {"elements", std::int64_t{16640}}};
  const Attrs read{{"rows", std::int64_t{8}}, {"columns", std::int64_t{130}}};
  expect_error(ErrorKind::dtype, "b is i32; it takes floats", [&] { call("pack_weights", {ids}, pack); });
  expect_error(ErrorKind::shape, "its rank must be 2", [&] { call("pack_weights", {row}, pack); });
  expect_error(ErrorKind::argument, "elements is 5; b has 16640", [&] {
    call("pack_weights", {b}, {{"rows", std::int64_t{8}}, {"elements", std::int64_t{5}}});
  });
  expect_error(ErrorKind::argument, "rows is 0", [&] {
    call("pack_weights", {b}, {{"rows", std::int64_t{0}}, {"elements", std::int64_t{16640}}});
  });
  expect_error(ErrorKind::dtype, "packed is bf16", [&] { call("matmul_packed", {a, half}, read); });
  expect_error(ErrorKind::shape, "it must hold a matrix of 128 x 130", [&] { call("matmul_packed", {a, few}, read); });
  // Room for the elements, but not for the padding: only this machine's kernels know.
  g.fetch("y", call("matmul_packed", {a, call("pack_weights", {b}, pack)}, read));
  expect_error(ErrorKind::unsupported, "elements, ", [&] { Program program(g); });
}

}  // namespace
}  // namespace paoding::testing_program
