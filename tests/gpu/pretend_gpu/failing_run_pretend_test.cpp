// SPDX-License-Identifier: Apache-2.0
// A run that fails on a GPU writes nothing, nor does any that was enqueued after it; the error comes with the next
// wait, and then the next run works. Written values are compared with the CPU's programs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paoding/nn.h"
#include "tests/gpu/kernel_texts.h"
#include "tests/gpu/pretend_gpu/pretend_program.h"

namespace paoding::testing_program {
namespace {

Tensor index(double value) { return Tensor::from(i32, {}, Dense{value}); }
Tensor ramp(const Shape& shape, double first, double step) {
  Dense values;
  for (std::int64_t i = 0; i < shape.elements(); ++i) values.push_back(first + step * static_cast<double>(i));
  return Tensor::from(f32, shape, values);
}

// Parameters w [4, 3] and count [1] are written; a row of x is read by an index that may be out of range.
void build_failing(Graph& g) {
  const Value w = g.parameter("w", f32, {4, 3}), count = g.parameter("count", f32, {1});
  const Value x = g.input("x", f32, {4, 3});
  assign(w, w * 0.5 + x);
  assign(count, count + 1.0);
  g.fetch("row", gather(x, g.input("id", i32, {})));
}

Tensors feeds(double id) { return {{"x", ramp({4, 3}, 0.5, 1)}, {"id", index(id)}}; }

void set_feeds(Program& program, double id) {
  for (const auto& [name, tensor] : feeds(id)) program.set_input(program.input_index(name), tensor);
}

std::map<std::string, Dense> values(const Parameters& parameters) {
  std::map<std::string, Dense> all;
  for (const std::string& name : parameters.names()) all[name] = parameters.get(name).to_doubles();
  return all;
}

struct OnBoth {
  explicit OnBoth(const std::function<void(Graph&)>& make, Execution execution = Execution::captured, int repeats = 1) {
    make(graph);
    parameters.emplace(graph, Device::cuda(0));
    expected.emplace(graph, Device::cpu());
    CompileOptions options = on_gpu(execution), cpu;
    options.repeats = cpu.repeats = repeats;
    program.emplace(graph, options, &*parameters);
    on_cpu.emplace(graph, cpu, &*expected);
  }
  Graph graph;
  std::optional<Parameters> parameters, expected;
  std::optional<Program> program, on_cpu;
};

TEST(FailingRunOnAGpu, WritesNothingAndSaysWhatACpuSays) {
  for (const Execution execution : {Execution::captured, Execution::stepwise}) {
    OnBoth both(build_failing, execution);
    for (unsigned seed = 0; seed < 6; ++seed) {
      pretend_gpu().schedule(seed, 3);
      both.program->run(feeds(2)), both.on_cpu->run(feeds(2));
      EXPECT_EQ(values(*both.parameters), values(*both.expected));
      const std::string error = message_of([&] { both.on_cpu->run(feeds(9)); });
      EXPECT_EQ(message_of([&] { both.program->run(feeds(9)); }), error);
      EXPECT_TRUE(has(message_of([&] { both.program->fetch(0); }), "the program's last run threw"));
      EXPECT_EQ(values(*both.parameters), values(*both.expected));
    }
  }
}

TEST(FailingRunOnAGpu, ComesOutAtTheNextWaitAndStopsTheRunsAfterIt) {
  OnBoth both(build_failing);
  for (unsigned seed = 0; seed < 6; ++seed) {
    pretend_gpu().schedule(seed, 2);
    both.on_cpu->run(feeds(1));
    set_feeds(*both.program, 1);
    both.program->run();
    set_feeds(*both.program, -3);
    both.program->run();
    set_feeds(*both.program, 9);  // another fault, after the first: nobody hears of it
    both.program->run();
    set_feeds(*both.program, 0);
    both.program->run();
    EXPECT_TRUE(has(message_of([&] { both.program->wait(); }), "indices[] = -3"));
    EXPECT_EQ(values(*both.parameters), values(*both.expected));
    both.program->run(), both.on_cpu->run(feeds(0));
    EXPECT_EQ(both.program->fetch(0).to_doubles(), both.on_cpu->fetch(0).to_doubles());
    EXPECT_EQ(values(*both.parameters), values(*both.expected));
  }
}

TEST(FailingRunOnAGpu, StopsOtherProgramsThatWriteTheSameParameters) {
  OnBoth both(build_failing);
  Graph other_graph;
  build_failing(other_graph);
  const Value v = other_graph.find("w");
  other_graph.fetch("sum", sum(v));
  Program other(other_graph, on_gpu(), &*both.parameters);
  set_feeds(other, 1);
  for (const bool waits_for_the_other : {true, false}) {
    const auto before = values(*both.parameters);
    set_feeds(*both.program, 7);
    both.program->run();
    Program& first = waits_for_the_other ? other : *both.program;
    const std::string error = message_of([&] {
      other.run();
      first.wait();
    });
    EXPECT_TRUE(has(error, "indices[] = 7")) << error;
    EXPECT_EQ(values(*both.parameters), before);
    other.run();
    EXPECT_EQ(other.fetch(0).to_doubles(), (Dense{3.5, 4.5, 5.5}));
    EXPECT_NE(values(*both.parameters), before);
  }
}

TEST(FailingRunOnAGpu, IsForgottenWithItsProgram) {
  OnBoth both(build_failing);
  const auto before = values(*both.parameters);
  set_feeds(*both.program, 7);
  both.program->run();
  both.program.reset();
  EXPECT_EQ(values(*both.parameters), before);
  Program again(both.graph, on_gpu(), &*both.parameters);
  again.run(feeds(1));
  EXPECT_NE(values(*both.parameters), before);
}

TEST(FailingRunOnAGpu, OfSeveralRepeatsKeepsThoseThatEnded) {
  const auto make = [](Graph& g) {
    const Value count = g.parameter("count", i32, {}), total = g.parameter("total", f32, {});
    assign(count, count + 1.0);
    assign(total, total + gather(g.input("x", f32, {3}), count));
  };
  OnBoth both(make, Execution::captured, 5);
  const Tensors x{{"x", ramp({3}, 1, 1)}};
  const std::string error = message_of([&] { both.on_cpu->run(x); });
  EXPECT_TRUE(has(error, "(in repeat 4 of 5: what was written before it stays)")) << error;
  both.program->run(x);
  EXPECT_EQ(message_of([&] { both.program->wait(); }), error);
  EXPECT_EQ(values(*both.parameters), values(*both.expected));
}

// The last of two values is made where the first is written already.
TEST(FailingRunOnAGpu, WritesNothingWhenSomebodyWhoLooksOnThrows) {
  Graph g;
  build_failing(g);
  Parameters parameters(g, Device::cuda(0));
  CompileOptions options = on_gpu(Execution::stepwise);
  int left = 1000;
  options.on_step = [&](const StepSeen&) {
    if (--left == 0) throw std::runtime_error("seen enough");
  };
  Program program(g, options, &parameters);
  program.run(feeds(1));
  const int steps = 1000 - left;
  const auto before = values(parameters);
  for (int at = 1; at <= steps; ++at) {
    left = at;
    EXPECT_THROW(program.run(feeds(1)), std::runtime_error);
    EXPECT_EQ(values(parameters), before) << at;
  }
}

// A library's kernel cannot be called off: one of ours copies its result into the parameter.
TEST(FailingRunOnAGpu, LetsNoLibraryWriteAParameterItself) {
  const auto notes = [](bool may_fail) {
    Graph g;
    const Value a = g.input("a", f64, {64, 64});
    assign(g.parameter("w", f64, {64, 64}), matmul(a, a));
    if (may_fail) g.fetch("row", gather(a, g.input("id", i32, {})));
    const Plan plan = plan_for_gpu(g);
    return fmt::format("{}", fmt::join(plan.notes, "\n"));
  };
  EXPECT_FALSE(has(notes(false), "a library's kernel makes it")) << notes(false);
  EXPECT_TRUE(has(notes(true),
                  "'w' is written by a copy at the end: a library's kernel makes it, which runs also when "
                  "gather has failed"))
      << notes(true);
}

}  // namespace
}  // namespace paoding::testing_program
