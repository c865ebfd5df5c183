// SPDX-License-Identifier: Apache-2.0
// Graphs on the caller's memory of a GPU whose weights are in a store: the order of their runs and of those that write
// the parameters, and captures.
#include <gtest/gtest.h>

#include "tests/gpu/enqueued_runs.h"
#include "tests/gpu/placed_on_gpu.h"

namespace paoding::testing_program {
namespace {

constexpr std::int64_t kCount = 8;

// Reads w, and a value that follows from it alone.
void build_reading(Graph& g) {
  const Value w = g.parameter("w", f32, {kCount}), x = g.input("x", f32, {kCount});
  g.fetch("y", x + w + cumsum(w * 2.0, 0));
}

Dense wanted(double w, double x) {
  Dense all;
  for (std::int64_t i = 0; i < kCount; ++i) all.push_back(x + w + 2 * w * static_cast<double>(i + 1));
  return all;
}

Tensors fed(double x) { return {{"x", Tensor::from(f32, {kCount}, Dense(kCount, x))}}; }
Tensor all_of(double w) { return Tensor::from(f32, {kCount}, Dense(kCount, w)); }

// A program that writes, the host that sets, and runs in two streams of the caller's, in many orders of the device.
TEST(PlacedParametersOnAGpu, ComeInOrderWithWhoWritesThem) {
  PD_SKIP_WITHOUT_A_GPU();
  Graph reads, writes;
  build_reading(reads);
  const Value w = writes.parameter("w", f32, {kCount});
  assign(w, w + 1.0);
  const Parameters parameters(reads, Device::cuda());
  CompileOptions options;
  options.device = Device::cuda();
  Program training(writes, options, &parameters);
  const gpu::GpuDevice& device = gpu::GpuDevice::get(0);
  device.make_current();
  const gpu::Stream stream(device);
  for (const bool uses_graph : {false, true}) {
    PlacedGraph placed(reads, Device::cuda(), {.uses_graph = uses_graph}, &parameters);
    std::vector<std::unique_ptr<PlacedOnGpu>> all;
    for (int i = 0; i < 4; ++i) all.push_back(std::make_unique<PlacedOnGpu>(placed));
    for (unsigned seed = 1; seed <= 6; ++seed) {
      schedule(seed, seed % 3);
      const_cast<Parameters&>(parameters).set("w", all_of(5));
      for (const auto& memory : all) {
        memory->feed(fed(3));
        memory->run(stream);  // nobody waits between these
        training.run();
      }
      for (std::size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(all[i]->take(stream).at("y").to_doubles(), wanted(5 + static_cast<double>(i), 3)) << seed << " " << i;
      }
      all[0]->run(stream);
      const_cast<Parameters&>(parameters).set("w", all_of(1));  // not before that run has read it
      EXPECT_EQ(all[0]->take(stream).at("y").to_doubles(), wanted(9, 3)) << seed;
    }
  }
}

TEST(PlacedParametersOnAGpu, ArePreparedInFrontOfACapture) {
  PD_SKIP_WITHOUT_A_GPU();
  Graph g;
  build_reading(g);
  Parameters parameters(g, Device::cuda());
  const gpu::GpuDevice& device = gpu::GpuDevice::get(0);
  device.make_current();
  const gpu::Stream stream(device);
  PlacedGraph placed(g, Device::cuda(), {}, &parameters);
  PlacedOnGpu memory(placed);
  parameters.set("w", all_of(2));
  std::string message;
  {
    CallersGraph(stream, [&] { message = message_of([&] { memory.run(stream); }); });
  }
  EXPECT_TRUE(has(message, "hint: call prepare()")) << message;
  placed.prepare();
  CallersGraph captured(stream, [&] {
    forget_calls();
    memory.run(stream);
    EXPECT_EQ(waits(), 0u);
  });
  memory.feed(fed(1));
  captured.launch();
  EXPECT_EQ(memory.take(stream).at("y").to_doubles(), wanted(2, 1));
  parameters.set("w", all_of(4));
  placed.prepare();
  captured.launch();
  EXPECT_EQ(memory.take(stream).at("y").to_doubles(), wanted(4, 1));
}

}  // namespace
}  // namespace paoding::testing_program
