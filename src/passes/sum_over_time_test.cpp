// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "ops/scan/scan.h"
#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "tests/support/pass_check.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::int64_t T = 5, S = 6, B = 2, H = 4;

const std::vector<void (*)(Graph&, PassNotes&)> kOutOfTheLoop = {sum_over_time, sink_products, merge_products};

// The most elements of anything that the only scan of the graph carries or stacks, per step.
std::int64_t largest_result(const Graph& graph) {
  const ScanView view(only(graph, "scan"));
  std::int64_t most = 0;
  for (std::size_t i = 0; i < view.node.types.size(); ++i) {
    const std::int64_t elements = view.node.types[i].shape.elements();
    most = std::max(most, static_cast<int>(i) < view.carries ? elements : elements / view.length);
  }
  return most;
}

TEST(SumOverTime, TakesProductsOfValuesThatRepeatEachOthersAxesOutAsTheirFactors) {
  for (const bool is_reverse : {false, true}) {
    for (const bool starts_at_zero : {false, true}) {
      Graph g;
      const Value x = g.input("x", f32, {T, B, H}), m = g.input("m", f32, {S, B, H});
      const Value start = starts_at_zero ? full(g, {S, B, H}, 0) : g.input("start", f32, {S, B, H});
      const Value scale = g.input("scale", f32, {T, S, B, 1});
      const StepResult r = scan(
          {start, full(g, {B, H}, 0)}, {x, scale},
          [&](const Values& carry, const Values& e) {
            const Value h = tanh(carry[1] + e[0]);
            const Value scores = sum(m * h, Ints{-1}, true);
            const Value both = expand(h, {S, B, H}) * e[1] + scores * h;
            return step({carry[0] + both, h * sum(scores, Ints{0})}, {});
          },
          is_reverse);
      g.fetch("sum", r.carries[0]);
      g.fetch("h", r.carries[1]);
      run_and_compare(g, kOutOfTheLoop);
      EXPECT_EQ(count_here(g, "matmul"), 2);
      EXPECT_LE(largest_result(g), S * B);
    }
  }
}

TEST(SumOverTime, LeavesInTheLoopWhatTheLoopReads) {
  Graph g;
  const Value x = g.input("x", f32, {T, 1, B, H}), y = g.input("y", f32, {T, S, B, 1});
  const Value zero = full(g, {S, B, H}, 0);
  const StepResult r = scan({zero, zero, zero}, {x, y}, [&](const Values& carry, const Values& e) {
    const Value outer = e[0] * e[1];
    // A sum that is read, one of a product that another carry needs, and that carry.
    return step({carry[0] + outer * tanh(carry[0]), carry[1] + outer, tanh(carry[2]) * outer}, {});
  });
  for (std::size_t i = 0; i < 3; ++i) g.fetch("r" + std::to_string(i), r.carries[i]);
  run_and_compare(g, kOutOfTheLoop);
  EXPECT_EQ(ScanView(only(g, "scan")).carries, 2);
  EXPECT_EQ(count_here(g, "matmul"), 1);
}

TEST(SumOverTime, TakesTheGradientOfWhatAttentionReadsOutOfTheLoop) {
  for (const bool is_reverse : {false, true}) {
    Graph g;
    const Value x = g.input("x", f32, {T, B, H}), memory = g.input("memory", f32, {S, B, H});
    const Value is_padding = g.input("is_padding", f32, {S, B, 1});
    const StepResult r = scan(
        {full(g, {B, H}, 0)}, {x},
        [&](const Values& carry, const Values& e) {
          const Value scores = sum(memory * tanh(carry[0] + e[0]), Ints{-1}, true);
          const Value shares = softmax(select(less(is_padding, full(g, {}, 0.0)), scores, full(g, {}, -1e9)), 0);
          return step({sum(memory * shares, Ints{0})}, {});
        },
        is_reverse);
    const Value loss = sum(r.carries[0] * r.carries[0]);
    g.fetch("d_memory", gradients(loss, {memory})[0]);
    std::vector<void (*)(Graph&, PassNotes&)> passes;
    for (const Pass& pass : pipeline()) {
      passes.push_back(pass.run);
      if (std::string_view(pass.name) == "merge_products") break;
    }
    passes.insert(passes.begin(), expand_composed_ops);
    run_and_compare(g, passes);
    EXPECT_EQ(count_here(g, "matmul"), 2);
    for (NodeId id = 0; id < g.size(); ++id) {
      if (g.node(id).op->name != "scan") continue;
      for (const Type& type : g.node(id).types) EXPECT_LE(type.shape.elements(), T * S * B);
    }
  }
}

using Next = std::function<Value(const Value& total, const Value& element)>;

// total = next(total, x) over 5 steps, from `start` or from zeros.
std::vector<std::string> total_of(Graph& g, const Next& next, bool has_prologue = false) {
  const Value xs = g.input("xs", f32, {5, 3, 4});
  const Value start = has_prologue ? g.input("start", f32, {3, 4}) : expand(full(g, {}, 0), {3, 4});
  g.fetch("total", scan({start}, {xs}, [&](const Values& carry, const Values& element) {
                     return step({next(carry[0], element[0])}, {});
                   }).carries[0]);
  return run_and_compare(g, {sum_over_time});
}

TEST(SumOverTime, SumsStackedValuesAfterTheLoop) {
  Graph g;
  total_of(g, [](const Value& total, const Value& x) { return total + tanh(x); });
  const Node& sum = only(g, "sum");
  EXPECT_EQ(sum.attrs.get_ints("axes"), std::vector<std::int64_t>{0});
  EXPECT_EQ(&fetched(g), &sum);  // nothing is added to zeros
  EXPECT_EQ(ScanView(only(g, "scan")).carries, 0);
}

TEST(SumOverTime, AddsWhatTheSumStartsWith) {
  Graph g;
  total_of(
      g, [](const Value& total, const Value& x) { return total + tanh(x); }, true);
  EXPECT_EQ(count_here(g, "sum"), 1);
  EXPECT_EQ(fetched(g).op->name, "add_n");
}

TEST(SumOverTime, TakesEveryAddendOfASumOfMany) {
  Graph g;
  total_of(g, [](const Value& total, const Value& x) { return add_n(std::array{tanh(x), total, x * 2.0}); });
  EXPECT_EQ(count_here(g, "sum"), 2);
}

TEST(SumOverTime, LeavesWhatIsNoSumOfTheCarry) {
  const Next others[] = {
      [](const Value& total, const Value& x) { return total * x; },
      [](const Value& total, const Value&) { return total + total; },              // twice the carry
      [](const Value& total, const Value& x) { return total + tanh(total + x); },  // read elsewhere too
      [](const Value& total, const Value&) { return add_n(std::array{total}); },   // nothing is added
  };
  for (const Next& next : others) {
    Graph g;
    total_of(g, next);
    EXPECT_EQ(count_here(g, "sum"), 0);
    EXPECT_EQ(ScanView(only(g, "scan")).carries, 1);
  }
}

// Of a table for each step nothing is left, nor of a table that is carried.
TEST(SumOverTime, TakesTheGradientsOfTablesOut) {
  for (const bool is_reverse : {false, true}) {
    for (const bool has_start : {false, true}) {
      Graph g;
      constexpr std::int64_t kRows = 700;
      const Value ids = iota(g, {T, B}, 0, i64) + iota(g, {T, B}, 1, i64), xs = g.input("xs", f32, {T, B, H});
      const Value zeros = full(g, {kRows, H}, 0);
      const StepResult made = scan(
          {has_start ? g.input("start", f32, {kRows, H}) : zeros, zeros}, {ids, xs},
          [&](const Values& carry, const Values& each) {
            const Value rows = tanh(each[1]);
            const Value padded =
                call("embedding_grad", {each[0], rows}, {{"padding", std::int64_t{2}}, {"extent", kRows}});
            return step({carry[0] + scatter_add(each[0], rows, -2, kRows), carry[1] + padded}, {});
          },
          is_reverse);
      g.fetch("plain", made.carries[0]);
      g.fetch("padded", made.carries[1]);
      run_and_compare(g, {sum_over_time});
      EXPECT_EQ(count_here(g, "scatter_add"), 1);
      EXPECT_EQ(count_here(g, "embedding_grad"), 1);
      EXPECT_LE(largest_result(g), B * H);
    }
  }
}

// Rows that stand along another axis have places that do not follow each other when they are stacked.
TEST(SumOverTime, StacksWhatIsAddedAlongAnotherAxis) {
  Graph g;
  const Value ids = iota(g, {T, B}, 0, i64) + iota(g, {T, B}, 1, i64), xs = g.input("xs", f32, {T, H, B});
  const StepResult made = scan({full(g, {H, 7}, 0)}, {ids, xs}, [](const Values& carry, const Values& each) {
    return step({carry[0] + scatter_add(each[0], tanh(each[1]), 1, 7)}, {});
  });
  g.fetch("sum", made.carries[0]);
  run_and_compare(g, {sum_over_time});
  EXPECT_EQ(count_here(g, "sum"), 1);
}

TEST(SumOverTime, TakesManySumsOfOneLoop) {
  constexpr int kSums = 30;
  Graph g;
  const Value xs = g.input("xs", f32, {5, 4});
  Values start;
  for (int i = 0; i < kSums; ++i) start.push_back(expand(full(g, {}, 0), {4}));
  const StepResult made = scan(start, {xs}, [](const Values& carry, const Values& element) {
    Values next;
    for (const Value& each : carry) next.push_back(each + tanh(element[0] * static_cast<double>(next.size() + 2)));
    return step(next, {});
  });
  for (int i = 0; i < kSums; ++i) g.fetch("s" + std::to_string(i), made.carries[static_cast<std::size_t>(i)]);
  run_and_compare(g, {sum_over_time});
  EXPECT_EQ(count_here(g, "sum"), kSums);
}

}  // namespace
}  // namespace paoding
