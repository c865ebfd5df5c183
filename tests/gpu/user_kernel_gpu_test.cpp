// SPDX-License-Identifier: Apache-2.0
// Kernels of a user's own: where they run, the inputs of their source, the messages for mistakes. Their results are
// compared by the op sweep and, on the CPU, by TextKernels.
#include <fstream>

#include "examples/rotary.h"
#include "gpu/driver/nvrtc.h"
#include "ops/kernel.h"
#include "tests/gpu/kernel_texts.h"
#include "tests/support/temporary_folder.h"

namespace paoding::testing_program {
namespace {

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::unique_ptr<Graph> rotated(std::int64_t steps, std::int64_t half) {
  rotary_op::register_rotary();
  auto graph = std::make_unique<Graph>();
  const Value x = graph->input("x", f32, {2, steps, 2 * half}), angle = graph->input("angle", f32, {steps, half});
  const Value y = rotary_op::rotary(x * 2.0, angle);
  graph->fetch("dx", gradients(sum(y * y), {x})[0]);
  return graph;
}

std::vector<const Step*> steps_of(const Plan& plan, std::string_view kernel) {
  std::vector<const Step*> found;
  for (const Step& step : plan.steps) {
    if (step.kernel != nullptr && step.kernel->name == kernel) found.push_back(&step);
  }
  return found;
}

TEST(UserKernel, RunsTheOpAndItsGradient) {
  const Plan plan = plan_for_gpu(*rotated(40, 64));
  const auto steps = steps_of(plan, "rotate");
  ASSERT_EQ(steps.size(), 2u);
  for (const Step* step : steps) {
    ASSERT_EQ(step->text->launches.size(), 1u);
    EXPECT_EQ(step->text->launches[0].grid[0], 2 * 40 * 64 / 256u);
    EXPECT_EQ(step->text->launches[0].block, 256u);
  }
}

TEST(UserKernel, OneTextServesAllShapes) {
  const Plan one = plan_for_gpu(*rotated(40, 64)), other = plan_for_gpu(*rotated(3, 5));
  const auto text = [](const Plan& plan) { return steps_of(plan, "rotate").at(0)->text->launches.at(0).source; };
  EXPECT_EQ(text(one), text(other));
}

TEST(UserKernel, ADifferentTargetTakesTheComposition) {
  CompileOptions options;
  const auto compiled = compile_plan(*rotated(4, 4), options, std::make_shared<const Target>(named_target("avx512")));
  EXPECT_TRUE(steps_of(compiled.plan, "rotate").empty());
}

const OpDef& register_composed(const char* name) {
  return register_op({.name = name,
                      .summary = "2 a",
                      .kind = OpKind::composed,
                      .inputs = {"a"},
                      .gradient = [](const GradCall& call) { return Values{call.grads[0] * 2.0}; },
                      .compose = [](std::span<const Value> in, const Attrs&) { return Values{in[0] * 2.0}; }});
}

CudaLaunch launch_of(const CudaCall& call) {
  const std::int64_t count = call.inputs[0].shape.elements();
  return {.call = "twice(a, out, size)", .sizes = {{"count", count}}, .ctas = (count + 255) / 256};
}

std::string source_of(const char* op) {
  Graph g;
  g.fetch("y", call(op, {g.input("x", f32, {1000})}));
  const Plan plan = plan_for_gpu(g);
  return steps_of(plan, op).at(0)->text->launches.at(0).source;
}

TEST(UserKernel, AMistakeIsNvrtcsMessageWithTheUsersFileAndLine) {
  if (gpu::nvrtc() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << gpu::nvrtc_problem();
  register_composed("test_mistaken");
  const int line = __LINE__ + 1;
  const CudaText text(__FILE__, __LINE__, R"(
template <class T>
PD_DEVICE void twice(const T* a, T* out, const Sizes& size) {
  const Index i = (Index)blockIdx.x * kThreads + threadIdx.x;
  if (i < size.count) store_one(out + i, load_one<false>(b + i) * 2);
}
)");
  register_cuda_kernel("test_mistaken", {.name = "test_mistaken", .text = text, .launch = launch_of});
  const std::string source = source_of("test_mistaken");
  const std::string error = error_of([&] { gpu::compile(source, "kernel.cu", "sm_90a"); });
  const std::string place = std::string(__FILE__) + "(" + std::to_string(line + 4) + "): error";
  EXPECT_NE(error.find(place), std::string::npos) << place << "\n" << error;
  EXPECT_NE(error.find("identifier \"b\" is undefined"), std::string::npos) << error;
}

TEST(UserKernel, AMistakeInAFileOfItsOwnIsNamedByThat) {
  if (gpu::nvrtc() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << gpu::nvrtc_problem();
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "twice.cu").string();
  std::ofstream(path)
      << "PD_DEVICE void twice(const float* a, float* out, const Sizes& size) {\n  no_such_call();\n}\n";
  register_composed("test_from_file");
  register_cuda_kernel("test_from_file",
                       {.name = "test_from_file", .text = CudaText::from_file(path), .launch = launch_of});
  const std::string source = source_of("test_from_file");
  const std::string error = error_of([&] { gpu::compile(source, "kernel.cu", "sm_90a"); });
  EXPECT_NE(error.find(path + "(2): error"), std::string::npos) << error;
  EXPECT_NE(error_of([&] { CudaText::from_file(path + ".not"); }).find("cannot be read"), std::string::npos);
}

TEST(UserKernel, ALaunchThatNoChipTakesIsRefused) {
  register_composed("test_launched");
  auto launch = std::make_shared<CudaLaunch>(CudaLaunch{.call = "twice(a, out, size)", .ctas = 1});
  register_cuda_kernel("test_launched", {.name = "test_launched",
                                         .text = CudaText("nothing.cu", 1, "// nothing\n"),
                                         .launch = [launch](const CudaCall&) { return *launch; }});
  const auto error = [&](const CudaLaunch& wrong) {
    *launch = wrong;
    return error_of([] { source_of("test_launched"); });
  };
  const auto expect = [&](const CudaLaunch& wrong, const char* part) {
    const std::string said = error(wrong);
    EXPECT_NE(said.find(std::string("test_launched: kernel 'test_launched': ") + part), std::string::npos) << said;
  };
  expect({.call = "f()", .ctas = -1}, "its launch has -1 CTAs");
  expect({.call = "f()", .ctas = 1, .threads = 0}, "its launch has 0 threads, needs 1 to 1024");
  expect({.call = "f()", .ctas = 1, .threads = 1025}, "its launch has 1025 threads");
  expect({.call = "f()", .ctas = 1, .shared_bytes = 1 << 20}, "its launch has 1048576 bytes of shared memory");
  expect({.call = "", .ctas = 1}, "its launch has no call");
  expect({.call = "f()", .sizes = {{"two words", 1}}, .ctas = 1}, "a size is named 'two words'");
}

TEST(UserKernel, RegisteringSaysWhatIsMissing) {
  const auto register_with = [](const char* op, const CudaKernel& kernel) {
    return error_of([&] { register_cuda_kernel(op, kernel); });
  };
  const CudaKernel whole{.name = "k", .text = CudaText("x.cu", 1, "x"), .launch = launch_of};
  EXPECT_NE(register_with("no_such_op", whole).find("there is no op of this name"), std::string::npos);
  EXPECT_NE(register_with("add", whole).find("no kernel can run it"), std::string::npos);
  EXPECT_NE(register_with("add_n", whole).find("no kernel can run it"), std::string::npos);
  register_composed("test_incomplete");
  CudaKernel kernel = whole;
  kernel.name = "";
  EXPECT_NE(register_with("test_incomplete", kernel).find("the kernel has no name"), std::string::npos);
  kernel = whole;
  kernel.text.text = "";
  EXPECT_NE(register_with("test_incomplete", kernel).find("the kernel has no text"), std::string::npos);
  kernel = whole;
  kernel.launch = {};
  EXPECT_NE(register_with("test_incomplete", kernel).find("says nothing of its launch"), std::string::npos);
}

}  // namespace
}  // namespace paoding::testing_program
