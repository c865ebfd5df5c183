// SPDX-License-Identifier: Apache-2.0
// Layers one above the other in one launch: emulated under several schedules against float64; which of them share one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "gpu/driver/nvrtc.h"
#include "ops/recurrence/gpu/cta_group.h"
#include "tests/gpu/emulated_layers.h"
#include "tests/gpu/planted_mistakes.h"

namespace paoding::testing_program {
namespace {

struct PipelineCase {
  DType dtype;
  bool is_tf32;
  std::int64_t layers, steps, batch, hidden;
  Cell cell = lstm;
  bool is_reverse = false, has_bias = false, has_lengths = false;

  std::int64_t gates() const { return cell == lstm ? 4 : cell == gru ? 3 : 1; }
  std::string text() const {
    return fmt::format("{} layers of {}{} T {} B {} H {}, {} gates{}{}{}", layers, to_string(dtype),
                       is_tf32 ? " as TF32" : "", steps, batch, hidden, gates(), is_reverse ? ", reverse" : "",
                       has_bias ? ", with bias" : "", has_lengths ? ", lengths" : "");
  }
};

// The lowest layer's product of its input is fed, so that all but products between layers is source of our own.
void build(Graph& g, const PipelineCase& c) {
  const std::int64_t N = c.gates() * c.hidden;
  const double scale = 1 / std::sqrt(static_cast<double>(c.hidden));
  const std::string op = c.cell == lstm ? "lstm_recurrence" : c.cell == gru ? "gru_recurrence" : "rnn_recurrence";
  const auto feed = [&](const char* name, std::int64_t layer, DType dtype, const Shape& shape) {
    return g.input(name + std::to_string(layer), dtype, shape);
  };
  Value xw = feed("xw", 0, c.dtype, {c.steps, c.batch, N});
  const Value lengths = c.has_lengths ? g.input("lengths", i32, {c.batch}) : Value();
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    Values inputs = {xw, feed("u", layer, c.dtype, {c.hidden, N}) * scale};
    if (c.cell == gru) inputs.push_back(feed("bm", layer, c.dtype, {c.hidden}));
    inputs.push_back(feed("h0", layer, c.dtype, {c.batch, c.hidden}));
    if (c.cell == lstm) {
      inputs.push_back(feed("c0", layer, c.dtype == f64 ? f64 : f32, {c.batch, c.hidden}));
    }
    if (c.has_lengths) inputs.push_back(lengths);
    if (c.has_bias) inputs.push_back(feed("bias", layer, c.dtype, {N}));
    const Values made = call(*find_op(op), inputs, {{"reverse", c.is_reverse}, {"bias", c.has_bias}});
    g.fetch("states" + std::to_string(layer), made[0]), g.fetch("last" + std::to_string(layer), made.back());
    if (layer + 1 == c.layers) return;
    const std::int64_t first = c.is_reverse ? 0 : 1;
    const Value x = slice(made[0], 0, first, first + c.steps);
    xw = matmul(x, feed("w", layer + 1, c.dtype, {c.hidden, N}) * scale);
  }
}

// Every other of hardly any steps.
Feeds feeds_of(const PipelineCase& c, const Graph& g, unsigned number) {
  Feeds feeds = make_feeds(g, 5 + number);
  for (std::int64_t row = 0; c.has_lengths && row < c.batch; ++row) {
    const std::int64_t many = row == 0 ? c.steps : row * 7 % (c.steps + 1);
    feeds.at("lengths")[static_cast<std::size_t>(row)] = static_cast<double>(number % 2 == 1 ? row % 2 : many);
  }
  for (const auto& [name, tensor] : to_tensors(g, feeds)) feeds.at(name) = tensor.to_doubles();  // as rounded
  return feeds;
}

using PipelineByCtaGroup = std::pair<const char*, PipelineCase>;  // whose descriptions have such words

Plan plan_by_cta_group(const Graph& g, const PipelineByCtaGroup& c) {
  Target target = named_target("h200");
  target.sm_count = 40;
  setenv("PAODING_CTA_GROUP", c.first, 1);
  Plan plan = plan_for_gpu(g, target, {}, c.second.is_tf32);
  unsetenv("PAODING_CTA_GROUP");
  return plan;
}

// The CTA groups are those whose descriptions have the words in front of a case; launches one after the other, whose
// words are told from those before, also of steps that the one in between did not make.
TEST(PipelinedRecurrence, IsRightInTheEmulationUnderEverySchedule) {
  const std::vector<PipelineByCtaGroup> cases = {
      {"of 2 CTAs;a CTA, SIMT FMA", {f32, false, 2, 5, 1, 20}},
      {"of 2 CTAs;SIMT FMA, whole units", {f32, false, 3, 4, 2, 37, lstm, true, true}},
      {"of 4 CTAs;SIMT FMA, whole units", {bf16, false, 2, 4, 1, 60, gru, false, true}},
      {"of 2 CTAs;a CTA, SIMT FMA", {f16, false, 3, 3, 1, 45, rnn, true}},
      {"of 2 CTAs;a CTA", {bf16, false, 3, 4, 3, 40, lstm, false, true}},
      {"of 4 CTAs;a CTA, whole units", {bf16, false, 2, 5, 1, 60}},
      {"of 2 CTAs;a CTA, whole units", {f32, true, 2, 4, 2, 37, gru, true}},
      {"of 1 CTAs;a CTA, whole units", {f16, false, 4, 3, 3, 24, lstm, false, true}},
      {"SIMT FMA, whole units, through memory", {f32, false, 3, 6, 1, 20}},
      {"SIMT FMA, whole units, through memory", {f16, false, 2, 4, 2, 30, gru, true, true}},
      {"8 units a CTA, through memory", {f32, true, 2, 5, 3, 21, lstm, true, true}},
      {"16 units a CTA, through memory", {bf16, false, 3, 4, 5, 40, lstm}},
      {"8 units a CTA, through memory", {f16, false, 2, 1, 1, 20, rnn}},
      {"of 2 CTAs;SIMT FMA, whole units", {f32, false, 3, 4, 2, 37, lstm, true, true, true}},
      {"of 2 CTAs;a CTA, whole units", {f32, true, 2, 5, 1, 37, gru, false, false, true}},
      {"3 CTA groups of 1 CTAs: 1 rows", {bf16, false, 2, 5, 3, 24, lstm, false, true, true}},
      {"SIMT FMA, whole units, through memory", {f32, false, 2, 5, 3, 20, gru, true, true, true}},
      {"8 units a CTA, through memory", {f16, false, 3, 4, 2, 20, lstm, false, false, true}},
  };
  std::vector<EmulatedLayer<PipelineCase>> all;
  for (const PipelineByCtaGroup& by_cta_group : cases) {
    auto graph = std::make_unique<Graph>();
    build(*graph, by_cta_group.second);
    auto program = std::make_unique<EmulatedProgram>(plan_by_cta_group(*graph, by_cta_group));
    EXPECT_EQ(program->pipelines(), 1u) << by_cta_group.second.text();
    const std::array<Feeds, 2> feeds = {feeds_of(by_cta_group.second, *graph, 0),
                                        feeds_of(by_cta_group.second, *graph, 1)};
    all.push_back({by_cta_group.second, std::move(graph), std::move(program), feeds});
  }
  expect_right_under_schedules(all, 3);
}

// Epochs of a launch, waits for the layer below, and the order in which states are there for the layer above.
TEST(PipelinedRecurrence, MistakesAreFoundBySomeSchedule) {
  const std::vector<std::pair<PipelineByCtaGroup, std::vector<Mistake>>> exchanges = {
      {{"of 2 CTAs;SIMT FMA, whole units", {f32, false, 3, 4, 2, 37, lstm, true, true}},
       {{"while (!LlWords::have_come(pieces[i], epoch)) pieces[i] = load_relaxed(source_of(i, step));", ""},
        {"while (((part ^ launch.epoch) & 1) != 0) part = load_relaxed(from);", ""},
        {"epoch = (load_relaxed(launches) + 1) & 1;", "epoch = 1;"},
        {"    factors_stored();\n    __syncthreads();\n  }\n};", "    factors_stored();\n  }\n};"}}},
      {{"8 units a CTA, through memory", {f32, true, 2, 5, 3, 21, lstm, true, true}},
       {{"while (!LlWords::have_come(pieces[i], epoch)) pieces[i] = load_relaxed(source_of(i, step));", ""},
        {"epoch = (load_relaxed(launches) + 1) & 1;", "epoch = 1;"},
        {"store_relaxed(launches, epoch);", ";"}}},
  };
  PlantedMistakes mistakes;
  for (const auto& [by_cta_group, list] : exchanges) {
    Graph g;
    build(g, by_cta_group.second);
    const Plan plan = plan_by_cta_group(g, by_cta_group);
    const std::array<Tensors, 2> feeds = {to_tensors(g, feeds_of(by_cta_group.second, g, 0)),
                                          to_tensors(g, feeds_of(by_cta_group.second, g, 1))};
    mistakes.plant("a pipeline", plan, feeds, list);
  }
  mistakes.expect_found();
}

// How many launches a captured run has of the layers and the products between them.
std::size_t stacks_in(const PipelineCase& c, const char* target = "h200") {
  Graph g;
  build(g, c);
  return EmulatedProgram(plan_for_gpu(g, named_target(target), {}, c.is_tf32)).pipelines();
}

TEST(PipelinedRecurrence, SharesALaunchWhereTheChipHasRoomForAllLayers) {
  EXPECT_EQ(stacks_in({bf16, false, 2, 64, 1, 512}), 1u);
  EXPECT_EQ(stacks_in({bf16, false, 4, 64, 1, 512}), 1u) << "seven clusters of 16";
  EXPECT_EQ(stacks_in({bf16, false, 9, 64, 1, 512}), 0u) << "seventeen of 8";
  EXPECT_EQ(stacks_in({f32, false, 2, 64, 1, 512}), 1u);
  EXPECT_EQ(stacks_in({f32, true, 4, 64, 1, 256, gru}), 1u);
  EXPECT_EQ(stacks_in({bf16, false, 2, 64, 128, 512}), 0u) << "too many rows";
  EXPECT_EQ(stacks_in({bf16, false, 2, 10, 64, 256}), 0u) << "the same, of g2p";
  EXPECT_EQ(stacks_in({f32, false, 2, 64, 1, 256}, "a100"), 1u) << "through memory, without clusters";
}

TEST(PipelinedRecurrence, SaysWhetherLayersShareALaunch) {
  for (const auto& [layers, told] :
       {std::pair{4, "leave room for all 4 layers of the pipeline"},
        std::pair{9, "alone in a launch: all 9 layers of the pipeline at once have no room"}}) {
    Graph g;
    build(g, {bf16, false, layers, 64, 1, 512});
    const std::vector<std::string> notes = plan_for_gpu(g).notes;
    EXPECT_TRUE(std::ranges::any_of(notes, [&](const std::string& note) { return has(note, told); })) << told;
  }
}

TEST(PipelinedRecurrence, SharesALaunchWhereRowsHaveTheSameLengthsInAllLayers) {
  EXPECT_EQ(stacks_in({bf16, false, 2, 64, 4, 512, lstm, false, true, true}), 1u);
  EXPECT_EQ(stacks_in({bf16, false, 2, 64, 64, 512, lstm, false, true, true}), 0u) << "too many rows";
  Graph g;
  const auto weights = [&](const std::string& name, DType dtype, const Shape& shape) {
    return g.input(name, dtype, shape);
  };
  const Value h0 = g.input("h0", bf16, {2, 64}), c0 = g.input("c0", f32, {2, 64});
  Value xw = g.input("xw", bf16, {20, 2, 256});
  for (const std::string layer : {"0", "1"}) {
    const LstmRecurrence made =
        lstm_recurrence(xw, weights("u" + layer, bf16, {64, 256}), h0, c0, g.input("lengths" + layer, i32, {2}));
    g.fetch("last" + layer, made.last_h);
    xw = matmul(slice(made.states, 0, 1, 21), weights("w" + layer, bf16, {64, 256}));
  }
  EXPECT_EQ(EmulatedProgram(plan_for_gpu(g)).pipelines(), 0u) << "lengths of its own";
}

// The upper layer starts from the lower one's last state, so it cannot begin before that is there.
TEST(PipelinedRecurrence, StaysApartWhereALayerNeedsMoreOfTheOneBelow) {
  Graph g;
  const auto weights = [&](const char* name, DType dtype, const Shape& shape) { return g.input(name, dtype, shape); };
  const Value xw = g.input("xw", bf16, {20, 1, 256}), zero = g.input("h0", bf16, {1, 64});
  const Value c0 = g.input("c0", f32, {1, 64});
  const LstmRecurrence low = lstm_recurrence(xw, weights("u0", bf16, {64, 256}), zero, c0);
  const Value above = matmul(slice(low.states, 0, 1, 21), weights("w", bf16, {64, 256}));
  g.fetch("last", lstm_recurrence(above, weights("u1", bf16, {64, 256}), low.last_h, c0).last_h);
  EXPECT_EQ(EmulatedProgram(plan_for_gpu(g)).pipelines(), 0u);
}

}  // namespace
}  // namespace paoding::testing_program
