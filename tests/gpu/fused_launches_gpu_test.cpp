// SPDX-License-Identifier: Apache-2.0
// Kernels of a captured run that do not touch each other's results share a launch: the same bits as one by one, and
// nothing that depends on another goes together with it. On the pretended GPU under many schedules.
#include <fmt/ranges.h>

#include <random>

#include "paoding/nn.h"
#include "paoding/optimizer.h"
#include "schedule/schedule.h"
#include "tests/gpu/enqueued_runs.h"
#include "tests/gpu/kernel_texts.h"

namespace paoding::testing_program {
namespace {

// The program captured, and step by step, from the same parameters.
struct BothWays {
  explicit BothWays(const std::function<void(Graph&)>& make) {
    make(graph);
    CompileOptions options = on_gpu();
    together.emplace(graph, gpu_here());
    fused.emplace(graph, options, &*together);
    options.execution = Execution::stepwise;
    apart.emplace(graph, gpu_here());
    alone.emplace(graph, options, &*apart);
  }
  void run(const Tensors& feeds) {
    const Tensors got = fused->run(feeds), want = alone->run(feeds);
    for (const auto& [name, tensor] : want) EXPECT_EQ(got.at(name).to_doubles(), tensor.to_doubles()) << name;
    for (const std::string& name : together->names()) {
      EXPECT_EQ(together->get(name).to_doubles(), apart->get(name).to_doubles()) << name;
    }
  }
  std::int64_t saved() const { return alone->report().launches - fused->report().launches; }

  Graph graph;
  std::optional<Parameters> together, apart;
  std::optional<Program> fused, alone;
};

std::string name_of(int i) { return "w" + std::to_string(i); }

TEST(FusedLaunches, OfAnOptimizerAreOneForAllParametersOfAKind) {
  PD_SKIP_WITHOUT_A_GPU();
  constexpr int kParameters = 12;
  BothWays both([](Graph& g) {
    const Value x = g.input("x", f32, {16});
    std::vector<Value> terms;
    for (int i = 0; i < kParameters; ++i) {
      const Value w = g.parameter(name_of(i), i % 3 == 2 ? bf16 : f32, {16 * (i + 1), 16});
      terms.push_back(sum(square(cast(w, f32) * x)));
    }
    minimize(add_n(terms), Adam{});
  });
  EXPECT_GE(both.saved(), kParameters - 2);
  for (int i = 0; i < 3; ++i) both.run({{"x", input(16, 3 + i)}});
}

TEST(FusedLaunches, OfSumsHaveWorkspacesOfTheirOwn) {
  PD_SKIP_WITHOUT_A_GPU();
  constexpr std::int64_t kElements = 400'000;  // by many CTAs
  BothWays both([](Graph& g) {
    for (int i = 0; i < 4; ++i) {
      const Value w = g.parameter(name_of(i), f32, {kElements + 4 * i});
      g.fetch("norm" + std::to_string(i), sum(square(w + 0.5)));
    }
  });
  EXPECT_GE(both.saved(), 3);
  both.run({});
}

TEST(FusedLaunches, OfGroupsWithASumBesideWhatIsSummedAreFollowedByOneThatAddsUp) {
  PD_SKIP_WITHOUT_A_GPU();
  const Shape shape{800, 16, 9, 16};  // by as many CTAs as leave their sums to a second launch
  BothWays both([&](Graph& g) {
    for (int i = 0; i < 2; ++i) {
      const std::string suffix = std::to_string(i);
      const Value y = g.input("y" + suffix, f32, shape), dy = g.input("dy" + suffix, f32, shape);
      const Value dx = where(greater(y, 0), dy, 0);
      g.fetch("dx" + suffix, dx), g.fetch("sums" + suffix, sum(dx, Ints{0, 2, 3}));
    }
  });
  const Plan plan = plan_for_gpu(both.graph);
  ASSERT_EQ(plan.steps.size(), 2u);
  for (const Step& step : plan.steps) EXPECT_EQ(step.text->launches.size(), 2u);
  EXPECT_EQ(both.saved(), 1);
  Tensors feeds;
  for (int i = 0; i < 2; ++i) {
    for (const char* name : {"y", "dy"}) {
      Dense values(static_cast<std::size_t>(shape.elements()));
      for (std::size_t k = 0; k < values.size(); ++k) values[k] = double((k * 7 + k / 11 + std::size_t(i)) % 5) - 2;
      feeds.emplace(name + std::to_string(i), Tensor::from(f32, shape, values));
    }
  }
  both.run(feeds);
}

TEST(FusedLaunches, NeverHoldAKernelWithOneThatReadsItsResult) {
  PD_SKIP_WITHOUT_A_GPU();
  BothWays both([](Graph& g) {
    const Value x = reshape(g.input("x", f32, {64 * 48}), {64, 48});
    std::vector<Value> rows;
    for (int i = 0; i < 4; ++i) rows.push_back(sum(x * double(i + 1), Ints{0}));  // side by side
    const Value y = softmax(rows[0] + rows[1]), z = cumsum(y);                    // one after the other
    g.fetch("y", y + rows[2]);
    g.fetch("z", z * rows[3]);
    g.fetch("all", sum(y * z));
  });
  for (int i = 0; i < 3; ++i) both.run({{"x", input(64 * 48, i)}});
}

TEST(FusedLaunches, OfRunsThatFailWriteNothing) {
  PD_SKIP_WITHOUT_A_GPU();
  BothWays both([](Graph& g) {
    const Value at = g.input("at", i32, {});
    g.fetch("taken", gather(g.input("x", f32, {8}), at));
    for (int i = 0; i < 5; ++i) {
      const Value w = g.parameter(name_of(i), f32, {8 * i + 8});
      assign(w, w * 0.5 + 1.0);
    }
  });
  EXPECT_EQ(both.saved(), 4);
  const auto feeds = [](double at) { return Tensors{{"x", input(8, 3)}, {"at", Tensor::from(i32, {}, Dense{at})}}; };
  both.run(feeds(7));
  const Dense before = both.together->get("w3").to_doubles();
  EXPECT_NE(message_of([&] { both.fused->run(feeds(8)); }), "");
  EXPECT_EQ(both.together->get("w3").to_doubles(), before);
  both.run(feeds(2));
}

// Two directions of a layer, which do not depend on each other; of rows and units of which few CTAs make all steps.
void build_both_directions(Graph& g, RecurrentKind kind, DType dtype, std::int64_t rows, std::int64_t units,
                           bool has_lengths) {
  constexpr std::int64_t kSteps = 5, kFeatures = 12;
  const nn::RecurrentLayerOptions layer{.layers = 2, .bidirectional = true, .dtype = dtype};
  const Value xs = cast(g.input("xs", f32, {kSteps, rows, kFeatures}), dtype);
  RecurrentOptions options;
  if (has_lengths) options.lengths = g.input("lengths", i32, {rows});
  const auto outputs_of = [&](const nn::Recurrent& both) { return both(xs, options).outputs; };
  const Value ys = kind == RecurrentKind::lstm  ? outputs_of(nn::Lstm(g, "both", kFeatures, units, layer))
                   : kind == RecurrentKind::gru ? outputs_of(nn::Gru(g, "both", kFeatures, units, layer))
                                                : outputs_of(nn::Rnn(g, "both", kFeatures, units, layer));
  g.fetch("ys", ys);
  minimize(mean(square(cast(ys, f32))), Sgd{});
}

// Counts the layers over time among the steps that share launches.
int layers_that_share(const Graph& graph) {
  const Plan plan = plan_for_gpu(graph);
  const std::string told = fmt::format("{}", fmt::join(make_schedule(plan).notes, "\n"));
  int count = 0;
  for (const Step& step : plan.steps) {
    if (step.kind != Step::Kind::kernel || !has(step.call.op->name, "_recurrence")) continue;
    const int position = step.position;
    count += has(told, fmt::format("steps {}, {}: 2 kernels in one launch", position, position + 1)) ? 2 : 0;
  }
  return count;
}

class BothDirections : public ::testing::TestWithParam<std::tuple<RecurrentKind, DType, bool>> {};

TEST_P(BothDirections, ShareTheLaunchesOfALayerAndOfItsGradient) {
  const auto& [kind, dtype, has_lengths] = GetParam();
  Graph graph;
  build_both_directions(graph, kind, dtype, 3, 24, has_lengths);
  EXPECT_EQ(layers_that_share(graph), 8) << "two layers forward, and back";
  PD_SKIP_WITHOUT_A_GPU();
  BothWays both([&](Graph& g) { build_both_directions(g, kind, dtype, 3, 24, has_lengths); });
  for (int i = 0; i < 2; ++i) {
    Tensors feeds{{"xs", Tensor::from(f32, {5, 3, 12}, input(5 * 3 * 12, 3 + i).to_doubles())}};
    if (has_lengths) feeds.emplace("lengths", Tensor::from(i32, {3}, Dense{4, 0, 5}));
    both.run(feeds);
  }
}

INSTANTIATE_TEST_SUITE_P(Recurrences, BothDirections,
                         ::testing::Combine(::testing::Values(RecurrentKind::lstm, RecurrentKind::gru,
                                                              RecurrentKind::rnn),
                                            ::testing::Values(bf16), ::testing::Bool()));

TEST(FusedLaunches, HoldBothDirectionsOnlyWhereTheChipHasRoomForBoth) {
  for (const auto& [rows, shared] : {std::pair{1, 8}, {3, 8}, {128, 0}}) {
    Graph g;
    build_both_directions(g, RecurrentKind::lstm, bf16, rows, 512, false);
    EXPECT_EQ(layers_that_share(g), shared) << rows << " rows";
  }
}

// A decoder's step with dropout and attention to a memory [S, B, E], and its gradients: groups that read each other's
// results row by row.
void build_attention(Graph& g, std::int64_t steps, std::int64_t rows, std::int64_t places, std::int64_t width,
                     double dropped) {
  const Value memory = g.input("memory", f32, {places, rows, width});
  const Value w = g.input("w", f32, {2 * width, width}), h = g.input("h", f32, {rows, width});
  const Value counts = reshape(g.input("counts", boolean, {places, rows}), {places, rows, 1});
  const Value xs = g.input("xs", f32, {steps, rows, width});
  const StepResult loop = scan({h}, {xs}, [&](const Values& carry, const Values& element) {
    Value query = tanh(carry[0] + sigmoid(element[0]) * 0.5);
    if (dropped > 0) query = dropout(query, dropped);
    const Value scores = sum(memory * reshape(query, {1, rows, width}), Ints{2}, true);
    const Value weights = softmax(select(counts, scores, -1e30), 0);
    const Value context = sum(weights * memory, Ints{0});
    return step({matmul(concat(Values{context, query}, 1), w)}, {context});
  });
  const Value loss = mean(square(loop.carries[0])) + mean(square(loop.outputs[0]));
  g.fetch("loss", loss);
  g.fetch("contexts", loop.outputs[0]);
  const Values grads = gradients(loss, {memory, w, h});
  g.fetch("d_memory", grads[0]);
  g.fetch("d_w", grads[1]);
  g.fetch("d_h", grads[2]);
}

struct AttentionSizes {
  std::int64_t steps, rows, places, width;
};

class VerticalLaunches : public ::testing::TestWithParam<std::tuple<AttentionSizes, DType>> {};

// On the CPU in f32 as the reference.
TEST_P(VerticalLaunches, OfAttentionInALoopGiveWhatKernelsOneByOneGive) {
  PD_SKIP_WITHOUT_A_GPU();
  const auto& [sizes, dtype] = GetParam();
  const auto& [steps, rows, places, width] = sizes;
  Graph graph;
  build_attention(graph, steps, rows, places, width, 0.3);
  CompileOptions captured = on_gpu(), stepwise = on_gpu(), cpu;
  captured.precision = stepwise.precision = dtype;
  stepwise.execution = Execution::stepwise;
  cpu.device = Device::cpu();
  Dense counts;
  for (std::int64_t i = 0; i < places * rows; ++i) counts.push_back(i % 7 < 5 || i < rows ? 1 : 0);
  std::mt19937 random(7);
  const auto normal = [&](Shape shape, double scale) {
    Dense values(static_cast<std::size_t>(shape.elements()));
    std::normal_distribution<double> draw(0, scale);
    for (double& value : values) value = draw(random);
    return Tensor::from(f32, shape, values);
  };
  const Tensors feeds{{"xs", normal({steps, rows, width}, 1)},
                      {"memory", normal({places, rows, width}, 1)},
                      {"w", normal({2 * width, width}, 0.5 / std::sqrt(double(width)))},
                      {"h", normal({rows, width}, 1)},
                      {"counts", Tensor::from(boolean, {places, rows}, counts)}};
  std::vector<Tensors> got;
  std::vector<std::int64_t> launches;
  for (const CompileOptions& options : {captured, stepwise, cpu}) {
    Parameters parameters(graph, options.device);
    Program program(graph, options, &parameters);
    got.push_back(program.run(feeds));
    launches.push_back(program.report().launches);
  }
  // Fewer rows are too little work for as many CTAs, and are kernels of their own.
  if (rows >= 100) {
    EXPECT_LE(launches[0] + 3 * steps, launches[1]);
  }
  for (const auto& [name, tensor] : got[1]) {
    const Dense fused = got[0].at(name).to_doubles(), alone = tensor.to_doubles(), exact = got[2].at(name).to_doubles();
    double largest = 0, apart = 0, far = 0;
    for (std::size_t i = 0; i < alone.size(); ++i) {
      largest = std::max(largest, std::abs(exact[i]));
      apart = std::max(apart, std::abs(fused[i] - alone[i]));
      far = std::max(far, std::abs(fused[i] - exact[i]));
    }
    EXPECT_LE(apart, (dtype == f32 ? 1e-5 : 2e-2) * largest) << name;
    EXPECT_LE(far, (dtype == f32 ? 2e-5 : 0.1) * largest) << name;
  }
}

TEST(FusedLaunches, ArePrintedWithThePlanAndTheReasonWhyOthersAreNone) {
  Graph many, small;
  build_attention(many, 2, 128, 50, 32, 0.3);
  const std::string told = fmt::format("{}", fmt::join(make_schedule(plan_for_gpu(many)).notes, "\n"));
  EXPECT_TRUE(has(told, " kernels one after the other in 128 CTAs, 2 times; ")) << told;
  EXPECT_TRUE(has(told, " us expected, ")) << told;
  EXPECT_TRUE(has(told, ", which it reads: step ")) << told;
  EXPECT_TRUE(has(told, " is no stage: ")) << told;
  const std::int64_t axes[] = {1};
  const Value rows = sum(square(small.input("x", f32, {4, 8})), axes);
  small.fetch("mean", mean(exp(rows)));
  const std::vector<std::string> apart = make_schedule(plan_for_gpu(small)).notes;
  ASSERT_EQ(apart.size(), 1u);
  EXPECT_TRUE(has(apart[0], "step 1 does not run with 0, which it reads: ")) << apart[0];
  EXPECT_TRUE(has(apart[0], " us expected of a vertically fused launch, ")) << apart[0];
  PD_SKIP_WITHOUT_A_GPU();
  Parameters parameters(many, gpu_here());
  const std::vector<std::string> notes = Program(many, on_gpu(), &parameters).report().plan_notes;
  EXPECT_TRUE(std::ranges::any_of(notes, [](const auto& note) { return has(note, "one after the other"); }));
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, VerticalLaunches,
    ::testing::Combine(::testing::Values(AttentionSizes{3, 8, 50, 64}, AttentionSizes{2, 128, 50, 32},
                                         AttentionSizes{3, 5, 7, 20}, AttentionSizes{2, 3, 33, 515},
                                         AttentionSizes{2, 100, 33, 77}, AttentionSizes{2, 131, 9, 160}),
                       ::testing::Values(f32, bf16)));

}  // namespace
}  // namespace paoding::testing_program
