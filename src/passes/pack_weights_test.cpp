// SPDX-License-Identifier: Apache-2.0
// Which weights pack_weights packs and where, which it declines and why. Which orders oneDNN has depends on the
// machine: where it has none, the pass has nothing to do, and a test of its own says so.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "ops/matmul/matmul_packed.h"
#include "ops/scan/scan.h"
#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "paoding/program.h"
#include "runtime/compile.h"
#include "runtime/target.h"
#include "tests/support/pass_check.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kPackedRows = 5, kWidth = 384;

bool has_order(DType dtype) { return !packed_order(dtype, kPackedRows, kWidth, kWidth).order.empty(); }

#define SKIP_WITHOUT_ORDER(dtype) \
  if (!has_order(dtype)) GTEST_SKIP() << "NOT CHECKED: oneDNN reads plain weights on this machine"

const Node& scan_of(const Graph& graph) { return only(graph, "scan"); }
const Graph& packed_body_of(const Graph& graph) { return *scan_of(graph).bodies[0]; }

// h = tanh(h * w) `length` times.
Value recur(const Value& h0, const Value& w, std::int64_t length, bool transpose = false) {
  const Value xs =
      full(h0.graph(), Shape{length}.with_inserted(1, kPackedRows).with_inserted(2, kWidth), 1.0, h0.dtype());
  return scan({h0}, {xs},
              [&](const Values& carry, const Values& element) {
                const Value h = tanh(matmul(carry[0], w, false, transpose) * 0.01 + element[0]);
                return step({h}, {});
              })
      .carries[0];
}

struct PackedRecurrence {
  Graph graph;
  Value h0, w;
  explicit PackedRecurrence(DType dtype = f32, const Shape& weights = {kWidth, kWidth})
      : h0(graph.input("h0", dtype, {kPackedRows, kWidth})), w(graph.input("w", dtype, weights)) {}
};

bool is_noted(const std::vector<std::string>& notes, std::string_view text) {
  return std::any_of(notes.begin(), notes.end(),
                     [&](const std::string& note) { return note.find(text) != std::string::npos; });
}

TEST(PackWeights, PacksInFrontOfTheLoopWhatItsProductsRead) {
  for (const DType dtype : {f32, bf16}) {
    for (const bool transpose : {false, true}) {
      SKIP_WITHOUT_ORDER(dtype);
      PackedRecurrence r(dtype);
      r.graph.fetch("h", recur(r.h0, r.w, 6, transpose));
      const auto notes = run_and_compare(r.graph, {pack_weights});
      const Node& packed = only(r.graph, "pack_weights");
      EXPECT_EQ(packed.attrs.get_bool("transpose"), transpose);
      EXPECT_EQ(packed.attrs.get_int("rows"), kPackedRows);
      EXPECT_EQ(count_here(packed_body_of(r.graph), "matmul"), 0);
      EXPECT_EQ(count_here(packed_body_of(r.graph), "matmul_packed"), 1);
      // The plain weights no longer go in.
      for (const Ref& ref : scan_of(r.graph).inputs) EXPECT_FALSE(ref == r.w.ref());
      EXPECT_TRUE(is_noted(notes, "read 6 times"));
    }
  }
}

TEST(PackWeights, PacksViewsThatTheBodyTakes) {
  SKIP_WITHOUT_ORDER(f32);
  PackedRecurrence r(f32, {kWidth, 3 * kWidth});
  const Value xs = full(r.graph, {4, kPackedRows, kWidth}, 1.0, f32);
  const StepResult made = scan({r.h0}, {xs}, [&](const Values& carry, const Values& element) {
    const Value left = slice(r.w, 1, 0, kWidth), right = slice(r.w, 1, kWidth, 2 * kWidth);
    return step({tanh(matmul(carry[0], left) * 0.01 + matmul(carry[0], right) * 0.02 + element[0])}, {});
  });
  r.graph.fetch("h", made.carries[0]);
  run_and_compare(r.graph, {pack_weights});
  EXPECT_EQ(count_here(r.graph, "pack_weights"), 2);
  EXPECT_EQ(count_here(packed_body_of(r.graph), "slice"), 0);
  EXPECT_EQ(count_here(packed_body_of(r.graph), "matmul_packed"), 2);
}

TEST(PackWeights, PacksOnceForProductsThatWantTheSameOrder) {
  SKIP_WITHOUT_ORDER(f32);
  PackedRecurrence r;
  const Value once = recur(r.h0, r.w, 2), again = recur(once, r.w, 2);  // four in all
  r.graph.fetch("h", again);
  run_and_compare(r.graph, {pack_weights});
  EXPECT_EQ(count_here(r.graph, "pack_weights"), 1);
}

TEST(PackWeights, PacksWhatManyProductsOutsideOfLoopsRead) {
  SKIP_WITHOUT_ORDER(f32);
  for (const int count : {3, 4}) {
    PackedRecurrence r;
    Value h = r.h0;
    for (int i = 0; i < count; ++i) h = tanh(matmul(h, r.w) * 0.01);
    r.graph.fetch("h", h);
    const auto notes = run_and_compare(r.graph, {pack_weights});
    EXPECT_EQ(count_here(r.graph, "pack_weights"), count == 4 ? 1 : 0);
    EXPECT_EQ(count_here(r.graph, "matmul_packed"), count == 4 ? 4 : 0);
    EXPECT_TRUE(is_noted(notes, count == 4 ? "read 4 times" : "read 3 times, a pack pays from 4"));
  }
}

TEST(PackWeights, PacksInFrontOfTheOutermostLoopThatLeavesThem) {
  SKIP_WITHOUT_ORDER(f32);
  PackedRecurrence r;
  const Value xs = full(r.graph, {3, kPackedRows, kWidth}, 1.0, f32);
  const StepResult made = scan({r.h0}, {xs}, [&](const Values& carry, const Values& element) {
    return step({recur(carry[0] + element[0], r.w, 2)}, {});
  });
  r.graph.fetch("h", made.carries[0]);
  run_and_compare(r.graph, {pack_weights});
  EXPECT_EQ(count_here(r.graph, "pack_weights"), 1);
  const Graph& outer = packed_body_of(r.graph);
  EXPECT_EQ(count_here(outer, "pack_weights"), 0);
  EXPECT_EQ(count_here(packed_body_of(outer), "matmul_packed"), 1);
}

TEST(PackWeights, StaysInsideALoopThatChangesTheWeights) {
  SKIP_WITHOUT_ORDER(f32);
  PackedRecurrence r;
  const Value ws = r.graph.input("ws", f32, {2, kWidth, kWidth});
  const StepResult made = scan({r.h0}, {ws}, [&](const Values& carry, const Values& element) {
    return step({recur(carry[0], element[0], 4)}, {});
  });
  r.graph.fetch("h", made.carries[0]);
  run_and_compare(r.graph, {pack_weights});
  EXPECT_EQ(count_here(r.graph, "pack_weights"), 0);
  EXPECT_EQ(count_here(packed_body_of(r.graph), "pack_weights"), 1);
}

TEST(PackWeights, PacksBothDirectionsOfARecurrenceAndItsGradient) {
  SKIP_WITHOUT_ORDER(f32);
  PackedRecurrence r;
  const Value h = recur(r.h0, r.w, 4);
  r.graph.fetch("h", h);
  const Value loss = sum(h * h);
  r.graph.fetch("dh0", gradients(std::array{loss}, std::array{r.h0})[0]);
  run_and_compare(r.graph, {merge_duplicates, simplify_views, sink_products, drop_unused, pack_weights});
  int plain = 0, transposed = 0;
  for (NodeId id = 0; id < r.graph.size(); ++id) {
    if (r.graph.node(id).op->name != "pack_weights") continue;
    ++(r.graph.node(id).attrs.get_bool("transpose") ? transposed : plain);
  }
  EXPECT_EQ(plain, 1);
  EXPECT_EQ(transposed, 1);
}

TEST(PackWeights, DeclinesWithAReason) {
  struct Declined {
    const char* name;
    DType dtype;
    std::int64_t width, rows, length;
    const char* why;
  };
  SKIP_WITHOUT_ORDER(f32);
  for (const Declined& p :
       {Declined{"few turns", f32, kWidth, kPackedRows, 3, "read 3 times, a pack pays from 4"},
        Declined{"few turns in bf16", bf16, kWidth, kPackedRows, 5, "read 5 times, a pack pays from 6"},
        Declined{"small", f32, 64, kPackedRows, 20, "little would be saved"},
        Declined{"short rows", f32, 160, kPackedRows, 20, "are read in place as fast"},
        Declined{"a row", f32, kWidth, 1, 20, "the kernel 'vector' reads them as they are"},
        Declined{"f64", f64, kWidth, kPackedRows, 20, "the kernel 'blocked' reads them as they are"}}) {
    SCOPED_TRACE(p.name);
    if (!has_order(p.dtype) && p.dtype != f64) continue;
    Graph g;
    const Value h0 = g.input("h0", p.dtype, {p.rows, p.width}), w = g.input("w", p.dtype, {p.width, p.width});
    const Value xs = full(g, {p.length, p.rows, p.width}, 1.0, p.dtype);
    g.fetch("h", scan({h0}, {xs}, [&](const Values& carry, const Values& element) {
                   return step({tanh(matmul(carry[0], w) * 0.01 + element[0])}, {});
                 }).carries[0]);
    const auto notes = run_and_compare(g, {pack_weights});
    EXPECT_EQ(count_here(g, "pack_weights"), 0);
    EXPECT_TRUE(is_noted(notes, p.why)) << (notes.empty() ? "no notes" : notes.back());
  }
}

TEST(PackWeights, LeavesWeightsThatALoopCarries) {
  PackedRecurrence r;
  const Value xs = full(r.graph, {8, kPackedRows, kWidth}, 1.0, f32);
  const StepResult made = scan({r.h0, r.w}, {xs}, [&](const Values& carry, const Values& element) {
    return step({tanh(matmul(carry[0], carry[1]) * 0.01 + element[0]), carry[1] * 0.9}, {});
  });
  r.graph.fetch("h", made.carries[0]);
  run_and_compare(r.graph, {pack_weights});
  EXPECT_EQ(count_here(r.graph, "pack_weights"), 0);
  EXPECT_EQ(count_here(packed_body_of(r.graph), "matmul"), 1);
}

// y = x w, with w a parameter.
void build_product(Graph& g, std::int64_t rows = kPackedRows) {
  g.fetch("y", matmul(g.input("x", f32, {rows, kWidth}), g.parameter("w", f32, {kWidth, kWidth})));
}

TEST(PackWeights, PacksParametersWhenTheyChangeWhereAProgramOnlyReadsThem) {
  SKIP_WITHOUT_ORDER(f32);
  const auto packed = [](const Graph& g, Preprocess preprocess, const CompileOptions& options = {}) {
    const CompiledPlan made = compile_plan(g, options, target_of(Device()), preprocess);
    EXPECT_EQ(count_here(*made.graph, "pack_weights"), 0);
    EXPECT_EQ(count_here(*made.graph, "matmul_packed"), made.preprocessed.names.size());
    return made.preprocessed.graph == nullptr ? std::string() : to_text(*made.preprocessed.graph);
  };
  Graph g, larger, huge, writing;
  build_product(g), build_product(larger, 7 * kPackedRows), build_product(huge, 1000), build_product(writing);
  writing.assign(writing.find("w"), writing.find("w") * 2.0);
  EXPECT_TRUE(packed(g, Preprocess::once).find("pack_weights") != std::string::npos);
  if (packed_order(f32, 7 * kPackedRows, kWidth, kWidth) ==
      packed_order(f32, kPackedRows, kWidth, kWidth)) {  // by the threads
    EXPECT_EQ(packed(larger, Preprocess::once), packed(g, Preprocess::once))
        << "programs of one store do not share them";
  }
  CompileOptions without;
  without.disabled_passes = {"preprocess_parameters"};
  EXPECT_EQ(packed(g, Preprocess::once, without), "");
  EXPECT_EQ(packed(g, Preprocess::in_every_run), "");
  EXPECT_EQ(packed(huge, Preprocess::once), "");
  EXPECT_EQ(packed(writing, Preprocess::once), "");
}

TEST(PackWeights, PacksParametersAgainWhenTheyWereSet) {
  Graph g;
  build_product(g);
  Parameters parameters(g);
  Program program(g, {}, &parameters);
  const auto number = [](std::size_t i) { return static_cast<double>(i * 7 % 11) - 5; };
  std::vector<double> x(kPackedRows * kWidth), w(kWidth * kWidth), expected(kPackedRows * kWidth);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = number(i);
  for (const std::size_t shift : {0, 3}) {
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = number(i / 3 + shift);
    for (std::int64_t i = 0; i < kPackedRows * kWidth; ++i) {
      double& sum = expected[static_cast<std::size_t>(i)] = 0;
      for (std::int64_t k = 0; k < kWidth; ++k) {
        sum +=
            x[static_cast<std::size_t>(i / kWidth * kWidth + k)] * w[static_cast<std::size_t>(k * kWidth + i % kWidth)];
      }
    }
    parameters.set("w", Tensor::from(f32, {kWidth, kWidth}, w));
    for (int run = 0; run < 2; ++run) {
      EXPECT_EQ(program.run({{"x", Tensor::from(f32, {kPackedRows, kWidth}, x)}}).at("y").to_doubles(), expected);
    }
  }
}

TEST(PackWeights, DoesNothingForAGpu) {
  PackedRecurrence r;
  r.graph.fetch("h", recur(r.h0, r.w, 20));
  PassNotes notes(std::make_shared<const Target>(named_target("h200")));
  pack_weights(r.graph, notes);
  EXPECT_EQ(count_here(packed_body_of(r.graph), "matmul"), 1);
  EXPECT_TRUE(notes.list().empty());
}

}  // namespace
}  // namespace paoding
