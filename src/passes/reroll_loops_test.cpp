// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "paoding/ops.h"
#include "tests/support/pass_check.h"
#include "tests/support/random_graph.h"
#include "tests/support/unrolled.h"

namespace paoding {
namespace {

using Step = std::function<StepResult(const Values& carry, const Values& element)>;

// The same loop as scan() builds, unrolled: elements are slices along `axis` of the sequences.
StepResult unrolled_loop(const Values& initial, const Values& sequences, std::int64_t length, const Step& body,
                         int axis = 0, bool is_reverse = false) {
  Values carries = initial;
  std::vector<Values> outputs;
  for (std::int64_t turn = 0; turn < length; ++turn) {
    const std::int64_t t = is_reverse ? length - 1 - turn : turn;
    Values elements;
    for (const Value& sequence : sequences) {
      elements.push_back(reshape(slice(sequence, axis, t, t + 1), sequence.shape().with_removed(axis)));
    }
    StepResult made = body(carries, elements);
    carries = made.carries;
    for (std::size_t k = 0; k < made.outputs.size(); ++k) {
      if (outputs.size() <= k) outputs.emplace_back();
      outputs[k].insert(is_reverse ? outputs[k].begin() : outputs[k].end(), made.outputs[k]);
    }
  }
  StepResult result{carries, {}};
  for (const Values& each : outputs) result.outputs.push_back(stack(each, axis));
  return result;
}

Step cell(const Value& w, const Value& u, const Value& b) {
  return [=](const Values& carry, const Values& element) {
    const Value h = tanh(matmul(element[0], w) + matmul(carry[0], u) + b);
    return step({h}, {h});
  };
}

struct Cell {
  explicit Cell(Graph& g) : w(g.input("w", f32, {3, 4})), u(g.input("u", f32, {4, 4})), b(g.input("b", f32, {4})) {}
  Value w, u, b;
};

TEST(RerollLoops, MakesOneScanOfAnUnrolledCell) {
  Graph g;
  const Cell c(g);
  const StepResult made =
      unrolled_loop({g.input("h0", f32, {2, 4})}, {g.input("x", f32, {9, 2, 3})}, 9, cell(c.w, c.u, c.b));
  g.fetch("hs", made.outputs[0]), g.fetch("h", made.carries[0]);
  const auto notes = run_and_compare(g, {reroll_loops});
  const Node& scan = only(g, "scan");
  EXPECT_EQ(scan.attrs.get_int("length"), 9);
  EXPECT_EQ(scan.attrs.get_int("carries"), 1);
  EXPECT_EQ(scan.attrs.get_int("sequences"), 1);
  EXPECT_EQ(count_here(g, "tanh"), 0);
  EXPECT_EQ(count_here(g, "concat"), 0);
  ASSERT_FALSE(notes.empty());
  EXPECT_EQ(notes.back(), "9 turns of 5 nodes are one loop, which carries 1 value");
}

TEST(RerollLoops, TakesElementsAndResultsAlongAnyAxis) {
  Graph g;
  const Cell c(g);
  const StepResult made =
      unrolled_loop({g.input("h0", f32, {2, 4})}, {g.input("x", f32, {2, 6, 3})}, 6, cell(c.w, c.u, c.b), 1);
  g.fetch("hs", made.outputs[0]);
  run_and_compare(g, {reroll_loops});
  EXPECT_EQ(only(g, "scan").attrs.get_int("length"), 6);
  EXPECT_EQ(count_here(g, "concat"), 0);
}

TEST(RerollLoops, RunsBackwardsWhereElementsDo) {
  Graph g;
  const Cell c(g);
  const StepResult made =
      unrolled_loop({g.input("h0", f32, {2, 4})}, {g.input("x", f32, {6, 2, 3})}, 6, cell(c.w, c.u, c.b), 0, true);
  g.fetch("hs", made.outputs[0]), g.fetch("h", made.carries[0]);
  run_and_compare(g, {reroll_loops});
  EXPECT_TRUE(only(g, "scan").attrs.get_bool("reverse"));
  EXPECT_EQ(count_here(g, "concat"), 0);
}

TEST(RerollLoops, SeesTheTurnsWhereAllElementsAreTakenFirst) {
  Graph g;
  const Cell c(g);
  const Value x = g.input("x", f32, {7, 2, 3});
  const Values parts = split(x, 7, 0);
  Value h = g.input("h0", f32, {2, 4});
  for (const Value& part : parts) h = cell(c.w, c.u, c.b)({h}, {reshape(part, Shape{2, 3})}).carries[0];
  g.fetch("h", h);
  run_and_compare(g, {reroll_loops});
  EXPECT_EQ(only(g, "scan").attrs.get_int("length"), 7);
}

TEST(RerollLoops, TakesTheFirstTurnInThoughItMakesWhatAllRead) {
  Graph g;
  const Value w = g.input("w", f32, {4, 3}), u = g.input("u", f32, {4, 4}), scale = g.input("scale", f32, {4, 4});
  const StepResult made = unrolled_loop(
      {g.input("h0", f32, {2, 4})}, {g.input("x", f32, {6, 2, 3})}, 6, [&](const Values& carry, const Values& in) {
        const Value h =
            tanh(matmul(in[0], transpose(w, std::array<std::int64_t, 2>{1, 0})) + matmul(carry[0], exp(u) * scale));
        return step({h}, {h});
      });
  g.fetch("hs", made.outputs[0]);
  run_and_compare(g, {reroll_loops});
  EXPECT_EQ(only(g, "scan").attrs.get_int("length"), 6);
  EXPECT_EQ(count_here(g, "exp"), 1);
}

TEST(RerollLoops, MakesALoopOfEachLayer) {
  Graph g;
  const Cell c(g);
  const Value v = g.input("v", f32, {4, 4});
  const StepResult lower =
      unrolled_loop({g.input("h0", f32, {2, 4})}, {g.input("x", f32, {8, 2, 3})}, 8, cell(c.w, c.u, c.b));
  const StepResult upper = unrolled_loop({g.input("k0", f32, {2, 4})}, {lower.outputs[0]}, 8, cell(v, c.u, c.b));
  g.fetch("hs", upper.outputs[0]);
  run_and_compare(g, {reroll_loops});
  EXPECT_EQ(count_here(g, "scan"), 2);
}

TEST(RerollLoops, MakesLoopsInALoop) {
  Graph g;
  const Cell c(g);
  const Value v = g.input("v", f32, {4, 4}), x = g.input("x", f32, {5, 6, 2, 3});
  const StepResult made =
      unrolled_loop({g.input("h0", f32, {2, 4})}, {x}, 5, [&](const Values& carry, const Values& in) {
        const StepResult inner = unrolled_loop({tanh(matmul(carry[0], v))}, {in[0]}, 6, cell(c.w, c.u, c.b));
        return step({inner.carries[0]}, {inner.carries[0]});
      });
  g.fetch("hs", made.outputs[0]);
  run_and_compare(g, {reroll_loops});
  const Node& outer = only(g, "scan");
  EXPECT_EQ(outer.attrs.get_int("length"), 5);
  EXPECT_EQ(only(*outer.bodies[0], "scan").attrs.get_int("length"), 6);
}

TEST(RerollLoops, LeavesEqualLayersWithWeightsOfTheirOwn) {
  Graph g;
  Value h = g.input("x", f32, {2, 4});
  for (int layer = 0; layer < 12; ++layer) h = tanh(matmul(h, g.parameter("w" + std::to_string(layer), f32, {4, 4})));
  g.fetch("h", h);
  const NodeId size = g.size();
  run_and_compare(g, {reroll_loops});
  EXPECT_EQ(count_here(g, "scan"), 0);
  EXPECT_EQ(g.size(), size);
}

TEST(RerollLoops, LeavesATurnThatDiffersOut) {
  for (const int odd : {0, 1, 5, 9}) {
    Graph g;
    const Cell c(g);
    int turn = 0;
    const StepResult made = unrolled_loop(
        {g.input("h0", f32, {2, 4})}, {g.input("x", f32, {10, 2, 3})}, 10, [&](const Values& carry, const Values& in) {
          const Value sum = matmul(in[0], c.w) + matmul(carry[0], c.u), h = turn++ == odd ? exp(-sum) : tanh(sum);
          return step({h}, {h});
        });
    g.fetch("hs", made.outputs[0]), g.fetch("h", made.carries[0]);
    run_and_compare(g, {reroll_loops});
    EXPECT_EQ(count_here(g, "exp"), 1) << odd;
    EXPECT_GE(count_here(g, "scan"), 1) << odd;
  }
}

TEST(RerollLoops, KeepsNoValuesOfTurnsThatNobodyReads) {
  Graph g;
  const Value w = g.input("w", f32, {64, 64});
  Value h = g.input("h0", f32, {256, 64});
  for (int turn = 0; turn < 24; ++turn) {
    h = tanh(matmul(h, w));
    if (turn % 4 == 3) g.fetch("h" + std::to_string(turn), h);
  }
  run_and_compare(g, {reroll_loops});
  const Node& scan = only(g, "scan");  // four layers a turn
  EXPECT_EQ(scan.attrs.get_int("length"), 6);
  EXPECT_EQ(count_here(*scan.bodies[0], "matmul"), 4);
}

TEST(RerollLoops, GivesTheSameWhereAnOperandIsSwappedOrAnIndexSkips) {
  for (int kind = 0; kind < 4; ++kind) {
    Graph g;
    const Cell c(g);
    const Value x = g.input("x", f32, {12, 2, 3}), v = g.input("v", f32, {4, 4});
    Value h = g.input("h0", f32, {2, 4}), before = h;
    Values all;
    for (int t = 0; t < 9; ++t) {
      const int place = kind == 0 && t == 4 ? 11 : kind == 1 ? t * t % 12 : t;
      const Value element = reshape(slice(x, 0, place, place + 1), Shape{2, 3});
      const Value next =
          tanh(matmul(element, c.w) + matmul(kind == 2 && t == 5 ? before : h, kind == 3 && t == 6 ? v : c.u));
      before = h, h = next;
      all.push_back(h);
    }
    g.fetch("hs", stack(all)), g.fetch("third", all[2]);
    run_and_compare(g, {reroll_loops});
  }
}

TEST(RerollLoops, MakesLoopsOfGradientsToo) {
  Graph g;
  const Cell c(g);
  const StepResult made =
      unrolled_loop({g.input("h0", f32, {2, 4})}, {g.input("x", f32, {8, 2, 3})}, 8, cell(c.w, c.u, c.b));
  const Value loss = sum(square(made.outputs[0]));
  const Values grads = gradients(std::array{loss}, std::array{c.w, c.u, c.b});
  g.fetch("dw", grads[0]), g.fetch("du", grads[1]), g.fetch("db", grads[2]);
  run_and_compare(g, {reroll_loops});
  EXPECT_EQ(count_here(g, "scan"), 2);
  EXPECT_LE(count_here(g, "matmul"), 2);
}

// Turns of random nodes: products, elementwise ops, views and constants of the carries, elements and values of outside.
Step random_step(std::mt19937* random, const Values& outside, std::size_t carries) {
  std::vector<int> choices;
  for (int i = 0; i < 40; ++i) choices.push_back(static_cast<int>((*random)() % 1000));
  return [=](const Values& carry, const Values& element) {
    Values pool = carry;
    pool.insert(pool.end(), element.begin(), element.end());
    std::size_t next = 0;
    const auto choose = [&](std::size_t count) {
      return static_cast<std::size_t>(choices[next++ % choices.size()]) % count;
    };
    const std::size_t nodes = 3 + choose(9);
    for (std::size_t i = 0; i < nodes; ++i) {
      const Value a = pool[choose(pool.size())], b = pool[choose(pool.size())], w = outside[choose(outside.size())];
      switch (choose(6)) {
        case 0: pool.push_back(tanh(matmul(a, w))); break;
        case 1: pool.push_back(a * 0.5 + b); break;
        case 2: pool.push_back(sigmoid(a) * b); break;
        case 3: pool.push_back(concat(std::array{slice(a, 1, 2, 4), slice(b, 1, 0, 2)}, 1)); break;
        case 4: pool.push_back(matmul(a, w, false, true) * 0.3); break;
        default: pool.push_back(a - mean(b, std::array<std::int64_t, 1>{1}, true)); break;
      }
    }
    pool.push_back(tanh(matmul(pool.back() + carry[0], outside[0])));
    StepResult made;
    for (std::size_t k = 0; k < carries; ++k) made.carries.push_back(pool[pool.size() - 1 - k]);
    made.outputs = {pool.back(), pool[pool.size() / 2]};
    return made;
  };
}

TEST(RerollLoops, GivesTheSameForRandomTurns) {
  int rolled = 0;
  for (unsigned seed = 0; seed < 120; ++seed) {
    std::mt19937 random(seed);
    Graph g;
    const std::size_t carries = 1 + random() % 3;
    const auto length = static_cast<std::int64_t>(1 + random() % 14);
    const int axis = static_cast<int>(random() % 2);
    Values initial, sequences, outside;
    for (std::size_t k = 0; k < carries; ++k) initial.push_back(g.input("h" + std::to_string(k), f64, {3, 4}));
    const Shape shape = axis == 0 ? Shape{length, 3, 4} : Shape{3, length, 4};
    for (std::size_t k = 0; k < 1 + random() % 2; ++k)
      sequences.push_back(g.input("x" + std::to_string(k), f64, shape));
    for (std::size_t k = 0; k < 2; ++k) outside.push_back(g.input("w" + std::to_string(k), f64, {4, 4}));
    const StepResult made =
        unrolled_loop(initial, sequences, length, random_step(&random, outside, carries), axis, random() % 2 == 0);
    for (std::size_t k = 0; k < carries; ++k) g.fetch("last" + std::to_string(k), made.carries[k]);
    for (std::size_t k = 0; k < made.outputs.size(); ++k) g.fetch("out" + std::to_string(k), made.outputs[k]);
    if (random() % 2 == 0) {
      const Values grads = gradients(std::array{sum(made.outputs[0])}, outside);
      for (std::size_t k = 0; k < grads.size(); ++k) g.fetch("d" + std::to_string(k), grads[k]);
    }
    SCOPED_TRACE(seed);
    run_and_compare(g, {reroll_loops});
    if (length >= 6) rolled += count_here(g, "scan") > 0;
  }
  EXPECT_GT(rolled, 60);
}

TEST(RerollLoops, GivesTheSameForRandomGraphsWhoseScansAreUnrolled) {
  int before = 0, rolled = 0;
  for (unsigned seed = 0; seed < 150; ++seed) {
    Graph g;
    const testing_program::RandomGraph random(g, seed);
    const auto flat = unrolled(g);
    before += count_here(g, "scan") > 0;
    SCOPED_TRACE(seed);
    run_and_compare(*flat, {reroll_loops});
    rolled += count_here(*flat, "scan") > 0;
  }
  EXPECT_GT(before, 20);
  EXPECT_GE(rolled, 2);  // most have fewer than four steps, or no product
}

// Unrolled over 7 steps: x [7, B, I].
template <class Make>
void expect_recurrence(const char* op, std::size_t carries, int gates, const Make& make) {
  Graph g;
  const Value x = g.input("x", f32, {7, 2, 3}), w = g.input("w", f32, {3, 4 * gates}),
              u = g.input("u", f32, {4, 4 * gates}), b = g.input("b", f32, {4 * (gates == 3 ? 4 : gates)});
  Values initial;
  for (std::size_t k = 0; k < carries; ++k) initial.push_back(g.input("h" + std::to_string(k), f32, {2, 4}));
  const StepResult made = unrolled_loop(
      initial, {x}, 7, [&](const Values& carry, const Values& in) { return make(carry, in[0], w, u, b); });
  g.fetch("hs", made.outputs[0]), g.fetch("h", made.carries[0]);
  const auto notes = run_and_compare(g, {reroll_loops, recognize_recurrences});
  EXPECT_EQ(count_here(g, op), 1) << (notes.empty() ? "" : notes.back());
}

TEST(RerollLoops, MakesRecurrentLayersOfUnrolledCells) {
  expect_recurrence("lstm_recurrence", 2, 4,
                    [](const Values& carry, const Value& x, const Value& w, const Value& u, const Value& b) {
                      const auto [h, c] = lstm_cell(x, carry[0], carry[1], w, u, b);
                      return step({h, c}, {h});
                    });
  expect_recurrence("gru_recurrence", 1, 3,
                    [](const Values& carry, const Value& x, const Value& w, const Value& u, const Value& b) {
                      const Value h = gru_cell(x, carry[0], w, u, b);
                      return step({h}, {h});
                    });
}

TEST(RerollLoops, NeedsTimeThatGrowsWithTheNodes) {
  const auto seconds = [](int turns) {
    Graph g;
    const Cell c(g);
    const StepResult made =
        unrolled_loop({g.input("h0", f32, {2, 4})}, {g.input("x", f32, {turns, 2, 3})}, turns, cell(c.w, c.u, c.b));
    g.fetch("hs", made.outputs[0]);
    const std::clock_t begin = std::clock();  // of this process: others may have the cores
    PassNotes notes;
    reroll_loops(g, notes);
    EXPECT_EQ(only(g, "scan").attrs.get_int("length"), turns);
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  seconds(50);
  const double few = std::min({seconds(250), seconds(250), seconds(250)});
  const double many = std::min({seconds(4000), seconds(4000), seconds(4000)});
  EXPECT_LT(many, 16 * 4 * few);
}

}  // namespace
}  // namespace paoding
