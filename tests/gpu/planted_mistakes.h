// SPDX-License-Identifier: Apache-2.0
// Mistakes planted in the source of kernels whose CTAs wait for each other, a wait, a barrier, a second place or an
// order of stores left out: schedules of the emulation are to find them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "gpu/codegen/fused_launch.h"
#include "tests/gpu/emulated_program.h"

namespace paoding::testing_program {

struct Mistake {
  std::string right, wrong;
};

class PlantedMistakes {
 public:
  /// Each in every kernel of the plan that has such text. Runs take two lots of feeds in turn.
  void plant(const std::string& what, const Plan& plan, const std::array<Tensors, 2>& feeds,
             const std::vector<Mistake>& mistakes) {
    Exchange& exchange = all_.emplace_back(Exchange{what, std::make_unique<EmulatedProgram>(plan), {}, feeds});
    for (const Mistake& mistake : mistakes) {
      int planted = 0;
      exchange.wrong.push_back(
          {mistake.right, std::make_unique<EmulatedProgram>(with_mistake(plan, mistake, &planted))});
      EXPECT_GT(planted, 0) << what << ": not in the text: " << mistake.right;
    }
  }

  /// Each by one of a few schedules: results that are not those of the source as it is, or CTAs that wait in vain; or
  /// accesses without an order, if those are looked at. Prints which one where PAODING_SCHEDULES is set.
  void expect_found(bool looks_at_order = false) const {
    std::vector<const gpu::TextLaunch*> kernels;
    const auto add = [&](const EmulatedProgram& program) {
      for (const gpu::TextLaunch* kernel : program.kernels()) kernels.push_back(kernel);
    };
    for (const Exchange& exchange : all_) {
      add(*exchange.right);
      for (const Planted& planted : exchange.wrong) add(*planted.program);
    }
    const gpu::EmulatedKernels compiled(kernels, looks_at_order);
    for (const Exchange& exchange : all_) {
      const std::array<Tensors, 2> want = {exchange.right->run(compiled, exchange.feeds[0], 1),
                                           exchange.right->run(compiled, exchange.feeds[1], 2)};
      for (const Planted& planted : exchange.wrong) {
        unsigned seed = 1;
        const auto is_right = [&] { return gives(planted, compiled, exchange.feeds[seed % 2], want[seed % 2], seed); };
        while (seed <= kMostSchedules && is_right()) ++seed;
        EXPECT_LE(seed, kMostSchedules) << exchange.what << ": not found: " << planted.text;
        if (std::getenv("PAODING_SCHEDULES") == nullptr) continue;
        std::printf("schedule %u: %s: %s\n", seed, exchange.what.c_str(), planted.text.c_str());
      }
    }
  }

 private:
  static constexpr unsigned kMostSchedules = 40;

  struct Planted {
    std::string text;
    std::unique_ptr<EmulatedProgram> program;
  };
  struct Exchange {
    std::string what;
    std::unique_ptr<EmulatedProgram> right;
    std::vector<Planted> wrong;
    std::array<Tensors, 2> feeds;
  };

  static bool gives(const Planted& planted, const gpu::EmulatedKernels& compiled, const Tensors& feeds,
                    const Tensors& want, unsigned seed) {
    Tensors got;
    try {
      got = planted.program->run(compiled, feeds, seed);
    } catch (const gpu::EmulationFault&) {
      return false;
    }
    return std::ranges::all_of(want, [&](const auto& named) {
      const auto& [name, tensor] = named;
      return std::memcmp(tensor.bytes(), got.at(name).bytes(), static_cast<std::size_t>(tensor.size_bytes())) == 0;
    });
  }

  // With other names too, so that both can be compiled at once.
  Plan with_mistake(Plan plan, const Mistake& mistake, int* planted) const {
    for (Step& step : plan.steps) {
      if (step.kind != Step::Kind::kernel || step.text == nullptr) continue;
      auto text = std::make_shared<gpu::TextPlan>(*step.text);
      for (gpu::TextLaunch& launch : text->launches) {
        if (!has(launch.source, mistake.right) && !has(launch.shared_source, mistake.right)) continue;
        const std::string entry = fmt::format("{}_wrong{}_{}", launch.entry, all_.size(), all_.back().wrong.size());
        for (gpu::KernelSource* source : {&launch.source, &launch.shared_source}) {
          std::string text = *source;
          gpu::replace_all(&text, mistake.right, mistake.wrong);
          gpu::replace_all(&text, launch.entry, entry);
          *source = std::move(text);
        }
        launch.entry = entry;
        ++*planted;
      }
      step.text = text;
    }
    return plan;
  }

  std::vector<Exchange> all_;
};

}  // namespace paoding::testing_program
