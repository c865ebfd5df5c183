// SPDX-License-Identifier: Apache-2.0
// Public calls where they cannot mean anything: on moved objects, in two threads at once, in callbacks, before a run,
// after a fork. Each is an error that says so; none crashes, hangs or gives another program's results.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <optional>
#include <stdexcept>
#include <thread>

#include "cpu/parallel.h"
#include "paoding/paoding.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

template <class Work>
void expect_error(std::string_view part, ErrorKind kind, const Work& work) {
  try {
    work();
    ADD_FAILURE() << "no error, expected: " << part;
  } catch (const Error& error) {
    EXPECT_TRUE(has(error.what(), part)) << error.what();
    EXPECT_EQ(error.kind(), kind) << error.what();
  }
}

template <class Work>
void expect_argument_error(std::string_view part, const Work& work) {
  expect_error(part, ErrorKind::argument, work);
}

Tensor three(double value) { return Tensor::from(f32, {3}, Dense(3, value)); }

// y = 2 x + w; w takes y.
void build_misused(Graph& g, bool prints = false) {
  const Value w = g.parameter("w", f32, {3}), x = g.input("x", f32, {3});
  const Value y = 2.0 * x + w;
  if (prints) print(y, "y");
  assign(w, y);
  g.fetch("y", y);
}

TEST(Misuse, OfAProgramThatWasMovedFromIsAnError) {
  Graph g;
  build_misused(g);
  Parameters parameters(g, Device::cpu());
  Program moved(g, {}, &parameters);
  Program program(std::move(moved));
  const auto expect = [&](const auto& work) { expect_argument_error("it was moved to another Program", work); };
  expect([&] { moved.run(); });
  expect([&] { moved.run({{"x", three(1)}}); });
  expect([&] { moved.wait(); });
  expect([&] { moved.fetch(0); });
  expect([&] { moved.set_input(0, three(1)); });
  expect([&] { moved.bind(g); });
  expect([&] { moved.input_names(); });
  expect([&] { moved.fetch_names(); });
  expect([&] { moved.input_index("x"); });
  expect([&] { moved.fetch_index("y"); });
  expect([&] { moved.input_type(0); });
  expect([&] { moved.fetch_type(0); });
  expect([&] { moved.printed(); });
  expect([&] { moved.report(); });
  expect([&] { moved.plan_text(); });
  expect([&] { moved.kernel_text(); });
  EXPECT_EQ(program.run({{"x", three(1)}}).at("y").to_doubles(), Dense(3, 2.0));
  moved = std::move(program);
  EXPECT_EQ(moved.run({{"x", three(1)}}).at("y").to_doubles(), Dense(3, 4.0));
}

TEST(Misuse, OfParametersThatWereMovedFromIsAnError) {
  Graph g;
  build_misused(g);
  Parameters moved(g, Device::cpu());
  const Parameters parameters(std::move(moved));
  const auto expect = [&](const auto& work) { expect_argument_error("they were moved to other Parameters", work); };
  expect([&] { moved.names(); });
  expect([&] { moved.device(); });
  expect([&] { moved.get("w"); });
  expect([&] { moved.set("w", three(1)); });
  expect([&] { Program(g, {}, &moved); });
  expect([&] { find_nonfinite(g, moved, {{"x", three(1)}}); });
  expect([&] { values_of(moved); });
  EXPECT_EQ(parameters.get("w").to_doubles(), Dense(3, 0.0));
}

TEST(Misuse, OfATensorThatWasMovedFromFindsAnEmptyOne) {
  Tensor moved = three(1);
  const Tensor tensor(std::move(moved));
  EXPECT_EQ(moved.type(), Tensor().type());
  EXPECT_TRUE(moved.to_doubles().empty());
  Graph g;
  build_misused(g);
  Parameters parameters(g, Device::cpu());
  Program program(g, {}, &parameters);
  expect_error("input 'x' is f32[3], not f32[0]", ErrorKind::shape, [&] { program.run({{"x", moved}}); });
  expect_error("parameter 'w' is f32[3], not f32[0]", ErrorKind::shape, [&] { parameters.set("w", moved); });
  moved = three(2);
  Tensor other;
  other = std::move(moved);
  EXPECT_EQ(other.to_doubles(), Dense(3, 2.0));
  EXPECT_EQ(moved.size_bytes(), 0);
  expect_argument_error("there are none", [] { Tensor(Type{f32, Shape{3}}, nullptr); });
}

TEST(Misuse, OfProgramsWithoutAGraphIsAnError) {
  Programs none(Programs::Build{}, {});
  expect_argument_error("programs: there is no function that builds a graph", [&] { none.at({1}); });
  Programs empty([](const Programs::Key&) { return nullptr; }, {});
  expect_argument_error("programs: the function gave no graph for key 2, 3", [&] { empty.at({2, 3}); });
}

// ---- one at a time ----

TEST(Misuse, OfOneProgramByTwoThreadsIsAnErrorInTheSecond) {
  Graph g;
  build_misused(g, true);
  Parameters parameters(g, Device::cpu());
  std::promise<void> is_inside, may_go_on;
  CompileOptions options;
  bool is_first = true;
  options.on_print = [&](const Printed&) {
    if (!std::exchange(is_first, false)) return;
    is_inside.set_value();
    may_go_on.get_future().wait();
  };
  Program program(g, options, &parameters);
  Program bound = program.bind(g);
  bound.set_input(0, three(5));
  Tensors got;
  std::thread other([&] { got = program.run({{"x", three(1)}}); });
  is_inside.get_future().wait();
  const auto expect = [&](const auto& work) { expect_argument_error("is under way, on another thread", work); };
  expect([&] { program.run(); });
  expect([&] { program.run({{"x", three(1)}}); });
  expect([&] { program.set_input(0, three(1)); });
  expect([&] { program.fetch(0); });
  expect([&] { program.wait(); });
  expect([&] { program.printed(); });
  expect([&] { program.bind(g); });
  expect([&] { bound.run(); });  // the same arena
  may_go_on.set_value();
  other.join();
  EXPECT_EQ(got.at("y").to_doubles(), Dense(3, 2.0));
  bound.run();
  EXPECT_EQ(bound.fetch(0).to_doubles(), Dense(3, 12.0));
}

TEST(Misuse, OfAProgramInItsOwnCallbackIsAnError) {
  Graph g;
  build_misused(g, true);
  Parameters parameters(g, Device::cpu());
  Program* mine = nullptr;
  int calls = 0;
  CompileOptions options;
  options.on_print = [&](const Printed&) {
    ++calls;
    expect_argument_error("around this callback", [&] { mine->run(); });
    expect_argument_error("around this callback", [&] { mine->fetch(0); });
  };
  Program program(g, options, &parameters);
  mine = &program;
  EXPECT_EQ(program.run({{"x", three(1)}}).at("y").to_doubles(), Dense(3, 2.0));
  EXPECT_EQ(calls, 1);
}

TEST(Misuse, OfParametersInACallbackIsReadingOrAnError) {
  Graph g, reading;
  build_misused(g, true);
  build_misused(reading);
  for (const Execution execution : {Execution::captured, Execution::stepwise}) {
    Parameters parameters(g, Device::cpu());
    parameters.set("w", three(7));
    CompileOptions options;
    options.assign = false;
    Program reader(reading, options, &parameters), writer(reading, {}, &parameters);
    for (Program* each : {&reader, &writer}) each->set_input(0, three(1));
    int calls = 0;
    options.assign = true;
    options.execution = execution;
    const auto look = [&] {
      ++calls;
      EXPECT_EQ(parameters.get("w").to_doubles(), Dense(3, 7.0));
      expect_argument_error("parameter 'w' is set in a callback of a run", [&] { parameters.set("w", three(1)); });
      reader.run();
      EXPECT_EQ(reader.fetch(0).to_doubles(), Dense(3, 9.0));
      expect_argument_error("in a callback of a run that reads them", [&] { writer.run(); });
    };
    options.on_print = [&](const Printed&) { look(); };
    int steps = 0;
    options.on_step = [&](const StepSeen&) { steps += parameters.get("w").to_doubles().empty() ? 0 : 1; };
    Program program(g, options, &parameters);
    program.run({{"x", three(1)}});
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(steps > 0, execution == Execution::stepwise);
    EXPECT_EQ(parameters.get("w").to_doubles(), Dense(3, 9.0));
    writer.run();
    EXPECT_EQ(parameters.get("w").to_doubles(), Dense(3, 11.0));
  }
}

TEST(Misuse, OfParametersByAThreadThatACallbackWaitsForIsReading) {
  Graph g, reading;
  build_misused(g, true);
  build_misused(reading);
  Parameters parameters(g, Device::cpu());
  parameters.set("w", three(7));
  Program reader(reading, {.assign = false}, &parameters);
  int calls = 0;
  CompileOptions options;
  options.on_print = [&](const Printed&) {
    ++calls;
    std::thread([&] {
      EXPECT_EQ(parameters.get("w").to_doubles(), Dense(3, 7.0));
      EXPECT_EQ(reader.run({{"x", three(1)}}).at("y").to_doubles(), Dense(3, 9.0));
    }).join();
    if (calls == 2) throw std::runtime_error("mine");
  };
  Program program(g, options, &parameters);
  program.run({{"x", three(1)}});
  EXPECT_EQ(calls, 1);
  parameters.set("w", three(7));
  EXPECT_THROW(program.run(), std::runtime_error);
  EXPECT_EQ(parameters.get("w").to_doubles(), Dense(3, 7.0)) << "nothing was written, and nothing is locked";
}

TEST(Misuse, OfAProgramThatItsCallbackDestroysOrReplacesIsNone) {
  Graph g;
  build_misused(g, true);
  Parameters parameters(g, Device::cpu());
  for (const bool is_replaced : {false, true}) {
    for (const bool by_name : {false, true}) {
      parameters.set("w", three(7));
      std::optional<Program> program;
      int calls = 0;
      CompileOptions options;
      const auto counted = std::make_shared<int>(0);  // the callback's captures are there until it has returned
      options.on_print = [&, counted](const Printed&) {
        ++calls;
        program.reset();
        if (is_replaced) program.emplace(g, CompileOptions{}, &parameters);
        ++*counted;
      };
      program.emplace(g, options, &parameters);
      options.on_print = {};
      program->set_input(0, three(1));
      if (by_name) {
        EXPECT_EQ(program->run({{"x", three(1)}}).at("y").to_doubles(), Dense(3, 9.0));
      } else {
        program->run();
      }
      EXPECT_EQ(calls, 1);
      EXPECT_EQ(parameters.get("w").to_doubles(), Dense(3, 9.0)) << "the run came to its end";
      EXPECT_EQ(counted.use_count(), 1) << "and the program went with it";
      EXPECT_EQ(program.has_value(), is_replaced);
    }
  }
}

TEST(Misuse, OfAProgramThatIsDestroyedWhileAnotherIsBoundToItIsNone) {
  Graph g;
  build_misused(g);
  Parameters parameters(g, Device::cpu());
  std::optional<Program> program;
  bool is_bound = false;
  CompileOptions options;
  options.after_pass = [&](const std::string&, const Graph&) {
    if (is_bound) program.reset();
  };
  program.emplace(g, options, &parameters);
  is_bound = true;
  Program bound = program->bind(g);
  EXPECT_FALSE(program.has_value());
  EXPECT_EQ(bound.run({{"x", three(1)}}).at("y").to_doubles(), Dense(3, 2.0));
}

// ---- results ----

TEST(Misuse, OfResultsThatAreNotThereIsAnError) {
  Graph g;
  const Value x = g.input("x", f32, {3});
  g.fetch("y", gather(x * 2.0, g.input("id", i32, {})));
  const auto feeds = [](double value, double id) {
    return Tensors{{"x", three(value)}, {"id", Tensor::from(i32, {}, Dense{id})}};
  };
  Program program(g);
  Program bound = program.bind(g);
  expect_argument_error("fetch: 'y' is not there: the program has not run", [&] { program.fetch(0); });
  program.run(feeds(1, 0));
  expect_argument_error("fetch: 'y' is not there: the program has not run", [&] { bound.fetch(0); });
  EXPECT_EQ(program.fetch(0).to_doubles(), Dense{2});
  EXPECT_EQ(program.fetch(0).to_doubles(), Dense{2}) << "as often as wanted";
  bound.run(feeds(5, 0));
  expect_argument_error("another program has run in the same memory", [&] { program.fetch(0); });
  EXPECT_EQ(bound.fetch(0).to_doubles(), Dense{10});
  EXPECT_NE(message_of([&] { bound.run(feeds(5, 3)); }), "no error");
  expect_argument_error("the program's last run threw", [&] { bound.fetch(0); });
  program.run();
  EXPECT_EQ(program.fetch(0).to_doubles(), Dense{2});
  expect_argument_error("there is no number 1", [&] { program.fetch(1); });
}

TEST(Misuse, OfANameWithALineEndIsToldInOneLine) {
  const std::string name = "x\nfake: ok";
  Graph g;
  g.fetch(name, g.input(name, f32, {3}) * 2.0);
  Program program(g);
  const auto expect = [](const auto& work) { expect_argument_error("'x\\x0afake: ok'", work); };
  expect([&] { program.run({}); });
  expect([&] { program.run(); });
  expect([&] { program.fetch(0); });
  expect([&] { g.input(name, f32, {3}); });
  EXPECT_FALSE(has(program.plan_text(), "\nfake")) << program.plan_text();
}

TEST(Misuse, OfRunWithoutAFeedIsAnErrorUnlessTheLastValueIsToBeKept) {
  Graph g;
  const Value a = g.input("a", f32, {3}), b = g.input("b", f32, {3});
  g.fetch("y", a + 10.0 * b);
  Program program(g);
  expect_argument_error("run: no value is given for 'b'", [&] { program.run({{"a", three(1)}}); });
  expect_argument_error("was never set", [&] { program.run({{"a", three(1)}}, LeftOut::keep); });
  EXPECT_EQ(program.run({{"a", three(1)}, {"b", three(2)}}).at("y").to_doubles(), Dense(3, 21.0));
  expect_argument_error("run: no value is given for 'b'", [&] { program.run({{"a", three(1)}}); });
  expect_argument_error("run: no value is given for 'a', 'b'", [&] { program.run(Tensors{}); });
  expect_argument_error("there is none named 'c'", [&] {
    program.run({{"a", three(8)}, {"b", three(8)}, {"c", three(8)}});
  });
  expect_error("input 'b' is f32[3], not f32[]", ErrorKind::shape, [&] {
    program.run({{"a", three(8)}, {"b", Tensor::from(f32, {}, Dense{1})}});
  });
  EXPECT_EQ(program.run(Tensors{}, LeftOut::keep).at("y").to_doubles(), Dense(3, 21.0)) << "an error sets no input";
  EXPECT_EQ(program.run({{"a", three(3)}}, LeftOut::keep).at("y").to_doubles(), Dense(3, 23.0));
  program.set_input(program.input_index("b"), three(0));
  EXPECT_EQ(program.run(Tensors{}, LeftOut::keep).at("y").to_doubles(), Dense(3, 3.0));
}

TEST(Misuse, OfAForkedProcessIsAnErrorAndTheParentGoesOn) {
  if (max_threads() == 1) GTEST_SKIP() << "NOT CHECKED: one thread needs no others";
  Graph g;
  const Value x = g.input("x", f32, {300, 300});
  g.fetch("y", matmul(x, x));
  Program program(g);
  const Tensors feeds{{"x", Tensor::from(f32, {300, 300}, Dense(90'000, 1.0))}};
  program.run(feeds);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    const auto is_told = [](const auto& work) { return has(message_of(work), "was forked from one whose threads"); };
    const bool all = is_told([&] { program.run(feeds); }) && is_told([&] { Program{g}; });
    _exit(all ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(program.run(feeds).at("y").to_doubles()[0], 300);
}

}  // namespace
}  // namespace paoding::testing_program
