// SPDX-License-Identifier: Apache-2.0
// A kernel that stores where nothing is takes the process's GPU with it: the error names the program and how to replay
// it step by step, and the replay names step, op and scope. Each in a process of its own.
#include <gtest/gtest.h>

#include "gpu/codegen/text_kernel.h"
#include "gpu/driver/driver.h"
#include "paoding/op.h"
#include "paoding/paoding.h"

namespace paoding {
namespace {

// In these processes alone, so that no other test meets the op.
void register_wild_store() {
  register_op({.name = "my_wild_store",
               .summary = "a, stored where nothing is",
               .kind = OpKind::kernel,
               .inputs = {"a"},
               .infer = [](const OpCall& call) { return std::vector<Type>{call.inputs[0]}; }});
  gpu::register_text_kernel(
      "my_wild_store", "text", [](const KernelCall&) { return std::string(); },
      [](const KernelCall&) {
        gpu::TextParts parts;
        parts.name = "wild_store";
        parts.threads = 32;
        parts.functions = "PD_DEVICE void wild_store(const float* a, float* out) { out[1ll << 44] = a[0]; }\n";
        parts.operands = {"const float* a", "float* out"};
        parts.call = "wild_store(a, out)";
        parts.ctas = 1;
        return gpu::TextPlan{.launches = {gpu::make_text_kernel(parts)}};
      });
}

[[noreturn]] void run_and_tell(Execution execution) {
  register_wild_store();
  Graph g;
  const Value x = g.input("x", f32, {4});
  Value y;
  {
    const Scope scope(g, "decoder");
    y = call("my_wild_store", {tanh(x)});
  }
  g.fetch("y", y * 2.0);
  try {
    CompileOptions options;
    options.device = Device::cuda(0);
    options.execution = execution;
    Program program(g, options);
    program.run({{"x", Tensor::from(f32, {4}, std::vector<double>(4, 0.5))}});
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::_Exit(error.kind() == ErrorKind::device ? 0 : 1);
  }
  std::_Exit(2);
}

class FaultingKernelOnGpuDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
    const bool is_pretended = gpu::GpuDevice::get(0).target().name.find("pretended") != std::string::npos;
    if (is_pretended) GTEST_SKIP() << "NOT CHECKED: here a wild store is the end of this process";
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // begins anew: a driver that is in use survives no fork
  }
};

TEST_F(FaultingKernelOnGpuDeathTest, NamesTheProgramAndHowToReplayIt) {
  EXPECT_EXIT(run_and_tell(Execution::captured), testing::ExitedWithCode(0),
              "program of y: .*CUDA_ERROR_ILLEGAL_ADDRESS.*hint: the GPU's context is lost.*paoding run --stepwise");
}

TEST_F(FaultingKernelOnGpuDeathTest, ReplayedNamesStepOpAndScope) {
  EXPECT_EXIT(run_and_tell(Execution::stepwise), testing::ExitedWithCode(0),
              "step [0-9]+ \\(my_wild_store in decoder, turn 0\\) failed: .*CUDA_ERROR_ILLEGAL_ADDRESS");
}

}  // namespace
}  // namespace paoding
