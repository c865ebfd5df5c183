// SPDX-License-Identifier: Apache-2.0
// Graphs on memory of the caller's, compared with programs; and the calls that are refused.
#include <gtest/gtest.h>

#include "paoding/placed.h"
#include "paoding/profile.h"
#include "profile/trace.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

// lerp of two values, its gradients, a scan, a result that is an input, and one that is a part of another.
void build_placed(Graph& g) {
  const Value a = g.input("a", f32, {6, 1}), b = g.input("b", f32, {6, 5}), t = g.input("t", f32, {5});
  g.input("unread", f32, {2});
  const Value y = lerp(a, b, t);
  g.fetch("y", y);
  const Values found = gradients(std::array{sum(y * y)}, std::array{a, b, t});
  for (const Value& each : found) g.fetch("d" + std::to_string(&each - found.data()), each);
  const StepResult made = scan({full(g, {5}, 0, f32)}, {y}, [](const Values& carry, const Values& element) {
    const Value next = tanh(carry[0] + element[0]);
    return step({next}, {next});
  });
  g.fetch("scanned", made.outputs[0]);
  g.fetch("last", made.carries[0]);
  g.fetch("same", b);
  g.fetch("part", slice(y, 0, 1, 3));
}

TEST(PlacedGraph, GivesWhatAProgramGivesInTheCallersMemory) {
  Graph g;
  build_placed(g);
  const Tensors feeds = to_tensors(g, make_feeds(g, 3)), wanted = Program(g).run(feeds);
  PlacedGraph placed(g, Device::cpu());
  ASSERT_EQ(placed.inputs().size(), 4u);
  EXPECT_EQ(placed.inputs()[1].name, "b");
  EXPECT_EQ(placed.inputs()[1].type, (Type{f32, {6, 5}}));
  std::vector<const void*> inputs;
  for (const PlacedGraph::Place& place : placed.inputs()) inputs.push_back(feeds.at(place.name).bytes());
  for (int run = 0; run < 2; ++run) {
    std::vector<Tensor> results;
    std::vector<void*> places;
    for (const PlacedGraph::Place& place : placed.results()) {
      results.emplace_back(place.type);
      places.push_back(results.back().bytes());
    }
    Tensor workspace(DType::u8, {placed.workspace_bytes() + 64});
    placed.run(inputs, places, workspace.bytes());
    for (std::size_t i = 0; i < results.size(); ++i) {
      const std::string& name = placed.results()[i].name;
      expect_close(name, results[i].to_doubles(), wanted.at(name).to_doubles(), 1e-6);
    }
  }
}

// Groups that share a parallel region start as one, wherever the caller has their operands.
TEST(PlacedGraph, GivesTheSameFromOtherMemoryWhereGroupsStartAsOne) {
  Graph g;
  for (int i = 0; i < 30; ++i) {
    const Value w = g.input("w" + std::to_string(i), f32, {64, 257});
    g.fetch("next" + std::to_string(i), w - tanh(w * (1.0 + i)));
  }
  PlacedGraph placed(g, Device::cpu());
  for (int run = 0; run < 3; ++run) {
    const Tensors feeds = to_tensors(g, make_feeds(g, 3 + static_cast<unsigned>(run))), wanted = Program(g).run(feeds);
    std::vector<const void*> inputs;
    for (const PlacedGraph::Place& place : placed.inputs()) inputs.push_back(feeds.at(place.name).bytes());
    std::vector<Tensor> results;
    std::vector<void*> places;
    for (const PlacedGraph::Place& place : placed.results()) {
      results.emplace_back(place.type);
      places.push_back(results.back().bytes());
    }
    Tensor workspace(DType::u8, {placed.workspace_bytes() + 64});
    placed.run(inputs, places, workspace.bytes());
    for (std::size_t i = 0; i < results.size(); ++i) {
      const std::string& name = placed.results()[i].name;
      EXPECT_EQ(results[i].to_doubles(), wanted.at(name).to_doubles()) << name;
    }
  }
}

// A placed graph's ops appear as often as a program's, by the same names.
TEST(PlacedGraph, IsSeenInRecordings) {
  Graph g;
  build_placed(g);
  const Tensors feeds = to_tensors(g, make_feeds(g, 3));
  Program program(g);
  PlacedGraph placed(g, Device::cpu());
  std::vector<const void*> inputs;
  for (const PlacedGraph::Place& place : placed.inputs()) inputs.push_back(feeds.at(place.name).bytes());
  std::vector<Tensor> results;
  std::vector<void*> places;
  for (const PlacedGraph::Place& place : placed.results()) places.push_back(results.emplace_back(place.type).bytes());
  const Tensor workspace(DType::u8, {placed.workspace_bytes() + 64});
  program.run(feeds);
  const auto ops_of = [&](const auto& run) {
    Profiler seen(State::cpu);
    for (int i = 0; i < 3; ++i) run();
    seen.end();
    const profile::Trace& trace = seen.trace();
    std::map<std::string, int> ops;
    EXPECT_EQ(trace.runs().size(), 3u);
    for (profile::SpanId i = 0; i < trace.size(); ++i) {
      if (trace.kind(i) != profile::SpanKind::op) continue;
      ++ops[std::string(trace.text(trace.site(i).instance))];
      EXPECT_EQ(trace.kind(trace.parent(i)), profile::SpanKind::run);
      EXPECT_FALSE(trace.text(trace.site(i).kernel).empty());
    }
    return ops;
  };
  const auto of_program = ops_of([&] { program.run(); });
  const auto of_placed = ops_of([&] { placed.run(inputs, places, const_cast<std::byte*>(workspace.bytes())); });
  EXPECT_GE(of_program.size(), 5u);
  EXPECT_EQ(of_placed, of_program);
}

TEST(PlacedGraph, SaysWhatIsWrong) {
  Graph g;
  g.fetch("y", g.input("x", f32, {4}) * 2.0);
  PlacedGraph placed(g, Device::cpu());
  alignas(64) std::byte memory[256];
  void* const workspace = memory + 128;
  const auto run = [&](const void* x, void* y) { placed.run(std::array{x}, std::array{y}, workspace); };
  run(memory, memory + 64);
  const auto says = [](auto&& work, std::string_view part) {
    const std::string message = message_of(work);
    EXPECT_TRUE(has(message, part)) << message;
  };
  says([&] { run(nullptr, memory); }, "x is null, needed are 16 bytes");
  says([&] { run(memory, memory + 4); }, "needs to be aligned to 64 bytes");
  says([&] { placed.run({}, std::array<void*, 1>{memory}, workspace); }, "0 inputs are given, there are 1");
  Graph trained;
  trained.fetch("y", trained.parameter("w", f32, {4}) * 2.0);
  says([&] { PlacedGraph(trained, Device::cpu()); }, "it has the parameter 'w', but no Parameters");
}

}  // namespace
}  // namespace paoding::testing_program
