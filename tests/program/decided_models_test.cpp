// SPDX-License-Identifier: Apache-2.0
// Passes and planner decide on the same kernels for whole models: trained and applied, on a CPU and on a GPU that is
// not there, in f32 and mixed precision.
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "models/conv_net.h"
#include "models/image_nets.h"
#include "models/language_model.h"
#include "models/seq2seq.h"
#include "paoding/paoding.h"
#include "tests/support/decision_check.h"

namespace paoding::testing_program {
namespace {

// Fetches the scores, or the loss of labels, which is minimized.
void end(Graph& g, const Value& scores, bool is_training) {
  if (!is_training) return g.fetch("scores", scores);
  const Value loss = cross_entropy(scores, g.input("labels", i32, {scores.shape()[0]}));
  g.fetch("loss", loss);
  minimize(loss, Adam{});
}

void build_resnet(Graph& g, bool is_training) {
  const Value x = g.input("x", f32, {16, 3, 64, 64});
  models::ResNetOptions options;
  options.training = is_training, options.classes = 100;
  end(g, models::resnet(x, options), is_training);
}

void build_mobile_net(Graph& g, bool is_training) {
  const Value x = g.input("x", f32, {8, 3, 64, 64});
  models::MobileNetOptions options;
  options.training = is_training, options.classes = 100;
  end(g, models::mobile_net(x, options), is_training);
}

void build_conv_net(Graph& g, bool is_training) {
  const models::ConvNet net(g, {});
  end(g, net(g.input("x", f32, {32, 1, 28, 28})), is_training);
}

void build_seq2seq(Graph& g, bool is_training) {
  const models::Seq2Seq model(g, {});
  const auto encoded = model.encode(g.input("source", i32, {12, 8}), g.input("lengths", i32, {8}));
  const Value loss = model.loss(encoded, g.input("written", i32, {14, 8}), g.input("labels", i32, {14, 8}));
  g.fetch("loss", loss);
  if (is_training) minimize(loss, Adam{});
}

void build_language_model(Graph& g, bool is_training) {
  const models::LanguageModel model(g, {.hidden = 512});
  const Value loss = model.loss(g.input("written", i32, {20, 16}), g.input("labels", i32, {20, 16}));
  g.fetch("loss", loss);
  if (is_training) minimize(loss, Adam{});
}

struct DecidedModel {
  const char* name;
  void (*build)(Graph&, bool is_training);
};

class DecidedModels : public testing::TestWithParam<DecidedModel> {};

TEST_P(DecidedModels, HaveStepsWithTheDecisionsOfPasses) {
  for (const bool is_training : {false, true}) {
    Graph graph;
    GetParam().build(graph, is_training);
    for (const char* chip : {"", "h200"}) {
#if !PAODING_WITH_CUDA
      if (chip[0] != 0) continue;
#endif
      const TargetPtr target =
          chip[0] == 0 ? target_of(Device::cpu()) : std::make_shared<const Target>(named_target(chip));
      for (const DType precision : {f32, bf16}) {
        SCOPED_TRACE(
            fmt::format("{} for {} in {}", is_training ? "trained" : "applied", target->name, to_string(precision)));
        CompileOptions options;
        options.precision = precision;
        const CompiledPlan compiled =
            compile_plan(graph, options, target, is_training ? Preprocess::in_every_run : Preprocess::once);
        const DecisionCounts counts = DecisionCheck(compiled).counts();
        EXPECT_GT(counts.steps, 0);
        EXPECT_EQ(counts.otherwise, 0);
      }
    }
  }
}

const DecidedModel kModels[] = {{"resnet", build_resnet},
                                {"mobile_net", build_mobile_net},
                                {"conv_net", build_conv_net},
                                {"seq2seq", build_seq2seq},
                                {"language_model", build_language_model}};
INSTANTIATE_TEST_SUITE_P(All, DecidedModels, testing::ValuesIn(kModels),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace paoding::testing_program
