// SPDX-License-Identifier: Apache-2.0
// Mistakes planted in the text of kernels whose CTAs wait for each other, a wait, a barrier, a second place or an order
// of stores left out: schedules of the emulation are to find them.
#pragma once

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "gpu/shared_launch.h"
#include "tests/emulated_program.h"

namespace paoding::testing_program {

struct Mistake {
  std::string right, wrong;
};

class PlantedMistakes {
 public:
  /// In every kernel of the plan that has such text. Runs take two lots of feeds in turn.
  void plant(const std::string& what, const Plan& plan, const std::array<Tensors, 2>& feeds, const Mistake& mistake) {
    int planted = 0;
    all_.push_back({what + ": " + mistake.right, std::make_unique<EmulatedProgram>(plan),
                    std::make_unique<EmulatedProgram>(with_mistake(plan, mistake, &planted)), feeds});
    EXPECT_GT(planted, 0) << all_.back().what << ": not in the text";
  }

  /// Each by one of a few schedules: results that are not those of the text as it is, or CTAs that wait in vain; or
  /// what is not ordered, if that is looked at. Prints which one where PAODING_SCHEDULES is set.
  void expect_found(bool looks_at_order = false) const {
    std::vector<const gpu::TextLaunch*> kernels;
    for (const Planted& planted : all_) {
      for (const EmulatedProgram* program : {planted.right.get(), planted.wrong.get()}) {
        for (const gpu::TextLaunch* kernel : program->kernels()) kernels.push_back(kernel);
      }
    }
    const gpu::EmulatedKernels compiled(kernels, looks_at_order);
    for (const Planted& planted : all_) {
      const std::array<Tensors, 2> want = {planted.right->run(compiled, planted.feeds[0], 1),
                                           planted.right->run(compiled, planted.feeds[1], 2)};
      unsigned seed = 1;
      while (seed <= kMostSchedules && is_right(planted, compiled, want, seed)) ++seed;
      EXPECT_LE(seed, kMostSchedules) << planted.what << ": not found";
      if (std::getenv("PAODING_SCHEDULES") != nullptr) std::printf("schedule %u: %s\n", seed, planted.what.c_str());
    }
  }

 private:
  static constexpr unsigned kMostSchedules = 40;

  struct Planted {
    std::string what;
    std::unique_ptr<EmulatedProgram> right, wrong;
    std::array<Tensors, 2> feeds;
  };

  static bool is_right(const Planted& planted, const gpu::EmulatedKernels& compiled, const std::array<Tensors, 2>& want,
                       unsigned seed) {
    Tensors got;
    try {
      got = planted.wrong->run(compiled, planted.feeds[seed % 2], seed);
    } catch (const gpu::EmulationFault&) {
      return false;
    }
    for (const auto& [name, tensor] : want[seed % 2]) {
      if (std::memcmp(tensor.bytes(), got.at(name).bytes(), static_cast<std::size_t>(tensor.size_bytes())) != 0) {
        return false;
      }
    }
    return true;
  }

  // With other names too, so that both can be compiled at once.
  Plan with_mistake(Plan plan, const Mistake& mistake, int* planted) const {
    for (Step& step : plan.steps) {
      if (step.kind != Step::Kind::kernel || step.text == nullptr) continue;
      auto text = std::make_shared<gpu::TextPlan>(*step.text);
      for (gpu::TextLaunch& launch : text->launches) {
        if (!has(launch.source, mistake.right) && !has(launch.shared_source, mistake.right)) continue;
        const std::string entry = launch.entry + "_wrong" + std::to_string(all_.size());
        for (std::string* source : {&launch.source, &launch.shared_source}) {
          gpu::replace_all(source, mistake.right, mistake.wrong);
          gpu::replace_all(source, launch.entry, entry);
        }
        launch.entry = entry;
        ++*planted;
      }
      step.text = text;
    }
    return plan;
  }

  std::vector<Planted> all_;
};

}  // namespace paoding::testing_program
