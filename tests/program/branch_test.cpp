// SPDX-License-Identifier: Apache-2.0
// Branches and loops whose course is decided while a program runs: results against the float64 evaluator, gradients
// against finite differences, nested in scans and in each other, with passes on and off.
#include <gtest/gtest.h>

#include "tests/support/control_flow_check.h"

namespace paoding::testing_program {
namespace {

TEST(Branch, RunsTheOneThatItsIndexChooses) {
  Graph g;
  const Value index = g.input("index", i32, {}), x = g.input("x", f32, {3}), w = g.input("w", f32, {3, 3});
  const Values made =
      switch_case(index, {[&] {
                            return Values{x * 2.0, full(g, {}, 5)};
                          },
                          [&] {
                            return Values{x, sum(x)};
                          },  // a value of outside, passed on
                          [&] {
                            return Values{reshape(matmul(reshape(x, Shape{1, 3}), w), Shape{3}), sum(w)};
                          }});
  g.fetch("a", made[0] + 1.0);
  g.fetch("b", made[1]);
  check_runs(g, feeds_with(g, "index", {0, 1, 2, 7, -1, 1, 0}));
}

TEST(Branch, TakesPredicatesOfOneElement) {
  Graph g;
  const Value p = g.input("p", boolean, {1}), x = g.input("x", f32, {3});
  const Value y = cond(
      p, [&] { return exp(x); }, [&] { return x - 1.0; });
  g.fetch("y", y);
  fetch_gradients(g, sum(y * y), {x});
  check_runs(g, feeds_with(g, "p", {0, 1}));
  for (const Feeds& feeds : feeds_with(g, "p", {0, 1})) check_gradients(g, feeds);
}

TEST(Branch, OfCasesTakesTheFirstThatIsTrue) {
  Graph g;
  const Value a = g.input("a", boolean, {}), b = g.input("b", boolean, {}), x = g.input("x", f32, {2});
  const std::vector<Case> cases = {{a, [&] { return Values{x + 1.0}; }}, {b, [&] { return Values{x + 2.0}; }}};
  g.fetch("with", case_of(cases, [&] { return Values{x + 3.0}; })[0]);
  g.fetch("without", case_of(cases)[0]);
  std::vector<Feeds> feeds;
  for (int i = 0; i < 4; ++i) {
    feeds.push_back(make_feeds(g, 1));
    feeds.back()["a"] = {double(i % 2)};
    feeds.back()["b"] = {double(i / 2)};
  }
  check_runs(g, feeds);
}

TEST(Branch, HasGradientsThatSaveOnlyWhatTheTakenOneNeeds) {
  Graph g;
  const Value index = g.input("index", i64, {}), x = g.input("x", f32, {2, 3}), w = g.input("w", f32, {3, 3});
  const Values made = switch_case(index, {[&] {
                                            const Value h = tanh(matmul(x, w));
                                            return Values{h * h};
                                          },
                                          [&] { return Values{exp(x) * sigmoid(x)}; }, [&] { return Values{x}; }});
  fetch_gradients(g, sum(made[0] * made[0]), {x, w});
  const std::vector<Feeds> feeds = feeds_with(g, "index", {0, 1, 2});
  check_runs(g, feeds);
  for (const Feeds& each : feeds) check_gradients(g, each);
}

TEST(Branch, HasGradientsOfGradients) {
  Graph g;
  const Value p = g.input("p", boolean, {}), x = g.input("x", f32, {3});
  const Value y = cond(
      p, [&] { return x * x * x; }, [&] { return exp(x) * x; });
  const Value d = gradients(sum(y), {x})[0];
  fetch_gradients(g, sum(d * d), {x});
  const std::vector<Feeds> feeds = feeds_with(g, "p", {0, 1});
  check_runs(g, feeds);
  for (const Feeds& each : feeds) check_gradients(g, each);
}

TEST(Branch, StandsInScansAndHoldsThem) {
  Graph g;
  const Value xs = g.input("xs", f32, {4, 3}), h0 = g.input("h0", f32, {3}), w = g.input("w", f32, {3, 3});
  const Value limit = g.input("limit", f32, {});
  const StepResult made = scan({h0}, {xs}, [&](const Values& carry, const Values& element) {
    const Value total = sum(element[0]);
    const Value h = cond(
        less(total, limit),
        [&] {
          return tanh(reshape(matmul(reshape(carry[0], Shape{1, 3}), w), Shape{3}) + element[0]);
        },
        [&] {
          // A scan in a branch in a scan, over values of outside only.
          const StepResult inner = scan({carry[0]}, {xs}, [&](const Values& c, const Values& e) {
            const Value next = cond(
                less(sum(e[0]), total), [&] { return c[0] * 0.5 + e[0]; }, [&] { return c[0]; });
            return step({next}, {});
          });
          return inner.carries[0] * element[0];
        });
    return step({h}, {h * h});
  });
  fetch_gradients(g, sum(made.outputs[0]) + sum(made.carries[0]), {xs, h0, w});
  const std::vector<Feeds> feeds = feeds_with(g, "limit", {-9, 0, 0.3, 9});
  check_runs(g, feeds);
  for (const Feeds& each : feeds) check_gradients(g, each);
}

// This includes ops on outside values only: a branch that is not taken must cost nothing and print nothing.
TEST(Branch, HoldsWhatItsFunctionWrites) {
  Graph g;
  const Value p = g.input("p", boolean, {}), x = g.input("x", f32, {3}), k = g.parameter("k", f32, {3});
  const Value y = cond(
      p,
      [&] {
        const Value twice = scan({x}, {reshape(x, Shape{3, 1})}, [&](const Values& c, const Values& e) {
                              return step({c[0] + exp(x) + e[0]}, {});
                            }).carries[0];
        return cond(
            p, [&] { return tanh(x) * twice; }, [&] { return x; });
      },
      [&] { return dropout(x, 0.5); });
  g.fetch("y", y);
  for (NodeId id = 0; id < g.size(); ++id) {
    const std::string& op = g.node(id).op->name;
    EXPECT_TRUE(op != "scan" && op != "exp" && op != "tanh" && op != "dropout") << to_text(g);
  }
  EXPECT_TRUE(has(message_of([&] {
                    cond(
                        p,
                        [&] {
                          assign(k, x);
                          return x;
                        },
                        [&] { return x; });
                  }),
                  "assign: parameter 'k' is assigned in a branch"));
}

TEST(Branch, SharesMemoryBetweenBranches) {
  Graph g;
  const Value p = g.input("p", boolean, {}), x = g.input("x", f32, {64, 64});
  const auto deep = [&](double scale) {
    return [&g, x, scale] { return Values{matmul(tanh(matmul(x * scale, x)), x)}; };
  };
  g.fetch("y", cond(p, deep(0.1), deep(0.2))[0]);
  Program program(g);
  Graph one;
  const Value only = one.input("x", f32, {64, 64});
  one.fetch("y", matmul(tanh(matmul(only * 0.1, only)), only));
  Program alone(one);
  EXPECT_LE(program.report().arena_bytes, alone.report().arena_bytes + 1024) << program.plan_text();
  check_runs(g, feeds_with(g, "p", {0, 1}));
}

TEST(Variant, HasAlternativesOfOtherTypes) {
  Graph g;
  const Value index = g.input("index", i32, {1}), x = g.input("x", f32, {2, 3});
  const Variant variant = switch_variant(
      index, {[&] { return Values{x * 2.0}; }, [&] { return Values{sum(x, std::array<std::int64_t, 1>{0})}; },
              [&] { return Values{full(g, {4}, 3, i32)}; }});
  g.fetch("v", variant);
  const Value total = visit(variant, [](const Values& a) { return Values{sum(cast(a[0], f32))}; })[0];
  fetch_gradients(g, total * total, {x});
  const Shape shapes[] = {{2, 3}, {3}, {4}};
  for (const Device& device : devices_here()) {
    CompileOptions options;
    options.device = device;
    Program program(g, options);
    for (int i : {0, 1, 2, 9, 0}) {
      const Feeds feeds = feeds_with(g, "index", {double(i)})[0];
      const auto expected = evaluate_graph(g, feeds);
      const Tensors got = program.run(to_tensors(g, feeds));
      const int taken = std::min(i, 2);
      EXPECT_EQ(got.at("v").type(), (Type{taken == 2 ? i32 : f32, shapes[taken]}));
      for (const auto& [name, values] : expected) expect_close(name, got.at(name).to_doubles(), values, 1e-5);
      expect_same_bits({{"v", program.fetch_later(program.fetch_index("v")).value()}}, got);
      check_gradients(g, feeds);
    }
    EXPECT_TRUE(has(message_of([&] { program.fetch_type(0); }), "is a Variant of 3 alternatives"));
  }
  EXPECT_EQ(to_text(*parse_graph(to_text(g))), to_text(g));
}

TEST(Branch, RefusesWhatDoesNotFit) {
  Graph g;
  const Value p = g.input("p", boolean, {}), q = g.input("q", boolean, {2}), x = g.input("x", f32, {3});
  EXPECT_TRUE(has(message_of([&] {
                    cond(
                        q, [&] { return x; }, [&] { return x; });
                  }),
                  "the predicate has shape [2]"));
  EXPECT_TRUE(has(message_of([&] {
                    cond(
                        sum(x), [&] { return x; }, [&] { return x; });
                  }),
                  "predicate is f32, not bool"));
  EXPECT_TRUE(has(message_of([&] {
                    cond(
                        p, [&] { return x; }, [&] { return sum(x); });
                  }),
                  "result 0 of branch 1 is f32[], of branch 0 f32[3]; branches that differ give a Variant"));
  EXPECT_TRUE(has(message_of([&] { switch_case(sum(x), {[&] { return Values{x}; }}); }), "must be i32[] or i64[]"));
  EXPECT_TRUE(has(message_of([&] { switch_case(cast(p, i32), {}); }), "needs at least one branch"));
}

TEST(WhileLoop, RunsUntilItsConditionIsFalse) {
  Graph g;
  const Value x = g.input("x", f32, {3}), limit = g.input("limit", f32, {}), w = g.input("w", f32, {3});
  const Values made = while_loop(
      {x, full(g, {}, 0, i64)}, [&](const Values& v) { return less(sum(v[0] * v[0]), limit); },
      [&](const Values& v) {
        return Values{v[0] * 1.5 + 0.1 * w, v[1] + 1.0};
      });
  g.fetch("x", made[0]);
  g.fetch("count", made[1]);
  check_runs(g, feeds_with(g, "limit", {-1, 1, 50, 1000, 3}));
  EXPECT_TRUE(has(message_of([&] { gradients(sum(made[0]), {x}); }), "while: a loop without a limit has no gradient"));
}

TEST(WhileLoop, SwapsItsValuesAndKeepsWhatStays) {
  Graph g;
  const Value a = g.input("a", f32, {2}), b = g.input("b", f32, {2}), n = g.input("n", i32, {});
  const Values made = while_loop(
      {a, b, n, a}, [&](const Values& v) { return less(full(g, {}, 0, i32), v[2]); },
      [&](const Values& v) {
        return Values{v[1], v[0] + v[3], v[2] - 1.0, v[3]};
      });
  for (int i = 0; i < 4; ++i) g.fetch("r" + std::to_string(i), made[static_cast<std::size_t>(i)]);
  check_runs(g, feeds_with(g, "n", {0, 1, 2, 7}));
}

TEST(WhileLoop, HoldsAScanOfBranches) {
  Graph g;
  const Value xs = g.input("xs", f32, {3, 2}), h = g.input("h", f32, {2}), limit = g.input("limit", f32, {});
  const Values made = while_loop(
      {h, full(g, {}, 0, i32)}, [&](const Values& v) { return less(sum(v[0] * v[0]), limit); },
      [&](const Values& v) {
        const StepResult inner = scan({v[0]}, {xs}, [&](const Values& c, const Values& e) {
          const Value next = cond(
              less(sum(e[0]), sum(c[0])), [&] { return c[0] * 1.25 + e[0] * e[0]; }, [&] { return c[0] + exp(e[0]); });
          return step({next}, {});
        });
        return Values{inner.carries[0], v[1] + 1};
      });
  g.fetch("h", made[0]);
  g.fetch("turns", made[1]);
  check_runs(g, feeds_with(g, "limit", {-1, 3, 100, 10'000}));
}

// An index out of range in a branch is none in a run that takes another.
TEST(Branch, FailsARunOnlyWhereTheFailingOneIsTaken) {
  Graph g;
  const Value p = g.input("p", boolean, {}), id = g.input("id", i32, {}), x = g.input("x", f32, {3});
  const Value k = g.parameter("k", f32, {});
  const Value y = cond(
      p, [&] { return gather(x, id); }, [&] { return sum(x); });
  assign(k, k + y);
  g.fetch("y", y);
  const auto feeds = [&](double which, double index) {
    return to_tensors(g, {{"p", {which}}, {"id", {index}}, {"x", {1, 2, 4}}});
  };
  for (const Device& device : devices_here()) {
    const Parameters parameters(g, device);
    CompileOptions options;
    options.device = device;
    Program program(g, options, &parameters);
    EXPECT_EQ(program.run(feeds(0, 9)).at("y").to_doubles(), Dense{7});
    EXPECT_TRUE(has(message_of([&] { program.run(feeds(1, 9)); }), "indices[] = 9, but axis 0")) << to_string(device);
    EXPECT_EQ(parameters.get("k").to_doubles(), Dense{7});
    EXPECT_EQ(program.run(feeds(1, 2)).at("y").to_doubles(), Dense{4});
    EXPECT_EQ(parameters.get("k").to_doubles(), Dense{11});
  }
}

TEST(Branch, WritesAParameterWhicheverIsTakenAndNothingInARunThatFails) {
  Graph g;
  const Value p = g.input("p", boolean, {}), id = g.input("id", i32, {}), x = g.input("x", f32, {3});
  const Value k = g.parameter("k", f32, {3});
  assign(k, cond(
                p, [&] { return k * 2.0; }, [&] { return k + x; }));
  g.fetch("y", gather(x, id));
  const auto feeds = [&](double which, double index) {
    return to_tensors(g, {{"p", {which}}, {"id", {index}}, {"x", {1, 2, 4}}});
  };
  for (const Device& device : devices_here()) {
    for (const int repeats : {1, 3}) {
      Parameters parameters(g, device);
      parameters.set("k", Tensor::from(f32, {3}, Dense(3, 1.0)));
      CompileOptions options;
      options.device = device;
      options.repeats = repeats;
      Program program(g, options, &parameters);
      program.run(feeds(1, 0));
      const double doubled = repeats == 1 ? 2 : 8;
      EXPECT_EQ(parameters.get("k").to_doubles(), Dense(3, doubled));
      EXPECT_TRUE(has(message_of([&] { program.run(feeds(0, 3)); }), "indices[] = 3, but axis 0")) << to_string(device);
      EXPECT_EQ(parameters.get("k").to_doubles(), Dense(3, doubled));
      program.run(feeds(0, 2));
      EXPECT_EQ(parameters.get("k").to_doubles(),
                (Dense{doubled + repeats, doubled + 2 * repeats, doubled + 4 * repeats}));
    }
  }
}

// On a GPU the value that was not there would be asked again and again.
TEST(WhileLoop, EndsWhereWhatItReadsIsNotThere) {
  Graph g;
  const Value id = g.input("id", i32, {}), x = g.input("x", f32, {3}), k = g.parameter("k", f32, {});
  const Value y = while_loop(
      {full(g, {}, 0)}, [&](const Values& v) { return less(v[0], 10); },
      [&](const Values& v) { return Values{v[0] * 0.5 + gather(x, id)}; })[0];
  assign(k, k + y);
  for (const Device& device : devices_here()) {
    const Parameters parameters(g, device);
    CompileOptions options;
    options.device = device;
    Program program(g, options, &parameters);
    const auto feeds = [&](double index) { return to_tensors(g, {{"id", {index}}, {"x", {0, 0, 12}}}); };
    EXPECT_TRUE(has(message_of([&] {
                      program.run(feeds(7));
                      program.wait();
                    }),
                    "indices[] = 7"));
    EXPECT_EQ(parameters.get("k").to_doubles(), Dense{0});
    program.run(feeds(2));
    EXPECT_EQ(parameters.get("k").to_doubles(), Dense{12});
  }
}

TEST(WhileLoop, WithALimitHasAGradientAndTellsHowOftenItRan) {
  Graph g;
  const Value x = g.input("x", f32, {3}), limit = g.input("limit", f32, {}), w = g.input("w", f32, {3});
  const LoopResult made = while_loop(
      {x}, [&](const Values& v) { return less(sum(v[0] * v[0]), limit); },
      [&](const Values& v) { return Values{v[0] * 1.5 + tanh(v[0] * w)}; }, 5);
  g.fetch("count", made.iterations);
  fetch_gradients(g, sum(made.values[0]), {x, w});
  const std::vector<Feeds> feeds = feeds_with(g, "limit", {-1, 2, 10, 1e9});
  check_runs(g, feeds);
  for (const Feeds& each : feeds) check_gradients(g, each);
  EXPECT_EQ(evaluate_graph(g, feeds[3]).at("count")[0], 5);
  EXPECT_EQ(evaluate_graph(g, feeds[0]).at("count")[0], 0);
}

TEST(Print, HandsOnWhatReachesItInOrderAlsoWhenNobodyReadsIt) {
  Graph g;
  const Value xs = g.input("xs", f32, {3, 2}), p = g.input("p", boolean, {});
  const StepResult made = scan({full(g, {2}, 0)}, {xs}, [&](const Values& c, const Values& e) {
    print(e[0] * 2.0, "twice");
    return step({c[0] + e[0]}, {});
  });
  const Value y = print(made.carries[0] + 1.0, "end");
  g.fetch("d", gradients(sum(y * y), {xs})[0]);
  g.fetch("z", cond(
                   p, [&] { return print(y, "true"); }, [&] { return print(y * 3.0, "false"); }));
  const Feeds feeds{{"xs", {1, 2, 3, 4, 5, 6}}, {"p", {1}}};
  for (const Device& device : devices_here()) {
    CompileOptions options;
    options.device = device;
    Program program(g, options);
    for (int run = 0; run < 2; ++run) {
      program.run(to_tensors(g, feeds));
      std::string seen;
      for (const Printed& each : program.printed()) {
        seen += each.message + "@" + std::to_string(each.instance) + " " +
                std::to_string(int(each.value.to_doubles()[0])) + "; ";
      }
      EXPECT_EQ(seen, "twice@0 2; twice@1 6; twice@2 10; end@0 10; true@0 10; ");
    }
  }
  std::vector<std::string> messages;
  CompileOptions options;
  options.on_print = [&](const Printed& printed) { messages.push_back(printed.message); };
  Program(g, options).run(to_tensors(g, feeds));
  EXPECT_EQ(messages.size(), 5u);
}

Value deep_chain(Graph& g, const Value& x, const Value& w, bool keep) {
  Value h = x;
  for (int block = 0; block < 6; ++block) {
    const auto run = [&](const Values& in) {
      Value y = in[0];
      for (int layer = 0; layer < 4; ++layer) y = tanh(matmul(y, w));
      return Values{y};
    };
    h = (keep ? run({h}) : checkpoint(run, {h}))[0];
  }
  (void)g;
  return sum(h * h);
}

TEST(Checkpoint, TakesLessMemoryAndGivesTheSameGradients) {
  std::int64_t peak[2];
  Tensors got[2];
  for (int keep = 0; keep < 2; ++keep) {
    Graph g;
    // In f64: 24 layers make a thousandth of a difference in the last digit of an f32, and products in a loop have
    // another order.
    const Value x = g.input("x", f64, {128, 32}), w = g.input("w", f64, {32, 32});
    fetch_gradients(g, deep_chain(g, x, w, keep == 1), {x, w});
    Program program(g);
    got[keep] = program.run(to_tensors(g, make_feeds(g, 1)));
    peak[keep] = program.report().peak_live_bytes;
    EXPECT_EQ(to_text(*parse_graph(to_text(g))), to_text(g));
  }
  EXPECT_LT(peak[0], peak[1] * 6 / 10);
  for (const auto& [name, tensor] : got[1]) {
    expect_close(name, got[0].at(name).to_doubles(), tensor.to_doubles(), 1e-5);
  }
}

TEST(Checkpoint, StandsInAScan) {
  Graph g;
  const Value xs = g.input("xs", f32, {3, 2}), h0 = g.input("h0", f32, {2}), w = g.input("w", f32, {2});
  const StepResult made = scan({h0}, {xs}, [&](const Values& c, const Values& e) {
    return step(checkpoint([&](const Values& in) { return Values{tanh(in[0] * w) + in[1] * in[1]}; }, {c[0], e[0]}),
                {});
  });
  fetch_gradients(g, sum(made.carries[0] * made.carries[0]), {xs, h0, w});
  const Feeds feeds = make_feeds(g, 1);
  check_runs(g, {feeds});
  check_gradients(g, feeds);
}

}  // namespace
}  // namespace paoding::testing_program
