// SPDX-License-Identifier: Apache-2.0
// Programs::prepare on a GPU: kernels are compiled on other threads, and a program of a prepared shape asks NVRTC for
// none of its plan.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "gpu/driver/kernel_cache.h"
#include "paoding/ops/lists.h"
#include "paoding/programs.h"
#include "tests/gpu/enqueued_runs.h"
#include "tests/gpu/placed_on_gpu.h"

namespace paoding::testing_program {
namespace {

TEST(PreparedProgramsOnAGpu, AskForNoKernelAndGiveTheCpusResults) {
  PD_SKIP_WITHOUT_A_GPU();
  const auto build = [](const Programs::Key& key) {
    auto graph = std::make_unique<Graph>();
    const Value x = graph->input("x", f32, {key[0], 12});
    graph->fetch("y", cumsum(tanh(x) * 0.73125 + 0.328125, 1));
    graph->fetch("z", sum(x * x + 0.328125, {1}));
    return graph;
  };
  CompileOptions options;
  options.device = Device::cuda();
  Programs programs(build, options);
  const std::vector<Programs::Key> keys{{3}, {20}, {64}};
  programs.prepare(keys);
  // at() would take a shape that no thread has begun: the kernels of all are waited for.
  const auto answers = [] {
    const gpu::CacheCounts counts = gpu::KernelCache::shared().counts();
    return counts.compiles + counts.disk_hits + counts.memory_hits;
  };
  for (std::int64_t seen = -1, now = answers(); seen != now || now == 0; seen = now, now = answers()) {
    std::this_thread::sleep_for(std::chrono::seconds(3));
  }
  for (const Programs::Key& key : keys) {
    Dense values;
    for (std::int64_t i = 0; i < key[0] * 12; ++i) values.push_back(static_cast<double>(i % 17 - 8) / 8);
    const Tensor x = Tensor::from(f32, {key[0], 12}, values);
    const auto got = programs.at(key).run({{"x", x}});
    Program on_cpu(*build(key));
    const auto wanted = on_cpu.run({{"x", x}});
    for (const char* name : {"y", "z"}) {
      const Dense a = got.at(name).to_doubles(), b = wanted.at(name).to_doubles();
      ASSERT_EQ(a.size(), b.size());
      for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << name << " " << i;
    }
    // Those that bring results to the host and tell of a run's end are the executor's own, and no part of the plan.
    EXPECT_LE(programs.at(key).report().kernels_compiled, 2) << key[0];
  }
}

}  // namespace
}  // namespace paoding::testing_program
