// SPDX-License-Identifier: Apache-2.0
// Program and Parameters as their users see them: feeds and fetches, errors, stored values, the debug execution, and
// the cost of compiling and running.
#include <algorithm>
#include <chrono>
#include <limits>

#include "tests/support/allocation_count.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

template <class Action>
void expect_error(ErrorKind kind, const std::vector<std::string>& parts, const Action& action) {
  try {
    action();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "'" << error.what() << "' lacks '" << part << "'";
    }
  }
}

Tensor floats(const Shape& shape, const Dense& values) { return Tensor::from(f32, shape, values); }

// y = a + b, z = a * b.
void build_two(Graph& g, const Shape& shape = {2}) {
  const Value a = g.input("a", f32, shape), b = g.input("b", f32, shape);
  g.fetch("y", a + b);
  g.fetch("z", a * b);
}

// ---- feeds and fetches ----

TEST(Program, TakesFeedsAndGivesFetchesByNameAndByIndex) {
  Graph g;
  build_two(g);
  Program program(g);
  EXPECT_EQ(program.input_names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(program.fetch_names(), (std::vector<std::string>{"y", "z"}));
  EXPECT_EQ(program.input_type(program.input_index("b")), (Type{f32, {2}}));
  EXPECT_EQ(program.fetch_type(program.fetch_index("z")), (Type{f32, {2}}));
  const Tensors by_name = program.run({{"a", floats({2}, {1, 2})}, {"b", floats({2}, {10, 20})}});
  EXPECT_EQ(by_name.at("y").to_doubles(), (Dense{11, 22}));
  EXPECT_EQ(by_name.at("z").to_doubles(), (Dense{10, 40}));
  program.set_input(program.input_index("b"), floats({2}, {3, 4}));  // a keeps its value
  program.run();
  program.wait();
  EXPECT_EQ(program.fetch(program.fetch_index("z")).to_doubles(), (Dense{3, 8}));
  EXPECT_EQ(by_name.at("z").to_doubles(), (Dense{10, 40}));  // an earlier fetch is the caller's own
}

TEST(Program, FetchesOnlyWhatItIsAskedFor) {
  Graph g;
  build_two(g);
  CompileOptions options;
  options.fetches = {"z"};
  Program program(g, options);
  EXPECT_EQ(program.fetch_names(), (std::vector<std::string>{"z"}));
  options.fetches = {"z", "y"};
  EXPECT_EQ(Program(g, options).fetch_names(), (std::vector<std::string>{"z", "y"}));
  EXPECT_EQ(g.fetches().size(), 2u);  // the graph is as it was
}

TEST(Program, FetchesAnInputItself) {
  Graph g;
  const Value a = g.input("a", f32, {3});
  g.fetch("same", a);
  g.fetch("again", a);
  g.fetch("twice", a + a);
  Program program(g);
  const Tensors got = program.run({{"a", floats({3}, {1, 2, 3})}});
  EXPECT_EQ(got.at("same").to_doubles(), (Dense{1, 2, 3}));
  EXPECT_EQ(got.at("again").to_doubles(), (Dense{1, 2, 3}));
  EXPECT_EQ(program.run({{"a", floats({3}, {4, 5, 6})}}).at("same").to_doubles(), (Dense{4, 5, 6}));
}

TEST(Program, FetchesViews) {
  Graph g;
  const Value a = g.input("a", f32, {2, 3}), doubled = a + a;
  g.fetch("column", slice(doubled, 1, 1, 2));
  g.fetch("flat", reshape(doubled, {6}));
  g.fetch("wide", expand(slice(doubled, 0, 1, 2), {2, 3}));
  g.fetch("parts", concat(std::array{slice(a, 1, 2, 3), a}, 1));
  Program program(g);
  const Tensors got = program.run({{"a", floats({2, 3}, {1, 2, 3, 4, 5, 6})}});
  EXPECT_EQ(got.at("column").to_doubles(), (Dense{4, 10}));
  EXPECT_EQ(got.at("flat").to_doubles(), (Dense{2, 4, 6, 8, 10, 12}));
  EXPECT_EQ(got.at("wide").to_doubles(), (Dense{8, 10, 12, 8, 10, 12}));
  EXPECT_EQ(got.at("parts").to_doubles(), (Dense{3, 1, 2, 3, 6, 4, 5, 6}));
}

TEST(Program, RunsGraphsWithoutInputsAndWithoutElements) {
  Graph g;
  const Value ones = full(g, {2, 2}, 1);
  g.fetch("constant", ones);
  g.fetch("sum", sum(ones + 2.0));
  Program program(g);
  EXPECT_EQ(program.run({}).at("constant").to_doubles(), (Dense{1, 1, 1, 1}));
  EXPECT_EQ(program.run({}).at("sum").to_doubles(), (Dense{12}));

  Graph empty;
  const Value a = empty.input("a", f32, {0, 3});
  empty.fetch("y", a * 2.0);
  empty.fetch("total", sum(a, Ints{0}));
  Program none(empty);
  const Tensors got = none.run({{"a", floats({0, 3}, {})}});
  EXPECT_EQ(got.at("y").shape(), (Shape{0, 3}));
  EXPECT_EQ(got.at("total").to_doubles(), (Dense{0, 0, 0}));
}

TEST(Program, RemembersNothingOfTheRunBefore) {
  Graph g;
  build_lstm(g, {});
  Program program(g);
  const Feeds first = make_feeds(g, 1), second = make_feeds(g, 2);
  const Tensors before = program.run(to_tensors(g, first));
  const Tensors got = program.run(to_tensors(g, second));
  for (const auto& [name, values] : evaluate_graph(g, second))
    expect_close(name, got.at(name).to_doubles(), values, 1e-5);
  expect_same_bits(before, program.run(to_tensors(g, first)));
}

TEST(Program, CanBeMoved) {
  Graph g;
  build_two(g);
  Program first(g);
  first.run({{"a", floats({2}, {1, 2})}, {"b", floats({2}, {10, 20})}});
  Program moved = std::move(first);
  moved.run();
  EXPECT_EQ(moved.fetch(0).to_doubles(), (Dense{11, 22}));
}

// ---- errors ----

TEST(ProgramErrors, NameWhatIsUnknownAndWhatThereIs) {
  Graph g;
  build_two(g);
  CompileOptions options;
  options.fetches = {"w"};
  expect_error(ErrorKind::argument, {"'w'", "y, z"}, [&] { Program(g, options); });
  Program program(g);
  expect_error(ErrorKind::argument, {"'w'", "y, z"}, [&] { program.fetch_index("w"); });
  expect_error(ErrorKind::argument, {"'c'", "a, b"}, [&] { program.input_index("c"); });
  expect_error(ErrorKind::argument, {"'c'", "a, b"}, [&] { program.run({{"c", floats({2}, {1, 2})}}); });
  options = {};
  options.disabled_passes = {"fold_everything"};
  expect_error(ErrorKind::argument, {"'fold_everything'", "fuse_groups", "alias_views"}, [&] { Program(g, options); });
  Graph nothing;
  nothing.input("a", f32, {});
  expect_error(ErrorKind::argument, {"fetches nothing"}, [&] { Program program_of_nothing(nothing); });
}

TEST(ProgramErrors, ShowBothTypesOfAWrongFeed) {
  Graph g;
  build_two(g);
  Program program(g);
  expect_error(ErrorKind::shape, {"'b'", "f32[2]", "f32[3]"}, [&] { program.set_input(1, floats({3}, {1, 2, 3})); });
  expect_error(ErrorKind::dtype, {"'b'", "f32[2]", "f64[2]"}, [&] {
    program.set_input(1, Tensor::from(f64, {2}, Dense{1, 2}));
  });
}

TEST(ProgramErrors, SayWhichInputWasNeverSet) {
  Graph g;
  build_two(g);
  Program program(g);
  program.set_input(0, floats({2}, {1, 2}));
  expect_error(ErrorKind::argument, {"'b'", "never set"}, [&] { program.run(); });
  program.set_input(1, floats({2}, {1, 2}));
  program.run();
}

// ---- parameters ----

void build_parameters(Graph& g, bool times) {
  const Value x = g.input("x", f32, {2}), w = g.parameter("w", f32, {2}), b = g.parameter("b", f32, {});
  g.fetch("y", times ? x * w + b : x + w);
}

TEST(Parameters, AreZeroUntilSetAndSharedByPrograms) {
  Graph g, other;
  build_parameters(g, true);
  build_parameters(other, false);
  Parameters parameters(g, Device::cpu());
  EXPECT_EQ(parameters.names(), (std::vector<std::string>{"w", "b"}));
  EXPECT_EQ(parameters.get("w").to_doubles(), (Dense{0, 0}));
  Program first(g, {}, &parameters), second(other, {}, &parameters);
  const Tensors x{{"x", floats({2}, {1, 2})}};
  EXPECT_EQ(first.run(x).at("y").to_doubles(), (Dense{0, 0}));
  parameters.set("w", floats({2}, {3, 4}));
  parameters.set("b", floats({}, {10}));
  EXPECT_EQ(first.run(x).at("y").to_doubles(), (Dense{13, 18}));
  EXPECT_EQ(second.run(x).at("y").to_doubles(), (Dense{4, 6}));
  EXPECT_EQ(parameters.get("w").to_doubles(), (Dense{3, 4}));
}

TEST(Parameters, OutliveTheStoreObject) {
  Graph g;
  build_parameters(g, true);
  auto parameters = std::make_unique<Parameters>(g, Device::cpu());
  parameters->set("w", floats({2}, {3, 4}));
  Program program(g, {}, parameters.get());
  parameters.reset();
  EXPECT_EQ(program.run({{"x", floats({2}, {1, 2})}}).at("y").to_doubles(), (Dense{3, 8}));
}

TEST(Parameters, ReportWhatDoesNotFit) {
  Graph g;
  build_parameters(g, true);
  Parameters parameters(g, Device::cpu());
  expect_error(ErrorKind::argument, {"'u'", "w, b"}, [&] { parameters.get("u"); });
  expect_error(ErrorKind::argument, {"'u'", "w, b"}, [&] { parameters.set("u", floats({}, {1})); });
  expect_error(ErrorKind::shape, {"'w'", "f32[2]", "f32[3]"}, [&] { parameters.set("w", floats({3}, {1, 2, 3})); });
  expect_error(ErrorKind::dtype, {"'w'", "f32[2]", "i32[2]"}, [&] {
    parameters.set("w", Tensor::from(i32, {2}, Dense{1, 2}));
  });
  expect_error(ErrorKind::argument, {"'w'", "Parameters"}, [&] { Program without(g); });
  Graph larger;
  larger.fetch("y", larger.parameter("w", f32, {3}) + 1.0);
  expect_error(ErrorKind::shape, {"'w'"}, [&] { Program program(larger, {}, &parameters); });
}

// A parameter of another type with as many bytes must not be read as if it were the same.
TEST(Parameters, OfAnotherTypeOfTheSameSizeAreRefused) {
  Graph g, other;
  g.fetch("y", g.parameter("w", f32, {2, 3}) + 1.0);
  other.fetch("y", other.parameter("w", i32, {3, 2}) + 1.0);
  Parameters parameters(g, Device::cpu());
  expect_error(ErrorKind::dtype, {"'w'", "i32[3,2]", "f32[2,3]"}, [&] { Program program(other, {}, &parameters); });
}

// ---- the debug execution ----

TEST(Stepwise, SeesEveryStepInOrderWithItsValues) {
  Graph g;
  const Value a = g.input("a", f32, {2}), h0 = g.input("h0", f32, {2}), xs = g.input("xs", f32, {3, 2});
  {
    const Scope scope(g, "first");
    g.fetch("y", (a + 1.0) * a);
  }
  const Scope scope(g, "loop");
  const StepResult made = scan({h0}, {xs}, [&](const Values& carry, const Values& x) {
    const Value h = carry[0] * x[0];
    return step({h}, {h});
  });
  g.fetch("h", made.outputs[0]);

  std::vector<StepSeen> seen;
  CompileOptions options;
  options.execution = Execution::stepwise;
  options.disabled_passes = {"fuse_groups"};
  options.on_step = [&](const StepSeen& one) { seen.push_back(one); };
  Program program(g, options);
  const Tensors feeds{
      {"a", floats({2}, {2, 3})}, {"h0", floats({2}, {1, 1})}, {"xs", floats({3, 2}, {2, 3, 4, 5, 6, 7})}};
  const Tensors got = program.run(feeds);
  EXPECT_EQ(static_cast<std::int64_t>(seen.size()), program.report().launches);

  std::vector<std::pair<std::string, Dense>> values;  // of the ops, without the copy that starts the loop
  std::vector<std::int64_t> turns;
  for (const StepSeen& one : seen) {
    ASSERT_EQ(one.results.size(), 1u);
    if (one.op != "add" && one.op != "mul") continue;
    values.emplace_back(one.op + " in " + one.scope, one.results[0].to_doubles());
    if (one.scope == "loop") turns.push_back(one.instance);
  }
  const std::vector<std::pair<std::string, Dense>> expected = {{"add in first", {3, 4}},
                                                               {"mul in first", {6, 12}},
                                                               {"mul in loop", {2, 3}},
                                                               {"mul in loop", {8, 15}},
                                                               {"mul in loop", {48, 105}}};
  EXPECT_EQ(values, expected);
  EXPECT_EQ(turns, (std::vector<std::int64_t>{0, 1, 2}));
  // The same kernels, so the same bits as a captured run.
  options.execution = Execution::captured;
  Program captured(g, options);
  seen.clear();
  expect_same_bits(got, captured.run(feeds));
  EXPECT_TRUE(seen.empty());
}

TEST(CompileOptions, CallAfterPassForEveryPassThatRan) {
  Graph g;
  build_two(g);
  std::vector<std::string> ran, expected;
  CompileOptions options;
  options.disabled_passes = {"simplify_views"};
  options.after_pass = [&](const std::string& pass, const Graph& graph) {
    ran.push_back(pass);
    EXPECT_EQ(graph.fetches().size(), 2u);
  };
  Program program(g, options);
  // The second and the third cannot be switched off, so they are not in the list.
  expected = {pipeline()[0].name, "recognize_recurrences", "expand_composed_ops"};
  for (const Pass& pass : std::span(pipeline()).subspan(1)) {
    if (std::string(pass.name) != "simplify_views") expected.emplace_back(pass.name);
  }
  EXPECT_EQ(ran, expected);
  EXPECT_EQ(program.report().passes.size(), expected.size());
}

// ---- costs ----

double microseconds_of(const std::function<void()>& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

double best_of(int tries, const std::function<void()>& action) {
  double best = microseconds_of(action);
  for (int i = 1; i < tries; ++i) best = std::min(best, microseconds_of(action));
  return best;
}

// The allocations of ten runs, the fewest of several times: a thread allocates its own memory when it first gets work,
// which on busy cores may be late.
std::int64_t allocations_of_runs(Program& program, const Graph& graph) {
  program.run(to_tensors(graph, make_feeds(graph, 1)));
  std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
  for (int time = 0; time < 20 && fewest > 0; ++time) {
    const AllocationCount allocations;
    for (int i = 0; i < 10; ++i) program.run();
    fewest = std::min(fewest, allocations.count());
  }
  return fewest;
}

TEST(RunCost, AllocationsAreCounted) {
  if (!AllocationCount::works()) GTEST_SKIP() << "NOT CHECKED: this build has an allocator of its own";
  const AllocationCount allocations;
  std::vector<int>* made = new std::vector<int>(100);
  EXPECT_EQ(allocations.count(), 2);
  delete made;
}

TEST(RunCost, IsNoAllocation) {
  if (!AllocationCount::works()) GTEST_SKIP() << "NOT CHECKED: this build has an allocator of its own";
  for (const bool fused : {true, false}) {
    Graph g;
    Value x = g.input("x", f32, {64, 1000});
    const Value h0 = g.input("h0", f32, {1000});
    const StepResult made = scan({h0}, {x}, [&](const Values& carry, const Values& e) {
      const Value h = tanh(carry[0] * e[0] + 0.5);
      return step({h}, {h});
    });
    g.fetch("y", made.outputs[0]);
    g.fetch("s", sum(made.outputs[0] * x, Ints{0}));
    CompileOptions options;
    if (!fused) options.disabled_passes = pass_names();
    Program program(g, options);
    EXPECT_EQ(allocations_of_runs(program, g), 0) << (fused ? "fused" : "unfused");
  }
}

// oneDNN allocates its list of arguments whenever a primitive runs: a vector and a map with a node per argument.
TEST(RunCost, IsOnlyOneDnnsAllocationsInAnLstm) {
  if (!AllocationCount::works()) GTEST_SKIP() << "NOT CHECKED: this build has an allocator of its own";
  Graph g;
  build_lstm(g, {.steps = 8, .batch = 4, .inputs = 32, .hidden = 32});
  Program program(g);
  constexpr std::int64_t kProducts = 8 + 8 + 4;  // one per step forward and backward; x w, dx, dw and du
  const std::int64_t count = allocations_of_runs(program, g);
  std::printf("LSTM T8: %.1f allocations per product\n", static_cast<double>(count) / 10 / kProducts);
  EXPECT_LE(count, 10 * kProducts * 6);
}

TEST(RunCost, OfAHundredScalarOpsIsSmall) {
  Graph g;
  Value x = g.input("x", f32, {});
  for (int i = 0; i < 100; ++i) x = i % 2 == 0 ? x * 1.01 : x + 0.01;
  g.fetch("y", x);
  CompileOptions options;
  options.disabled_passes = pass_names();
  Program program(g, options);
  double expected = 1;
  for (int i = 0; i < 100; ++i) expected = i % 2 == 0 ? expected * 1.01 : expected + 0.01;
  EXPECT_NEAR(program.run({{"x", floats({}, {1})}}).at("y").to_doubles()[0], expected, 1e-4);
  EXPECT_EQ(program.report().launches, 100);
  const double us = best_of(200, [&] { program.run(); });
  std::printf("100 unfused scalar ops: %.1f us per run\n", us);
  EXPECT_LE(us, 60);  // the aim is 20; other programs may take our core
}

TEST(CompileCost, OfAnLstmWithGradientsIsSmall) {
  Graph g;
  build_lstm(g, {.steps = 64, .batch = 32, .inputs = 512, .hidden = 512});
  double ms = 0;
  const double best = best_of(3, [&] { ms = Program(g).report().milliseconds; }) / 1000;
  std::printf("LSTM T64 B32 H512 with gradients: compiled in %.1f ms (report: %.1f)\n", best, ms);
  EXPECT_LE(best, 900);  // the aim is 300
  EXPECT_LE(ms, 1.5 * best + 50);
}

}  // namespace
}  // namespace paoding::testing_program
