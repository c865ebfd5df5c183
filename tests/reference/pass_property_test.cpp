// SPDX-License-Identifier: Apache-2.0
// Passes change no value: random graphs and whole recurrent models with their gradients, each pass alone and all of
// them in a row.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "tests/support/pass_check.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;
using PassFunction = void (*)(Graph&, PassNotes&);

// Every pass of the pipeline, each once.
std::vector<PassFunction> every_pass() {
  std::vector<PassFunction> passes;
  for (const Pass& pass : pipeline()) {
    if (std::ranges::find(passes, pass.run) == passes.end()) passes.push_back(pass.run);
  }
  return passes;
}

// Passes that read and write ordinary nodes only, so that they may run repeatedly and in any order.
const std::vector<PassFunction> kRewriting = {merge_duplicates, simplify_views, split_products,
                                              sum_gradients,    push_slices,    sum_over_time,
                                              sink_products,    merge_products, drop_unused};

std::vector<PassFunction> whole_pipeline() {
  std::vector<PassFunction> passes;
  for (const Pass& pass : pipeline()) passes.push_back(pass.run);
  return passes;
}

// ---- random graphs ----

class RandomGraph {
 public:
  RandomGraph(Graph& graph, unsigned seed) : g_(graph), random_(seed) {
    for (const Shape& shape : {Shape{4, 6}, Shape{6}, Shape{}, Shape{2, 3, 4}, Shape{1, 6}, Shape{4, 1}}) {
      values_.push_back(g_.input("x" + std::to_string(values_.size()), f32, shape));
    }
    while (g_.size() < 40) values_.push_back(make());
    const Value a = values_[values_.size() - 1], b = pick(), c = pick();
    g_.fetch("a", a);
    g_.fetch("b", b);
    const Values d = gradients(sum(a) + sum(b * 0.5), {values_[0], values_[3], c});
    g_.fetch("da", d[0]);
    g_.fetch("db", d[1]);
    g_.fetch("dc", d[2]);
  }

 private:
  std::int64_t below(std::int64_t bound) { return static_cast<std::int64_t>(random_() % static_cast<unsigned>(bound)); }
  Value pick() { return values_[static_cast<std::size_t>(below(static_cast<std::int64_t>(values_.size())))]; }
  Value pick_with_axes() {
    while (true) {
      if (const Value v = pick(); v.shape().rank() > 0) return v;
    }
  }

  Value make() {
    const Value a = pick_with_axes();
    const int rank = a.shape().rank(), axis = static_cast<int>(below(rank));
    const std::int64_t extent = a.shape()[axis];
    switch (below(12)) {
      case 0: {
        const std::int64_t start = below(extent + 1);
        return slice(a, axis, start, start + below(extent - start + 1));
      }
      case 1: {
        const std::int64_t cut = below(extent + 1);
        return concat(std::array{slice(a, axis, 0, cut), slice(a, axis, cut, extent)}, axis);
      }
      case 2: {
        if (a.shape().elements() > 200) return tanh(a);
        Ints before(static_cast<std::size_t>(rank), 0), after = before;
        before[static_cast<std::size_t>(axis)] = below(3);
        after[static_cast<std::size_t>(axis)] = below(2);
        return pad(a, before, after);
      }
      case 3: return reshape(a, below(2) == 0 ? Shape{a.shape().elements()} : a.shape().with_inserted(axis, 1));
      case 4: return rank < 4 && a.shape().elements() < 100 ? expand(a, a.shape().with_inserted(0, 2)) : tanh(a);
      case 5: return sum(a, Ints{axis}, below(2) == 0);
      case 6: return combine(a, pick());
      case 7: return combine(a, pick());
      case 8: return tanh(a) * (below(2) == 0 ? 0.5 : 0.0);
      case 9: {
        const std::int64_t cut = below(extent + 1);
        Ints none(static_cast<std::size_t>(rank), 0), before = none, after = none;
        before[static_cast<std::size_t>(axis)] = cut;
        after[static_cast<std::size_t>(axis)] = extent - cut;
        return pad(slice(a, axis, 0, cut), none, after) + pad(slice(tanh(a), axis, cut, extent), before, none);
      }
      case 10: {
        const bool first = below(2) == 0;
        return rank >= 2 ? tanh(matmul(a, a, first, !first)) : exp(tanh(a));
      }
      default: return concat(std::array{a, tanh(a), a}, axis);
    }
  }

  Value combine(const Value& a, const Value& b) {
    Shape joint;
    if (!broadcast(a.shape(), b.shape(), &joint) || joint.elements() > 500) return tanh(a);
    return below(2) == 0 ? a + b : add_n(std::array{a, b, a});
  }

  Graph& g_;
  std::mt19937 random_;
  Values values_;
};

class RandomGraphs : public testing::TestWithParam<unsigned> {};

TEST_P(RandomGraphs, KeepTheirValues) {
  const auto check = [](std::vector<PassFunction> passes) {
    Graph g;
    RandomGraph(g, GetParam());
    run_and_compare(g, passes);
  };
  for (const PassFunction pass : every_pass()) check({pass});
  std::vector<PassFunction> all = every_pass();
  all.insert(all.end(), kRewriting.begin(), kRewriting.end());
  all.insert(all.end(), kRewriting.rbegin(), kRewriting.rend());
  check(all);
}

TEST_P(RandomGraphs, KeepTheirValuesThroughThePipeline) {
  Graph g;
  RandomGraph(g, GetParam());
  run_and_compare(g, whole_pipeline());
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraphs, testing::Range(0u, 60u));

// ---- models ----

// A two-layer LSTM, then a decoder with input feeding and attention of one head, trained on a squared error.
void build_seq2seq(Graph& g, bool reverse) {
  constexpr std::int64_t T = 4, S = 5, B = 2, I = 3, H = 4;
  const Value x = g.input("x", f32, {S, B, I}), y = g.input("y", f32, {T, B, I}), zero = full(g, {B, H}, 0);
  const auto weights = [&](std::string name, std::int64_t in) {
    return std::array{g.parameter(name + "_w", f32, {in, 4 * H}), g.parameter(name + "_u", f32, {H, 4 * H}),
                      g.parameter(name + "_b", f32, {4 * H})};
  };
  const auto w1 = weights("enc1", I), w2 = weights("enc2", H), w3 = weights("dec", I + H);
  const Value out = g.parameter("out", f32, {2 * H, H}), head = g.parameter("head", f32, {H, I});
  const auto layer = [&](const Value& in, const auto& w) {
    return scan(
        {zero, zero}, {in},
        [&](const Values& carry, const Values& e) {
          const auto [h, c] = lstm_cell(e[0], carry[0], carry[1], w[0], w[1], w[2]);
          return step({h, c}, {h});
        },
        reverse);
  };
  const StepResult first = layer(x, w1), second = layer(first.outputs[0], w2);
  const Value memory = second.outputs[0];  // [S, B, H]
  const Values start{second.carries[0], second.carries[1], zero};
  const StepResult decoded = scan(start, {y}, [&](const Values& carry, const Values& e) {
    const Value in = concat(std::array{e[0], carry[2]}, 1);
    const auto [h, c] = lstm_cell(in, carry[0], carry[1], w3[0], w3[1], w3[2]);
    const Value scores = exp(sum(memory * h, Ints{-1}, true));  // [S, B, 1]
    const Value blend = sum(memory * (scores / sum(scores, Ints{0}, true)), Ints{0});
    const Value fed = tanh(matmul(concat(std::array{h, blend}, 1), out));
    return step({h, c, fed}, {fed});
  });
  const Value error = matmul(decoded.outputs[0], head) - y;
  const Value loss = sum(error * error);
  Values all;
  for (NodeId id : g.parameters()) all.push_back(g.value({id, 0}));
  const Values d = gradients(std::array{loss}, all);
  g.fetch("loss", loss);
  for (std::size_t i = 0; i < d.size(); ++i) g.fetch("d" + std::to_string(i), d[i]);
}

TEST(Models, KeepLossAndGradientsThroughEveryPass) {
  for (const bool reverse : {false, true}) {
    for (const PassFunction pass : every_pass()) {
      Graph g;
      build_seq2seq(g, reverse);
      run_and_compare(g, {pass});
    }
    Graph g;
    build_seq2seq(g, reverse);
    std::vector<PassFunction> all = kRewriting;
    all.insert(all.end(), kRewriting.begin(), kRewriting.end());
    run_and_compare(g, all);
  }
}

TEST(Models, KeepLossAndGradientsThroughThePipeline) {
  for (const bool reverse : {false, true}) {
    for (std::size_t count = 1; count <= pipeline().size(); ++count) {
      Graph g;
      build_seq2seq(g, reverse);
      std::vector<PassFunction> passes = whole_pipeline();
      passes.resize(count);
      SCOPED_TRACE(std::string("up to ") + pipeline()[count - 1].name);
      run_and_compare(g, passes);
    }
  }
}

TEST(Models, AreNotChangedBySecondRuns) {
  Graph g;
  build_seq2seq(g, false);
  for (int round = 0; round < 3; ++round) run_and_compare(g, kRewriting);
  const NodeId size = g.size();
  run_and_compare(g, kRewriting);
  EXPECT_EQ(g.size(), size);
}

}  // namespace
}  // namespace paoding
