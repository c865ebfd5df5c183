// SPDX-License-Identifier: Apache-2.0
// Recurrent layers whose CTAs keep the weights: emulated under several schedules, against float64; which layers are
// claimed, and that the source of each kind compiles.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "gpu/driver/nvrtc.h"
#include "ops/recurrence/gpu/cta_group.h"
#include "runtime/compile.h"
#include "tests/gpu/emulated_layers.h"

namespace paoding::testing_program {
namespace {

TEST(Recurrence, IsRightInTheEmulationUnderEverySchedule) {
  expect_right_in_the_emulation(small_layers(), named_target("h200"), 2);
}

// CTA groups that are not the fastest of such small layers: words of their descriptions, and layers of all cells and
// types.
TEST(Recurrence, IsRightInTheEmulationByCtaGroupsOfEveryKind) {
  const std::vector<std::pair<const char*, LayerCase>> cta_groups = {
      {"of 4 CTAs;a CTA, whole units", {bf16, false, 5, 1, 60, false, true}},
      {"of 2 CTAs;a CTA, whole units", {f16, false, 4, 2, 72, true}},
      {"of 1 CTAs;a CTA, whole units", {bf16, false, 4, 7, 40, true, true}},
      {"of 2 CTAs;a CTA, whole units", {f32, true, 4, 8, 50, true, false, true, gru}},
      {"of 4 CTAs;a CTA, whole units", {f16, false, 4, 1, 130, false, false, true, gru}},
      {"of 4 CTAs;a CTA, whole units", {f32, true, 5, 3, 60, true, true, false, lstm, true}},
      {"of 2 CTAs;SIMT FMA, whole units", {f32, false, 4, 1, 37, false, true, false}},
      {"of 4 CTAs;SIMT FMA, whole units", {f32, false, 4, 3, 70, true, false, false, gru}},
      {"of 1 CTAs;SIMT FMA, whole units", {f32, false, 4, 2, 45, true, true, false}},
      {"of 4 CTAs;SIMT FMA, whole units", {f32, false, 4, 4, 50, true, false, false, rnn}},
      {"of 2 CTAs;SIMT FMA, whole units", {bf16, false, 4, 1, 100, false, false, false}},
      {"of 2 CTAs;SIMT FMA;a CTA, SIMT FMA", {f16, false, 4, 5, 30, true, false, false, gru}},
      {"SIMT FMA, whole units, through memory", {f16, false, 6, 2, 60, true, true, false}},
      {"SIMT FMA, whole units, through memory", {f32, true, 5, 3, 37, true, false, false, gru}},
      {"SIMT FMA, whole units, through memory", {bf16, false, 5, 1, 70, false, true, false, rnn}},
      {"SIMT FMA, whole units, through memory", {f32, false, 1, 1, 20, false, false, false}},
      {"16 units a CTA, through memory", {bf16, false, 7, 2, 60, true, false, false}},
      {"24 units a CTA, through memory", {f16, false, 6, 5, 70, true, true, false, gru}},
      {"8 units a CTA, through memory", {f32, true, 5, 3, 61, true, true, false}},
      {"8 units a CTA, through memory", {bf16, false, 6, 1, 200, true, false, false}},
      {"8 units a CTA, through memory", {f32, true, 4, 8, 40, false, false, true, rnn}},
  };
  expect_right_in_the_emulation(cta_groups, named_target("h200"), 3);
  Target one_cluster = named_target("h200");
  one_cluster.sm_count = 16;
  const std::vector<std::pair<const char*, LayerCase>> copied = {
      {"of 16 CTAs;whole units, copied", {f32, true, 3, 6, 250, true, false, false}}};
  expect_right_in_the_emulation(copied, one_cluster, 2);
  Target two_cta_groups = named_target("h200");
  two_cta_groups.sm_count = 2;
  const std::vector<std::pair<const char*, LayerCase>> of_more_rows = {
      {"2 CTA groups of 1 CTAs: 6 rows, 32 units a CTA, SIMT FMA", {f32, false, 3, 12, 30, true, true, false}}};
  expect_right_in_the_emulation(of_more_rows, two_cta_groups, 2);
}

// Gradients of few rows in f32 that nothing rounds: blocks in registers and in shared memory, one CTA and CTA groups of
// several, rows asked for in one go and in several, more cells than a warp has lanes, lengths of 0 and 1.
TEST(Recurrence, GradientsInFullF32AreRightInTheEmulationUnderEverySchedule) {
  Target target = named_target("h200");
  target.sm_count = 6;
  const auto training = [](std::int64_t steps, std::int64_t batch, std::int64_t hidden, bool has_lengths,
                           bool is_reverse, Cell cell) {
    return LayerCase{f32, false, steps, batch, hidden, has_lengths, is_reverse, true, cell};
  };
  const std::vector<std::pair<const char*, LayerCase>> cta_groups = {
      {"", training(1, 1, 1, false, false, lstm)},
      {"of 6 CTAs;a CTA, SIMT FMA", training(5, 1, 70, false, false, lstm)},
      {"of 6 CTAs;a CTA, SIMT FMA", training(4, 9, 45, true, true, gru)},
      {"of 6 CTAs;a CTA, SIMT FMA", training(2, 2, 200, false, true, lstm)},
      {"of 3 CTAs;a CTA, SIMT FMA", training(4, 5, 37, true, true, lstm)},
      {"of 2 CTAs;a CTA, SIMT FMA", training(3, 11, 100, true, false, rnn)},
      {"of 1 CTAs;a CTA, SIMT FMA", training(4, 14, 40, true, false, relu_rnn)},
  };
  expect_right_in_the_emulation(cta_groups, target, 3);
}

// With steps that use every one of a CTA group's places three times, where there are more than two.
const std::vector<LayerCase>& cases_through_memory() {
  static const std::vector<LayerCase> cases = {
      {bf16, false, 6, 3, 160, true, false},          {f32, true, 5, 2, 144, true, true},
      {f32, false, 4, 1, 100, false, false, false},   {f16, false, 1, 2, 160},
      {f16, false, 4, 9, 200, true, true, true, gru}, {f32, true, 5, 1, 300, false, false, true, rnn},
      {f16, false, 22, 9, 200, true, false, false},
  };
  return cases;
}

TEST(Recurrence, ThroughMemoryIsRightInTheEmulationUnderEverySchedule) {
  for (const LayerCase& c : cases_through_memory()) {
    const Plan plan = plan_for_gpu(*graph_of(c), small_gpu(), {}, c.is_tf32);
    int through_memory = 0;
    for (const Step& step : plan.steps) {
      if (step.text == nullptr) continue;
      for (const gpu::TextLaunch& launch : step.text->launches) through_memory += launch.is_cooperative ? 1 : 0;
    }
    EXPECT_EQ(through_memory, c.is_training ? 2 : 1) << c.text();
  }
  expect_right_in_the_emulation(cases_through_memory(), small_gpu(), 4);
}

// Weights that lie as lanes read them: of all cells, in clusters and through memory, units that CTA groups and warps
// have more places than, K that lanes have more pieces for, blocks in registers, in shared memory and out of memory.
TEST(Recurrence, ByWeightsThatLieByUnitsIsRightInTheEmulationUnderEverySchedule) {
  const auto by_units = [](DType dtype, std::int64_t steps, std::int64_t batch, std::int64_t hidden, Cell cell,
                           bool has_lengths = false, bool has_bias = false) {
    return LayerCase{dtype, false, steps, batch, hidden, has_lengths, has_lengths, false, cell, has_bias, true};
  };
  LayerCase as_tf32 = by_units(f32, 4, 1, 60, lstm);
  as_tf32.is_tf32 = true;
  const std::vector<std::pair<const char*, LayerCase>> cta_groups = {
      {"of 4 CTAs;SIMT FMA, whole units", by_units(f32, 4, 1, 40, lstm)},
      {"of 2 CTAs;SIMT FMA;a CTA, SIMT FMA", by_units(f32, 3, 5, 72, gru, true)},
      {"of 4 CTAs;SIMT FMA, whole units", by_units(f16, 4, 3, 136, rnn)},
      {"of 1 CTAs;SIMT FMA, whole units", by_units(f32, 3, 2, 48, lstm, false, true)},
      {"SIMT FMA, whole units, through memory", by_units(bf16, 4, 2, 64, lstm)},
      {"of 4 CTAs;a CTA, whole units", by_units(bf16, 4, 1, 128, lstm)},
      {"of 4 CTAs;a CTA, whole units", as_tf32},
      {"of 2 CTAs;a CTA, whole units", by_units(f16, 3, 2, 72, gru, true)},
      {"of 1 CTAs;a CTA, whole units", by_units(bf16, 3, 1, 40, lstm, false, true)},
      {"SIMT FMA, whole units, through memory", by_units(f32, 4, 1, 300, gru, true, true)},
      {"SIMT FMA, whole units, through memory", by_units(f32, 5, 1, 128, lstm)},
  };
  expect_right_in_the_emulation(cta_groups, named_target("h200"), 2);
  const std::vector<std::pair<const char*, LayerCase>> streamed = {
      {"SIMT FMA, whole units;weights out of memory", by_units(f32, 3, 1, 300, lstm)}};
  Target small = named_target("h200");
  small.sm_count = 6;
  expect_right_in_the_emulation(streamed, small, 2);
}

// Weights that registers and shared memory have no room for: the others come out of memory every step, through rings of
// two chunks and of more; of all cells, by lanes and by tensor cores, one row and several.
TEST(Recurrence, ByWeightsOutOfMemoryIsRightInTheEmulationUnderEverySchedule) {
  const char* const any = "weights out of memory";
  const char* const gradients = "a CTA, SIMT FMA, through memory;weights out of memory";
  const std::vector<std::pair<const char*, LayerCase>> cta_groups = {
      {"weights out of memory, 2 ahead", {f32, false, 4, 1, 210, false, false, false}},
      {"weights out of memory, 2 ahead", {f32, false, 3, 3, 205, true, true, false}},
      {"weights out of memory, 2 ahead", {f32, false, 3, 8, 230, true, false, false, gru}},
      {any, {f32, false, 3, 1, 600, false, true, false, rnn}},
      {any, {f32, true, 4, 1, 290, false, true, false}},
      {any, {bf16, false, 3, 5, 420, true, false, false}},
      {any, {f16, false, 3, 9, 490, true, true, false, gru}},
      {gradients, {f32, false, 4, 1, 210}},
      {gradients, {f32, false, 3, 3, 205, true, true, true, lstm}},
      {gradients, {f32, false, 3, 2, 250, true, false, true, gru}},
  };
  Target target = named_target("h200");
  target.sm_count = 3;
  expect_right_in_the_emulation(cta_groups, target, 3);
}

// CTAs of a gradient that tell each other the gradients of their gates: two and four of them, all cells and types, one
// row and several, units that are nobody's, weights that stay and weights that come out of memory.
TEST(Recurrence, GradientsBySumPeersAreRightInTheEmulationUnderEverySchedule) {
  const std::vector<std::pair<const char*, LayerCase>> cta_groups = {
      {"through memory, 2 partial-sum peers", {f32, true, 6, 3, 60, true, true}},
      {"through memory, 4 partial-sum peers", {bf16, false, 5, 1, 64, false, false}},
      {"through memory, 4 partial-sum peers", {f16, false, 4, 9, 100, true, false, true, gru}},
      {"through memory, 2 partial-sum peers", {f32, true, 5, 17, 30, true, false, true, rnn}},
  };
  Target target = named_target("h200");
  target.sm_count = 8;
  expect_right_in_the_emulation(cta_groups, target, 3);
  target.sm_count = 4;
  expect_right_in_the_emulation({{"2 partial-sum peers;weights out of memory", {f32, true, 3, 9, 380, true, false}}},
                                target, 2);
}

// CTAs that share out K of a layer's products and tell each other their sums: two and four of them, with groups of
// warps and without, all cells and types, units that are nobody's, weights that stay and weights out of memory, steps
// that use every place of a state three times.
TEST(Recurrence, BySumPeersThatShareTheStateIsRightInTheEmulationUnderEverySchedule) {
  const auto forward = [](DType dtype, std::int64_t steps, std::int64_t batch, std::int64_t hidden, bool has_lengths,
                          bool is_reverse, Cell cell = lstm, bool has_bias = false) {
    return LayerCase{dtype, dtype == f32, steps, batch, hidden, has_lengths, is_reverse, false, cell, has_bias};
  };
  const std::vector<std::pair<const char*, LayerCase>> cta_groups = {
      {"through memory, 2 partial-sum peers", forward(f32, 22, 9, 60, true, true)},
      {"through memory, 4 partial-sum peers", forward(bf16, 5, 17, 64, false, false, lstm, true)},
      {"through memory, 4 partial-sum peers", forward(f16, 4, 9, 100, true, false, gru)},
      {"through memory, 2 partial-sum peers", forward(f32, 3, 33, 30, false, true, rnn)},
      {"4 units a CTA, through memory, 4 partial-sum peers", forward(f32, 1, 10, 32, false, false)},
      {"4 units a CTA, through memory, 4 partial-sum peers", forward(f32, 2, 10, 30, true, false)},
      {"4 units a CTA, through memory, 2 partial-sum peers", {f32, true, 3, 12, 30, true, false}},
  };
  Target target = named_target("h200");
  target.sm_count = 8;
  expect_right_in_the_emulation(cta_groups, target, 3);
  target.sm_count = 4;
  expect_right_in_the_emulation({{"2 partial-sum peers;weights out of memory", forward(f32, 3, 9, 380, true, false)}},
                                target, 2);
}

// CTA groups of many rows: Hopper's warpgroups multiply, also by weights that registers have no room for.
TEST(Recurrence, OfManyRowsIsRightInTheEmulationUnderEverySchedule) {
  Target target = named_target("h200");
  target.sm_count = 4;
  const std::vector<LayerCase> cases = {
      {bf16, false, 3, 20, 264, true, true},
      {f16, false, 3, 19, 136},
      {f32, true, 3, 18, 200, true},
      {bf16, false, 3, 35, 88, true, false, true, gru},
      {f16, false, 3, 42, 64, true, true, true, rnn},
      {bf16, false, 2, 26, 200, false, false, false, lstm, true},
  };
  int by_wgmma = 0, in_squares = 0;
  for (const LayerCase& c : cases) {
    const Plan plan = plan_for_gpu(*graph_of(c), target, {}, c.is_tf32);
    for (const Step& step : plan.steps) {
      if (step.kind != Step::Kind::kernel || step.text == nullptr) continue;
      for (const gpu::TextLaunch& launch : step.text->launches) {
        const auto says = [&](const char* what) { return launch.source.has(what); };
        by_wgmma += says("kWgmma = true") ? 1 : 0;
        in_squares += says("kWgmma = true") && !says("kRestFragments = 0;") ? 1 : 0;
      }
    }
  }
  EXPECT_GE(by_wgmma, 8);
  EXPECT_GE(in_squares, 2);
  expect_right_in_the_emulation(cases, target, 3);
}

// Clusters of 16 whose CTAs have two groups with units of their own: each sends its half of the state when it has it.
TEST(Recurrence, WarpgroupsWithUnitsOfTheirOwnAreRightInTheEmulationUnderEverySchedule) {
  Target one_cluster = named_target("h200");
  one_cluster.sm_count = 19;
  const std::vector<std::pair<const char*, LayerCase>> cases = {
      {"of 16 CTAs;units per warpgroup", {bf16, false, 3, 10, 500, true, false, false}},
      {"of 16 CTAs;units per warpgroup", {f32, true, 3, 9, 512, false, true, false, lstm, true}},
      {"of 16 CTAs;units per warpgroup", {f16, false, 3, 11, 512}},
  };
  expect_right_in_the_emulation(cases, one_cluster, 3);
}

// Few rows of many units: registers have no room for all weights, of which some are asked for before the state is
// there; and threads that send two pieces of their CTA's slice.
TEST(Recurrence, OfFewRowsAndManyUnitsIsRightInTheEmulationUnderEverySchedule) {
  Target one_cluster = named_target("h200");
  one_cluster.sm_count = 19;
  const std::vector<std::pair<const char*, LayerCase>> cases = {
      {"of 16 CTAs: 3 rows, 48 units a CTA", {bf16, false, 4, 3, 768, true}}};
  EXPECT_TRUE(
      has_kernel(plan_by_cta_group(cases[0], one_cluster), cases[0].first, "kWgmma = false;kRestFragments = 32"));
  expect_right_in_the_emulation(cases, one_cluster, 2);
}

// The same of half as many CTAs and units, so that many schedules take little time; places are used again.
TEST(Recurrence, FewerWarpgroupsWithUnitsOfTheirOwnAreRightInTheEmulationUnderEverySchedule) {
  Target one_cluster = named_target("h200");
  one_cluster.sm_count = 9;
  const std::vector<std::pair<const char*, LayerCase>> cases = {
      {"of 8 CTAs;units per warpgroup", {bf16, false, 4, 26, 256, true, true, false}},
      {"of 8 CTAs;units per warpgroup", {f32, true, 4, 17, 256, false, false, false, lstm, true}},
  };
  expect_right_in_the_emulation(cases, one_cluster, 2);
}

// A warp that makes partial sums for several CTAs sends one its part while it multiplies for the next.
TEST(Recurrence, GradientsByOutputSlicesAreRightInTheEmulationUnderEverySchedule) {
  Target one_cluster = named_target("h200");
  one_cluster.sm_count = 19;
  const std::vector<std::pair<const char*, LayerCase>> cases = {
      {"of 16 CTAs", {f16, false, 4, 10, 256, true, false}},
      {"of 16 CTAs", {bf16, false, 3, 17, 250, true, true, true, gru}},
  };
  for (const auto& [words, c] : cases) {
    int by_output_slices = 0;
    setenv("PAODING_CTA_GROUP", words, 1);
    for (const Step& step : plan_for_gpu(*graph_of(c), one_cluster, {}, c.is_tf32).steps) {
      if (step.kind != Step::Kind::kernel || step.text == nullptr) continue;
      for (const gpu::TextLaunch& launch : step.text->launches) {
        by_output_slices +=
            has_words(launch.source, "kWgmma = true;int kTiles = 2;int kUnits = 16;int kOutputSlices") ? 1 : 0;
      }
    }
    unsetenv("PAODING_CTA_GROUP");
    EXPECT_EQ(by_output_slices, 1) << c.text();
  }
  expect_right_in_the_emulation(cases, one_cluster, 2);
}

// Both directions of a layer in one launch, forward and back, as CTA groups of their own.
TEST(Recurrence, OfBothDirectionsIsRightInTheEmulationUnderEverySchedule) {
  const std::vector<LayerCase> cases = {
      {bf16, false, 5, 2, 60, true},
      {f32, true, 4, 9, 100, true, false, true, gru},
      {f32, false, 5, 1, 45},
      {f16, false, 4, 3, 130, false, false, false, rnn},
  };
  const Target target = named_target("h200");
  std::vector<EmulatedLayer<LayerCase>> all;
  for (const LayerCase& c : cases) {
    LayerCase reverse = c;
    reverse.is_reverse = true;
    auto graph = std::make_unique<Graph>();
    add_layer(graph.get(), c, false, "");
    add_layer(graph.get(), reverse, false, "_reverse");
    auto program = std::make_unique<EmulatedProgram>(plan_for_gpu(*graph, target, {}, c.is_tf32));
    EXPECT_EQ(program->grouped(), c.is_training ? 2u : 1u) << c.text();
    const std::array<Feeds, 2> feeds = {feeds_of(c, *graph), feeds_of(c, *graph, 6)};
    all.push_back({c, std::move(graph), std::move(program), feeds});
  }
  expect_right_under_schedules(all, 3);
}

// Rows shared out by work: a second launch, whose CTA groups have few rows at a time. Each of the two is right where
// the lengths say that it is the one, and leaves memory alone where it is not.
TEST(Recurrence, RowsWithLengthsHaveTheLaunchThatTakesLess) {
  Target target = named_target("h200");
  target.sm_count = 8;
  const auto plan_with = [&](const LayerCase& c, int launch) {
    Plan plan = plan_for_gpu(*graph_of(c), target, {}, c.is_tf32);
    for (Step& step : plan.steps) {
      if (step.kind != Step::Kind::kernel || step.text == nullptr) continue;
      EXPECT_EQ(step.text->launches.size(), 2u) << c.text() << ": " << step.text->launches[0].why;
      if (launch < 0 || step.text->launches.size() < 2) continue;
      auto one = std::make_shared<gpu::TextPlan>(*step.text);
      one->launches = {step.text->launches[static_cast<std::size_t>(launch)]};
      step.text = one;
    }
    return plan;
  };
  const std::vector<LayerCase> cases = {{bf16, false, 24, 39, 200, true},
                                        {f16, false, 20, 40, 230, true, true, false, gru}};
  std::vector<std::unique_ptr<EmulatedProgram>> programs;
  std::vector<const gpu::TextLaunch*> kernels;
  for (const LayerCase& c : cases) {
    for (const int launch : {-1, 0, 1}) {
      programs.push_back(std::make_unique<EmulatedProgram>(plan_with(c, launch)));
      for (const gpu::TextLaunch* kernel : programs.back()->kernels()) kernels.push_back(kernel);
    }
  }
  const gpu::EmulatedKernels compiled(kernels);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const LayerCase& c = cases[i];
    for (const bool is_whole : {false, true}) {
      SCOPED_TRACE(fmt::format("{}{}: {}, or {}", c.text(), is_whole ? ", rows of all steps" : "",
                               programs[3 * i + 1]->kernels()[0]->why, programs[3 * i + 2]->kernels()[0]->why));
      Feeds feeds = feeds_of(c);
      if (is_whole) {
        for (double& length : feeds.at("lengths")) length = static_cast<double>(c.steps);
        feeds.at("lengths")[3] = static_cast<double>(c.steps - 1);
      }
      const Tensors tensors = to_tensors(*graph_of(c), feeds);
      const std::size_t chosen = is_whole ? 1 : 2;
      const Tensors got = programs[3 * i + chosen]->run(compiled, tensors, 1);
      expect_near(c, got, feeds);
      if (!is_whole) expect_same_bits(got, programs[3 * i]->run(compiled, tensors, 2));
      const Tensors left = programs[3 * i + 3 - chosen]->run(compiled, tensors, 3);
      for (const auto& [name, made] : got) {
        const Tensor& other = left.at(name);
        EXPECT_FALSE(std::equal(made.bytes(), made.bytes() + made.size_bytes(), other.bytes())) << name;
      }
    }
  }
}

std::string claimant_of(const LayerCase& c, const std::string& op, const char* target = "h200") {
  const Plan plan = plan_for_gpu(*graph_of(c), {}, target, c.is_tf32);
  for (const Step& step : plan.steps) {
    if (step.kind == Step::Kind::kernel && step.call.op->name == op) return step.kernel->name;
  }
  return "";
}

TEST(Recurrence, IsClaimedWhereItsWeightsFitOrAreStreamed) {
  const LayerCase in_bf16{bf16, false, 64, 1, 512}, exact{f32, false, 64, 1, 256}, in_tf32{f32, true, 64, 32, 512};
  EXPECT_EQ(claimant_of(in_bf16, "lstm_recurrence"), "cta_group");
  EXPECT_EQ(claimant_of(in_bf16, "lstm_recurrence_grad"), "cta_group");
  EXPECT_EQ(claimant_of(in_tf32, "lstm_recurrence_grad"), "cta_group");
  EXPECT_EQ(claimant_of(exact, "lstm_recurrence"), "cta_group");
  EXPECT_EQ(claimant_of(exact, "lstm_recurrence_grad"), "cta_group");
  EXPECT_EQ(claimant_of(in_bf16, "lstm_recurrence", "a100"), "cta_group") << "through memory, without clusters";
  for (const Cell cell : {lstm, gru, rnn, relu_rnn}) {
    const LayerCase large{f32, true, 64, 32, 1024, false, false, true, cell};
    EXPECT_EQ(claimant_of(large, large.op()), "cta_group") << "more than a cluster has room for";
    EXPECT_EQ(claimant_of(large, large.op() + "_grad"), "cta_group");
  }
  EXPECT_EQ(claimant_of({f64, false, 64, 1, 64}, "lstm_recurrence"), "");
  EXPECT_EQ(claimant_of({bf16, false, 64, 1, 4096}, "lstm_recurrence"), "cta_group") << "out of memory";
  EXPECT_EQ(claimant_of({f32, true, 64, 8, 2048}, "lstm_recurrence_grad"), "cta_group") << "out of memory";
  EXPECT_EQ(claimant_of({bf16, false, 64, 256, 4096}, "lstm_recurrence_grad"), "") << "more rows than have room";
}

TEST(Recurrence, SaysItsCtaGroupsAndWhatOthersWouldTake) {
  Graph g;
  const Value xw = g.input("xw", bf16, {50, 128, 2048}), u = g.input("u", bf16, {512, 2048});
  const Value h0 = g.input("h0", bf16, {128, 512}), c0 = g.input("c0", f32, {128, 512});
  g.fetch("states", lstm_recurrence(xw, u, h0, c0).states);
  const std::vector<std::string> notes = plan_for_gpu(g).notes;
  const auto note = std::ranges::find_if(notes, [](const auto& each) { return has(each, "cta_group chosen: "); });
  ASSERT_NE(note, notes.end());
  const std::optional<CtaGroup> cta_group =
      choose_cta_group({.gates = 4, .batch = 128, .hidden = 512, .dtype = bf16}, named_target("h200"), nullptr);
  EXPECT_TRUE(has(*note, "cta_group chosen: " + cta_group->text() + "; else ")) << *note;
  EXPECT_TRUE(has(*note, ", through memory")) << *note;
}

// With one direction alone the fastest CTA groups may fill the chip; where there are two they leave room for each
// other.
TEST(Recurrence, LeavesRoomForTheOtherDirection) {
  for (const bool has_both : {false, true}) {
    Graph g;
    const Value xs = g.input("xs", f32, {64, 1, 512});
    std::vector<RecurrentParameters> parameters;
    for (int pass = 0; pass < (has_both ? 2 : 1); ++pass) {
      const auto weight = [&](const char* name, const Shape& shape) {
        return g.parameter(name + std::to_string(pass), f32, shape);
      };
      parameters.push_back({weight("w", {512, 2048}), weight("u", {512, 2048}), weight("b", {2048})});
    }
    RecurrentOptions options;
    options.bidirectional = has_both;
    g.fetch("ys", paoding::lstm(xs, parameters, options).outputs);
    const Plan plan = plan_for_gpu(g);
    int shared = 0, alone = 0;
    for (const Step& step : plan.steps) {
      if (step.kind == Step::Kind::kernel && step.call.op->name == "lstm_recurrence") {
        (step.may_be_grouped ? shared : alone) += 1;
      }
    }
    EXPECT_EQ(shared, has_both ? 2 : 0);
    EXPECT_EQ(alone, has_both ? 0 : 1);
  }
}

TEST(Recurrence, AddsTheBiasOfTheProductInFrontOfIt) {
  Graph g;
  const Value xs = g.input("xs", f32, {6, 3, 10}), w = g.input("w", f32, {10, 64}), b = g.input("b", f32, {64});
  const Value u = g.input("u", f32, {16, 64}), h0 = g.input("h0", f32, {3, 16}), c0 = g.input("c0", f32, {3, 16});
  g.fetch("states", lstm_recurrence(matmul(xs, w) + b, u, h0, c0).states);
  const auto kinds_of = [&](const Plan& plan) {
    std::string kinds;
    for (const Step& step : plan.steps) {
      kinds += step.kind == Step::Kind::group ? "group " : step.call.op->name + " ";
      if (step.kind == Step::Kind::kernel && step.call.op->name == "lstm_recurrence" &&
          step.call.attrs.get_bool("bias")) {
        kinds += "with bias ";
      }
    }
    return kinds;
  };
  EXPECT_EQ(kinds_of(plan_for_gpu(g)), "matmul lstm_recurrence with bias ");
  EXPECT_EQ(kinds_of(plan_for_gpu(g, std::vector<std::string>{"add_in_loops"})), "matmul group lstm_recurrence ");
}

// Also where the summands are stored in 16 bits first, and of a GRU's two biases.
TEST(Recurrence, AddsUpTheGradientOfTheBias) {
  for (const Cell cell : {lstm, gru, rnn}) {
    for (const DType precision : {f32, bf16}) {
      Graph g;
      const std::int64_t gates = cell == lstm ? 4 : cell == gru ? 3 : 1;
      const Value xs = g.input("xs", f32, {6, 3, 10});
      const RecurrentParameters weights{g.parameter("w", f32, {10, gates * 16}),
                                        g.parameter("u", f32, {16, gates * 16}),
                                        g.parameter("b", f32, {(cell == gru ? 4 : gates) * 16})};
      const std::vector<RecurrentParameters> layers = {weights};
      const RecurrentResult made = cell == lstm  ? paoding::lstm(xs, layers, {})
                                   : cell == gru ? paoding::gru(xs, layers, {})
                                                 : paoding::rnn(xs, layers, {});
      const Values outputs = {made.outputs}, wanted = {weights.b}, seeds = {g.input("dys", f32, made.outputs.shape())};
      g.fetch("db", gradients(outputs, wanted, seeds)[0]);
      const auto reductions_of = [&](const std::vector<std::string>& disabled) {
        CompileOptions options;
        options.allow_tf32 = true, options.precision = precision, options.disabled_passes = disabled;
        const Plan plan = compile_plan(g, options, std::make_shared<const Target>(named_target("h200"))).plan;
        return std::ranges::count_if(plan.steps, [](const Step& step) {
          const auto is_sum = [](const std::string& op) { return has(op, "sum"); };
          return is_sum(step.label.op) || std::ranges::any_of(step.label.members, is_sum);
        });
      };
      EXPECT_EQ(reductions_of({}), 0);
      EXPECT_GT(reductions_of({"add_in_loops"}), 0);
    }
  }
}

TEST(Recurrence, CompilesForGpusWithAndWithoutClusters) {
  if (gpu::nvrtc() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << gpu::nvrtc_problem();
  for (const LayerCase& c : {LayerCase{bf16, false, 8, 128, 512, true}, LayerCase{f32, true, 8, 1, 100},
                             LayerCase{f32, false, 8, 1, 512, false, false, false},
                             LayerCase{f32, true, 8, 32, 1024, false, true, true, gru},
                             LayerCase{bf16, false, 8, 2, 1024, true, false, true, rnn}}) {
    for (const char* target : {"h200", "a100"}) {
      const Plan plan = plan_for_gpu(*graph_of(c), {}, target, c.is_tf32);
      int compiled = 0;
      for (const Step& step : plan.steps) {
        if (step.text == nullptr || step.kind != Step::Kind::kernel) continue;
        for (const gpu::TextLaunch& launch : step.text->launches) {
          EXPECT_FALSE(gpu::compile(launch.source, "recurrence.cu", named_target(target).arch()).empty()) << c.text();
          ++compiled;
        }
      }
      EXPECT_GT(compiled, 0) << c.text();
    }
  }
}

// The types of the weights that a program's recurrences read.
std::vector<Type> weights_read(const std::function<void(Graph&)>& make, bool allow_tf32) {
  Graph graph;
  make(graph);
  CompileOptions options;
  options.allow_tf32 = allow_tf32;
  const auto target = std::make_shared<const Target>(named_target("h200"));
  std::vector<Type> types;
  const Plan plan = compile_plan(graph, options, target, Preprocess::once).plan;
  for (const Step& step : plan.steps) {
    if (step.kind == Step::Kind::kernel && step.call.op->name == "lstm_recurrence")
      types.push_back(step.call.inputs[1].type);
  }
  return types;
}

// An LSTM of one row whose weights are parameters; several layers are a pipeline.
void build_kept(Graph& graph, DType dtype, std::int64_t hidden, int layers = 1, bool is_bidirectional = false) {
  std::vector<RecurrentParameters> parameters;
  for (int i = 0; i < layers * (is_bidirectional ? 2 : 1); ++i) {
    const auto named = [&](const char* name, Shape shape) {
      return graph.parameter(fmt::format("{}{}", name, i), dtype, std::move(shape));
    };
    parameters.push_back(
        {named("w", {hidden, 4 * hidden}), named("u", {hidden, 4 * hidden}), named("b", {4 * hidden})});
  }
  RecurrentOptions options;
  options.bidirectional = is_bidirectional;
  graph.fetch("y", paoding::lstm(graph.input("x", dtype, {64, 1, hidden}), parameters, options).outputs);
}

TEST(Recurrence, HasWeightsByUnitsWhereTheyAreKeptAndLanesMultiply) {
  const auto of = [](DType dtype, std::int64_t hidden, bool allow_tf32, int layers, bool is_bidirectional) {
    return weights_read([&](Graph& g) { build_kept(g, dtype, hidden, layers, is_bidirectional); }, allow_tf32);
  };
  EXPECT_EQ(of(f32, 1024, false, 1, false), std::vector<Type>({{f32, {1024, 4, 1024}}}));
  EXPECT_EQ(of(bf16, 1024, false, 1, false), std::vector<Type>({{bf16, {1024, 4, 1024}}}));
  EXPECT_EQ(of(bf16, 256, false, 1, false), std::vector<Type>({{bf16, {256, 4, 256}}})) << "lanes of tensor cores";
  EXPECT_EQ(of(bf16, 512, false, 1, false), std::vector<Type>({{bf16, {512, 2048}}})) << "squares of them";
  EXPECT_EQ(of(f32, 512, false, 1, true), std::vector<Type>(2, {f32, {512, 4, 512}})) << "two directions";
  EXPECT_EQ(of(f32, 512, false, 2, false), std::vector<Type>(2, {f32, {512, 2048}})) << "a pipelined launch";
}

}  // namespace
}  // namespace paoding::testing_program
