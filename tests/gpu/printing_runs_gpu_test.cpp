// SPDX-License-Identifier: Apache-2.0
// Runs on a GPU that print: values are handed over before anything is written, so that a listener who throws ends the
// run as on the CPU. Programs on the CPU give the right values. On the pretended GPU under many schedules.
#include <fmt/ranges.h>

#include "base/check.h"
#include "tests/gpu/enqueued_runs.h"

namespace paoding::testing_program {
namespace {

// w [4] and count [] are written; x [4] is read at an index that may be out of range.
void build_printing(Graph& g) {
  const Value w = g.parameter("w", f32, {4}), count = g.parameter("count", i32, {}), x = g.input("x", f32, {4});
  print(w, "w");
  const Value next = print(w * 0.5 + x, "next");
  assign(w, next);
  assign(count, count + 1.0);
  g.fetch("taken", gather(x, count + g.input("more", i32, {})));
}

Tensors feeds(double more) { return {{"x", input(4, 3)}, {"more", Tensor::from(i32, {}, Dense{more})}}; }

std::vector<Dense> printed_values(const Parameters& parameters) {
  return {parameters.get("w").to_doubles(), parameters.get("count").to_doubles()};
}

// The same program on both devices. Prints are kept; the one whose number comes down to 0 is not taken.
struct Both {
  explicit Both(const std::function<void(Graph&)>& make, int repeats = 1) {
    make(graph);
    parameters.emplace(graph, gpu_here());
    expected.emplace(graph, Device::cpu());
    CompileOptions gpu = on_gpu(), cpu;
    gpu.repeats = cpu.repeats = repeats;
    gpu.on_print = [this](const Printed& p) { take(p, &printed, &left); };
    cpu.on_print = [this](const Printed& p) { take(p, &wanted, &left_on_cpu); };
    program.emplace(graph, gpu, &*parameters);
    on_cpu.emplace(graph, cpu, &*expected);
  }
  static void take(const Printed& p, std::vector<std::string>* all, int* left) {
    if (--*left == 0) fail(ErrorKind::argument, "enough of {}", p.message);
    all->push_back(fmt::format("{} {}", p.message, fmt::join(p.value.to_doubles(), " ")));
  }
  void run(double more) {
    const std::string error = message_of([&] { on_cpu->run(feeds(more)); });
    EXPECT_EQ(message_of([&] { program->run(feeds(more)); }), error);
    EXPECT_EQ(printed_values(*parameters), printed_values(*expected));
  }
  Graph graph;
  std::optional<Parameters> parameters, expected;
  std::vector<std::string> printed, wanted;
  int left = 0, left_on_cpu = 0;
  std::optional<Program> program, on_cpu;
};

TEST(PrintingRuns, WriteNothingWhenTheListenerThrows) {
  PD_SKIP_WITHOUT_A_GPU();
  Both both(build_printing);
  for (unsigned seed = 0; seed < 6; ++seed) {
    schedule(seed, seed % 3);
    for (const int thrown_at : {0, 1, 2, 0}) {
      both.left = both.left_on_cpu = thrown_at;
      both.run(-static_cast<double>(printed_values(*both.expected)[1][0]));
    }
    EXPECT_EQ(both.printed, both.wanted);
  }
}

TEST(PrintingRuns, OfSeveralRepeatsKeepWhatWasWrittenBeforeTheListenerThrew) {
  PD_SKIP_WITHOUT_A_GPU();
  Both both(build_printing, 3);
  for (unsigned seed = 0; seed < 6; ++seed) {
    schedule(seed, seed % 3);
    for (const int thrown_at : {0, 1, 4, 6, 0}) {
      both.left = both.left_on_cpu = thrown_at;
      both.run(-static_cast<double>(printed_values(*both.expected)[1][0]));
    }
    EXPECT_EQ(both.printed, both.wanted);
  }
  EXPECT_GT(both.printed.size(), 50u);
}

TEST(PrintingRuns, ThatFailAfterOneThatTheListenerEndedAreToldByTheirOwnNumber) {
  PD_SKIP_WITHOUT_A_GPU();
  Both both(build_printing, 3);
  const auto start = [&] { return -static_cast<double>(printed_values(*both.expected)[1][0]); };
  both.run(start());
  both.left = both.left_on_cpu = 3;  // in the second repeat
  both.run(start());
  both.left = both.left_on_cpu = 0;
  for (const int fails_at : {3, 2, 1}) {
    const Tensors failing = feeds(start() + 5 - fails_at);
    const std::string error = message_of([&] { both.program->run(failing); });
    EXPECT_TRUE(has(error, "indices[] = 4")) << error;
    EXPECT_TRUE(has(error, fmt::format("(in repeat {} of 3: what was written before it stays)", fails_at))) << error;
    EXPECT_EQ(message_of([&] { both.on_cpu->run(failing); }), error);
    EXPECT_EQ(printed_values(*both.parameters), printed_values(*both.expected));
    both.run(start());
  }
}

// The reader goes in a stream of its own, and a run that writes the value does not wait for it.
TEST(PrintingRuns, WriteAfterTheReadersThatTheListenerHasStarted) {
  PD_SKIP_WITHOUT_A_GPU();
  Graph g, evaluated;
  const Value w = g.parameter("w", f32, {64}), x = g.input("x", f32, {64});
  assign(w, print(w * 0.5 + x, "next"));
  build_evaluation(evaluated, 64);
  Parameters parameters(g, gpu_here()), expected(g, Device::cpu());
  Program look(evaluated, on_gpu(), &parameters), look_on_cpu(evaluated, {}, &expected);
  std::vector<Fetched> got;
  CompileOptions options = on_gpu();
  options.on_print = [&](const Printed&) {
    look.run();
    got.push_back(look.fetch_later(0));
  };
  Program program(g, options, &parameters), on_cpu(g, {}, &expected);
  for (unsigned seed = 0; seed < 20; ++seed) {
    schedule(seed, seed % 3);
    got.clear();
    std::vector<Dense> want;
    for (int step = 0; step < 4; ++step) {
      look_on_cpu.run();
      want.push_back(look_on_cpu.fetch(0).to_doubles());
      program.set_input(0, input(64, step + static_cast<int>(seed)));
      on_cpu.set_input(0, input(64, step + static_cast<int>(seed)));
      program.run(), on_cpu.run();
    }
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].value().to_doubles(), want[i]) << "seed " << seed;
    EXPECT_EQ(parameters.get("w").to_doubles(), expected.get("w").to_doubles());
  }
}

}  // namespace
}  // namespace paoding::testing_program
