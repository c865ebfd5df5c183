// SPDX-License-Identifier: Apache-2.0
// Graphs whose kernels are checked against float64: several in the emulation, compiled in one go, or one as it runs on
// the GPU that is here.
#pragma once

#include "gpu/driver/driver.h"
#include "gpu/driver/kernel_cache.h"
#include "tests/gpu/emulated_program.h"
#include "tests/support/case_share.h"
#include "tests/support/error_model.h"

namespace paoding::testing_program {

/// `limit_times`: tensor cores cut sums off where the model, and the emulation, round them.
inline void expect_within(const Graph& g, const Feeds& feeds, const Tensors& got, double few_roundings,
                          double limit_times = 1) {
  for (auto [name, expected] : expected_within(g, feeds, few_roundings)) {
    for (double& limit : expected.limits) limit *= limit_times;
    EXPECT_EQ(expected.problem_with(got.at(name).to_doubles()), "") << name;
  }
}

/// Cases whose runs give the same twice, CTAs in one order and in another. Those of the share that is asked for are
/// run.
class EmulatedCases {
 public:
  void add(std::string what, std::unique_ptr<Graph> graph, Feeds feeds, Plan plan) {
    add(std::move(what), std::move(graph), std::move(feeds), std::make_unique<EmulatedProgram>(std::move(plan)));
  }
  void add(std::string what, std::unique_ptr<Graph> graph, Feeds feeds, std::unique_ptr<EmulatedProgram> program) {
    EXPECT_EQ(program->library_op(), "") << what;
    cases_.push_back({std::move(what), std::move(graph), std::move(feeds), std::move(program)});
  }
  std::size_t size() const { return cases_.size(); }
  void check(double few_roundings = 4) {
    keep_share(&cases_, [](const Case& c) { return c.what; });
    std::vector<const gpu::TextLaunch*> kernels;
    for (const Case& c : cases_) {
      for (const gpu::TextLaunch* kernel : c.program->kernels()) kernels.push_back(kernel);
    }
    const gpu::EmulatedKernels compiled(kernels);
    unsigned seed = 1;
    for (const Case& c : cases_) {
      SCOPED_TRACE(c.what);
      Tensors tensors = to_tensors(*c.graph, c.feeds);
      tensors.merge(parameter_tensors(*c.graph, c.feeds));
      const Tensors got = c.program->run(compiled, tensors, seed++);
      expect_within(*c.graph, c.feeds, got, few_roundings);
      expect_same_bits(got, c.program->run(compiled, tensors, seed++));
      if (testing::Test::HasFailure()) return;
    }
  }

 private:
  struct Case {
    std::string what;
    std::unique_ptr<Graph> graph;
    Feeds feeds;
    std::unique_ptr<EmulatedProgram> program;
  };
  std::vector<Case> cases_;
};

/// The same on the GPU that is here; kernels are compiled side by side.
class CasesOnGpu {
 public:
  void add(std::string what, std::unique_ptr<Graph> graph, Feeds feeds, CompileOptions options = {},
           double limit_times = 1) {
    options.device = Device::best();
    cases_.push_back({std::move(what), std::move(graph), std::move(feeds), std::move(options), limit_times});
  }
  void check(double few_roundings) const {
    const auto target = std::make_shared<const Target>(gpu::GpuDevice::get(0).target());
    std::vector<gpu::KernelSource> sources;
    for (const Case& c : cases_) {
      for (const Step& step : compile_plan(*c.graph, c.options, target).plan.steps) {
        if (step.text == nullptr) continue;
        for (const gpu::TextLaunch& launch : step.text->launches) sources.push_back(launch.source);
      }
    }
    gpu::KernelCache::shared().compile_all(sources, target->arch());
    for (const Case& c : cases_) {
      SCOPED_TRACE(c.what);
      Program program(*c.graph, c.options);
      Tensors tensors = to_tensors(*c.graph, c.feeds);
      tensors.merge(parameter_tensors(*c.graph, c.feeds));
      const Tensors got = program.run(tensors);
      expect_within(*c.graph, c.feeds, got, few_roundings, c.limit_times);
      expect_same_bits(got, program.run(tensors));
    }
  }

 private:
  struct Case {
    std::string what;
    std::unique_ptr<Graph> graph;
    Feeds feeds;
    CompileOptions options;
    double limit_times;
  };
  std::vector<Case> cases_;
};

}  // namespace paoding::testing_program
