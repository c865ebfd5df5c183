// SPDX-License-Identifier: Apache-2.0
// The switches that choose how a recurrence is shared out are of the environment that a program is compiled with: two
// programs of one process have two, whatever the process's variables say.
#include <gtest/gtest.h>

#include <cstdlib>

#include "gpu/codegen/text_kernel.h"
#include "tests/gpu/kernel_texts.h"
#include "tests/support/decision_check.h"
#include "tests/support/pass_check.h"
#include "tests/support/recurrence_layer.h"

namespace paoding::testing_program {
namespace {

CompiledPlan layer_with(const KernelEnvironment& environment) {
  const auto graph = graph_of(LayerCase{bf16, false, 4, 10, 256, true, false});
  CompileOptions options;
  options.allow_tf32 = true;
  return compile_plan(*graph, options, std::make_shared<const Target>(named_target("h200")), Preprocess::in_every_run,
                      std::make_shared<const KernelEnvironment>(environment));
}

// Descriptions and sources of the launches of its recurrences.
std::string texts_of(const CompiledPlan& compiled) {
  std::string texts;
  for (const Step& step : compiled.plan.steps) {
    if (step.kind != Step::Kind::kernel || step.text == nullptr) continue;
    for (const gpu::TextLaunch& launch : step.text->launches) texts += launch.why + "\n" + launch.source.text() + "\n";
  }
  return texts;
}

TEST(DecisionForAGpu, TwoEnvironmentsOfOneProcessGiveTwoDecisions) {
  const CompiledPlan of_16 = layer_with({.cta_group = "of 16 CTAs"}), of_8 = layer_with({.cta_group = "of 8 CTAs"}),
                     telling = layer_with({.tells_phases = true});
  EXPECT_TRUE(has(texts_of(of_16), "of 16 CTAs"));
  EXPECT_TRUE(has(texts_of(of_8), "of 8 CTAs"));
  EXPECT_NE(texts_of(of_16), texts_of(of_8));
  EXPECT_TRUE(has(texts_of(telling), "kTellsPhases = true"));
  EXPECT_FALSE(has(texts_of(of_16), "kTellsPhases = true"));
  for (const CompiledPlan* compiled : {&of_16, &of_8, &telling}) {
    EXPECT_GT(DecisionCheck(*compiled).counts().steps, 0);
  }
}

TEST(DecisionForAGpu, VariablesOfTheProcessAreNotLookedAtWhereAnEnvironmentIsGiven) {
  const std::string plain = texts_of(layer_with({}));
  setenv("PAODING_CTA_GROUP", "of 16 CTAs", 1), setenv("PAODING_PHASES", "1", 1);
  const std::string given = texts_of(layer_with({}));
  const KernelEnvironmentPtr own = process_environment();
  unsetenv("PAODING_CTA_GROUP"), unsetenv("PAODING_PHASES");
  EXPECT_EQ(given, plain);
  EXPECT_EQ(own->cta_group, "of 16 CTAs");
  EXPECT_TRUE(own->tells_phases);
  EXPECT_NE(own->timed, nullptr);
  EXPECT_TRUE(has(texts_of(layer_with(*own)), "kTellsPhases = true"));
}

// A pass asks about a layer alone whose results are all read; the planner knows which layers stand beside and above it,
// and which results nobody reads. No answer may turn into none by that: the claim stands.
TEST(DecisionForAGpu, AKernelThatClaimsALayerAloneTakesItBesideOthersToo) {
  int claims = 0;
  for (const char* chip : {"h200", "a100"}) {
    const KernelSetting exact{.target = std::make_shared<const Target>(named_target(chip))},
        tf32{.target = exact.target, .allow_tf32 = true};
    for (const auto& [dtype, setting] : {std::pair{f32, &exact}, {f32, &tf32}, {bf16, &exact}}) {
      for (const std::int64_t hidden : {64, 256, 512, 1024, 2048}) {
        for (const std::int64_t batch : {1, 16, 64, 256}) {
          const auto graph = graph_of(LayerCase{dtype, setting->allow_tf32, 16, batch, hidden, false, false, false});
          const Node& layer = only(*graph, "lstm_recurrence");
          if (decide(expected_call(*graph, layer, *setting)).kernel() == nullptr) continue;
          ++claims;
          for (const std::uint32_t unread : {0b00000u, 0b00100u, 0b11000u, 0b11100u}) {
            for (const auto& [together, layers] : {std::pair{1, 2}, {1, 4}, {2, 1}, {4, 1}, {2, 2}}) {
              KernelCall call = expected_call(*graph, layer, *setting, unread);
              call.together = together, call.pipelined_layers = layers;
              const Decision decision = decide(std::move(call));
              EXPECT_NE(decision.kernel(), nullptr)
                  << fmt::format("{} {} H {} B {}, {} together, {} layers, unread {:b}: {}", chip, to_string(dtype),
                                 hidden, batch, together, layers, unread, fmt::join(decision.refusals, "; "));
            }
          }
        }
      }
    }
  }
  EXPECT_GE(claims, 50);
}

}  // namespace
}  // namespace paoding::testing_program
