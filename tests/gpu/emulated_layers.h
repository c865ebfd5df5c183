// SPDX-License-Identifier: Apache-2.0
// Recurrent layers in the emulation: by CTA groups that a test names, in many orders in which CTAs run and their
// messages arrive.
#pragma once

#include <array>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/emulated_program.h"
#include "tests/support/recurrence_layer.h"

namespace paoding::testing_program {

/// Words that the description of a CTA group of the forward direction has, by semicolons; and a layer.
using CtaGroupCase = std::pair<const char*, LayerCase>;

inline bool has_words(const std::string& text, const std::string& words) {
  std::istringstream each(words);
  for (std::string word; std::getline(each, word, ';');) {
    if (!has(text, word)) return false;
  }
  return true;
}

inline Plan plan_by_cta_group(const CtaGroupCase& c, const Target& target) {
  setenv("PAODING_CTA_GROUP", c.first, 1);
  Plan plan = plan_for_gpu(*graph_of(c.second), target, {}, c.second.is_tf32);
  unsetenv("PAODING_CTA_GROUP");
  return plan;
}

/// Whether a kernel's CTA group has words in its description, and others in its text.
inline bool has_kernel(const Plan& plan, const std::string& why, const std::string& text) {
  for (const Step& step : plan.steps) {
    if (step.kind != Step::Kind::kernel || step.text == nullptr) continue;
    for (const gpu::TextLaunch& launch : step.text->launches) {
      if (has_words(launch.why, why) && has_words(launch.source, text)) return true;
    }
  }
  return false;
}

/// A layer, or layers, as a program; two lots of feeds that runs take in turn, so that memory left by one run is never
/// right for the next.
template <class Case>
struct EmulatedLayer {
  Case layer;
  std::unique_ptr<Graph> graph;
  std::unique_ptr<EmulatedProgram> program;
  std::array<Feeds, 2> feeds;
};

/// In so many orders: the first of each lot against float64, the others against that, bit by bit. Layers whose source
/// has the words of PAODING_LAYERS, if that is set. `looks_at_order`: see EmulatedKernels.
template <class Case>
void expect_right_under_schedules(const std::vector<EmulatedLayer<Case>>& all, int runs, bool looks_at_order = false) {
  std::vector<const gpu::TextLaunch*> kernels;
  for (const auto& each : all) {
    for (const gpu::TextLaunch* kernel : each.program->kernels()) kernels.push_back(kernel);
  }
  const gpu::EmulatedKernels compiled(kernels, looks_at_order);
  for (const auto& each : all) {
    const char* const words = std::getenv("PAODING_LAYERS");
    if (words != nullptr && !has_words(each.layer.text(), words)) continue;
    ASSERT_EQ(each.program->library_op(), "") << each.layer.text();
    const std::array<Tensors, 2> feeds = {to_tensors(*each.graph, each.feeds[0]),
                                          to_tensors(*each.graph, each.feeds[1])};
    const std::vector<unsigned> seeds = schedules(runs);
    std::array<Tensors, 2> first;
    for (std::size_t i = 0; i < seeds.size(); ++i) {
      SCOPED_TRACE(fmt::format("{}, schedule {}", each.layer.text(), seeds[i]));
      Tensors got = each.program->run(compiled, feeds[i % 2], seeds[i]);
      if (i < 2) {
        first[i] = std::move(got);
        expect_near(each.layer, *each.graph, first[i], each.feeds[i]);
      } else {
        expect_same_bits(first[i % 2], got);
      }
    }
  }
}

inline EmulatedLayer<LayerCase> emulated_layer(const CtaGroupCase& by_cta_group, const Target& target) {
  const LayerCase& c = by_cta_group.second;
  const Plan plan = plan_by_cta_group(by_cta_group, target);
  EXPECT_TRUE(has_kernel(plan, by_cta_group.first, "")) << c.text() << ": no CTA group has " << by_cta_group.first;
  auto graph = graph_of(c);
  const std::array<Feeds, 2> feeds = {feeds_of(c, *graph), feeds_of(c, *graph, 6)};
  return {c, std::move(graph), std::make_unique<EmulatedProgram>(plan), feeds};
}

inline void expect_right_in_the_emulation(const std::vector<CtaGroupCase>& cases, const Target& target, int runs) {
  std::vector<EmulatedLayer<LayerCase>> all;
  for (const CtaGroupCase& by_cta_group : cases) all.push_back(emulated_layer(by_cta_group, target));
  expect_right_under_schedules(all, runs);
}

inline void expect_right_in_the_emulation(const std::vector<LayerCase>& cases, const Target& target, int runs) {
  std::vector<CtaGroupCase> any;
  for (const LayerCase& c : cases) any.emplace_back("", c);
  expect_right_in_the_emulation(any, target, runs);
}

/// A GPU without clusters whose multiprocessors have little memory, so that CTA groups need several of them.
inline Target small_gpu() {
  Target target = gpu_target("small", 8, 0, 6, 1e5);
  target.shared_bytes = 64 << 10;
  return target;
}

}  // namespace paoding::testing_program
