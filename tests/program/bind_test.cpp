// SPDX-License-Identifier: Apache-2.0
// bind(): another shape of the same model is planned anew and compiles no kernel. That other sizes of one class have
// the same kernel sources is checked without a GPU, on the sources.
#include "tests/support/program_check.h"

#if PAODING_WITH_CUDA
#include "tests/gpu/kernel_texts.h"
#endif

namespace paoding::testing_program {
namespace {

void expect_right(Program& program, const Graph& graph, unsigned seed) {
  const Feeds feeds = make_feeds(graph, seed);
  const Tensors got = program.run(to_tensors(graph, feeds));
  for (const auto& [name, values] : evaluate_graph(graph, feeds)) {
    expect_close(name, got.at(name).to_doubles(), values, 1e-5);
  }
}

TEST(Bind, GivesTheSameModelOtherLengthsAndBatches) {
  Graph first;
  build_lstm(first, {.steps = 5, .batch = 3});
  Program program(first);
  expect_right(program, first, 1);
  for (const LstmSize& size :
       {LstmSize{.steps = 9, .batch = 3}, LstmSize{.steps = 2, .batch = 8}, LstmSize{.steps = 40, .batch = 1}}) {
    Graph other;
    build_lstm(other, size);
    Program bound = program.bind(other);
    EXPECT_EQ(bound.report().kernels_compiled, 0);
    expect_right(bound, other, 2);
    expect_right(program, first, 3);  // the one it came from still runs, and they may take turns
    expect_right(bound, other, 4);
  }
}

TEST(Bind, SharesParameters) {
  const LstmSize size{.has_gradients = false, .has_parameters = true};
  Graph first, other;
  build_lstm(first, size);
  build_lstm(other, {.steps = 7, .batch = 2, .has_gradients = false, .has_parameters = true});
  Parameters parameters(first, Device::cpu());
  Program program(first, {}, &parameters), bound = program.bind(other);
  const Feeds feeds = make_feeds(other, 5);
  for (const std::string& name : parameters.names()) {
    const Type type = parameters.get(name).type();
    parameters.set(name, Tensor::from(type.dtype, type.shape, feeds.at(name)));
  }
  expect_right(bound, other, 5);
}

TEST(Bind, KeepsTheOptions) {
  Graph first, other;
  for (auto [graph, extent] : {std::pair(&first, 3), std::pair(&other, 5)}) {
    const Value x = graph->input("x", f32, {extent});
    graph->fetch("y", x * 2.0);
    graph->fetch("z", tanh(x) + 1.0);
  }
  CompileOptions options;
  options.fetches = {"z"};
  options.disabled_passes = {"fuse_groups"};
  Program program(first, options), bound = program.bind(other);
  EXPECT_EQ(bound.fetch_names(), (std::vector<std::string>{"z"}));
  EXPECT_EQ(bound.report().launches, 2);
  Graph without;
  without.fetch("y", without.input("x", f32, {3}) * 2.0);
  EXPECT_THROW(program.bind(without), Error);
}

TEST(Bind, OutlivesTheProgramItCameFrom) {
  Graph first, other;
  build_lstm(first, {});
  build_lstm(other, {.steps = 3});
  auto program = std::make_unique<Program>(first);
  Program bound = program->bind(other);
  program.reset();
  expect_right(bound, other, 6);
}

#if PAODING_WITH_CUDA
std::set<std::string> lstm_texts(std::int64_t steps, std::int64_t batch) {
  Graph graph;
  build_lstm(graph, {.steps = steps, .batch = batch, .inputs = 512, .hidden = 512});
  return kernel_texts(graph);
}

TEST(Bind, NeedsNoNewKernelSourceForOtherLengths) {
  // At batch 1 the bias gradient sums as few rows as there are steps: its tile follows them. See the next test.
  for (const int batch : {32, 128}) {
    // Products of a few thousand rows are our own, whose tile, of a few, is chosen by their number.
    std::set<std::string> known;
    for (const int steps : {8, 20, 37, 64}) known.merge(lstm_texts(steps, batch));
    EXPECT_FALSE(known.empty());
    for (const int steps : {23, 40, 50, 72, 128}) {
      for (const std::string& text : lstm_texts(steps, batch)) {
        EXPECT_TRUE(known.contains(text)) << "T" << steps << " B" << batch << " has a text of its own:\n" << text;
      }
    }
  }
}

// Tiles are wider where there are more elements, so a much larger batch may have texts of its own; all batches
// together have few.
TEST(Bind, HasFewKernelSourcesForAllBatches) {
  std::set<std::string> all;
  std::size_t most = 0;
  for (int batch = 1; batch <= 256; batch += batch < 8 ? 1 : 8) {
    const std::set<std::string> texts = lstm_texts(20, batch);
    most = std::max(most, texts.size());
    all.insert(texts.begin(), texts.end());
  }
  for (const int steps : {1, 7, 50, 64, 128, 512}) all.merge(lstm_texts(steps, 1));
  std::printf("LSTM H512 with gradients: at most %zu texts for one batch, %zu for all of 1 to 256\n", most, all.size());
  EXPECT_LE(all.size(), 5 * most);
}
#endif

}  // namespace
}  // namespace paoding::testing_program
