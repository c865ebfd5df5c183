// SPDX-License-Identifier: Apache-2.0
// Convolutions by cuDNN: the engines that timing lets through against sums in f64, on a GPU or a pretended one; when a
// plan has them, by the rule and by timing; that they are declined, and why.
#include "ops/conv/gpu/conv_cudnn.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <span>

#include "gpu/driver/write_memory.h"
#include "gpu/libraries/cudnn.h"
#include "gpu/libraries/plan_cache.h"
#include "runtime/compile.h"
#include "runtime/gpu/tuning.h"
#include "tests/gpu/on_gpu.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

struct EngineCase {
  Shape x, w;
  Conv2dOptions options = {};
  bool is_usual = true;  // cuDNN has to take it
};

const std::vector<EngineCase>& engine_cases() {
  static const std::vector<EngineCase> all = {
      {{2, 64, 9, 10}, {32, 64, 3, 3}, {.padding = {1, 1, 1, 1}}},
      {{1, 32, 7, 7}, {64, 32, 3, 3}, {.stride = {2, 2}, .padding = {1, 1, 1, 1}}},
      {{2, 40, 6, 5}, {24, 40, 1, 1}},
      {{2, 16, 8, 9}, {16, 16, 1, 1}, {.stride = {2, 2}}},
      {{1, 64, 9, 8}, {64, 16, 5, 5}, {.padding = {2, 2, 2, 2}, .groups = 4}, false},
      {{2, 32, 8, 8}, {32, 1, 3, 3}, {.padding = {1, 1, 1, 1}, .groups = 32}, false},
      {{2, 16, 10, 12}, {24, 16, 3, 3}, {.dilation = {2, 3}}, false},
      {{2, 2, 11, 8}, {6, 2, 5, 5}, {.stride = {2, 2}, .padding = {2, 2, 2, 2}}, false},
      {{1, 18, 7, 7}, {34, 18, 3, 3}, {.padding = {0, 1, 2, 1}}, false},
  };
  return all;
}

// -1, 0 and 1: sums of their products are exact in every dtype, in any order.
Dense small_numbers(const Shape& shape, unsigned seed) {
  Dense made;
  std::mt19937 random(seed);
  for (std::int64_t i = 0; i < shape.elements(); ++i) made.push_back(static_cast<double>(random() % 3) - 1);
  return made;
}

// The elements of a dense value in the order in which they lie, or back.
Dense moved(const Dense& values, const Layout& layout, bool is_back) {
  const Shape& shape = layout.type.shape;
  Dense made(values.size());
  std::size_t i = 0;
  for (std::int64_t a = 0; a < shape[0]; ++a) {
    for (std::int64_t b = 0; b < shape[1]; ++b) {
      for (std::int64_t c = 0; c < shape[2]; ++c) {
        for (std::int64_t d = 0; d < shape[3]; ++d, ++i) {
          const auto at = static_cast<std::size_t>(a * layout.strides[0] + b * layout.strides[1] +
                                                   c * layout.strides[2] + d * layout.strides[3]);
          (is_back ? made[i] : made[at]) = values[is_back ? at : i];
        }
      }
    }
  }
  return made;
}

// The convolutions of a case between additions, so that images lie as kernels want them; `dtype` of 16 bits has the
// wide gradient too.
void build_engine_case(Graph& g, const EngineCase& c, DType dtype) {
  const Value x = g.input("x", dtype, c.x), w = g.input("w", dtype, c.w), twice = x + x,
              y = conv2d(twice, w, c.options);
  const Value dy = g.input("dy", dtype, y.shape()), more = dy + dy;
  const Value of_input = conv2d_grad_input(more, w, {c.x[2], c.x[3]}, c.options);
  const Value of_weight = conv2d_grad_weight(twice, more, {c.w[2], c.w[3]}, c.options);
  g.fetch("y", y + y), g.fetch("dx", of_input + of_input), g.fetch("dw", of_weight);
  if (dtype != bf16 && dtype != f16) return;
  Attrs attrs = g.node(of_weight.ref().node).attrs;
  g.fetch("wide dw", call("conv2d_grad_weight_wide", {twice, more}, attrs));
}

std::vector<KernelCall> calls_of(const EngineCase& c, DType dtype, bool tf32, const TargetPtr& target) {
  Graph g;
  build_engine_case(g, c, dtype);
  CompileOptions options;
  options.allow_tf32 = tf32;
  std::vector<KernelCall> calls;
  for (const Step& step : compile_plan(g, options, target).plan.steps) {
    if (step.kind == Step::Kind::kernel && has_cudnn_row(*step.call.op)) calls.push_back(step.call);
  }
  return calls;
}

// The result by the call's definition, in f64.
Dense expected_of(const KernelCall& call, const std::vector<Dense>& inputs) {
  Graph g;
  const Value a = g.input("a", f64, call.inputs[0].type.shape), b = g.input("b", f64, call.inputs[1].type.shape);
  const bool is_wide = call.op->name == "conv2d_grad_weight_wide";
  g.fetch("result", paoding::call(is_wide ? "conv2d_grad_weight" : call.op->name, {a, b}, call.attrs));
  return Program(g).run(to_tensors(g, {{"a", inputs[0]}, {"b", inputs[1]}})).at("result").to_doubles();
}

void upload(const gpu::DeviceMemory& memory, DType dtype, const Dense& values) {
  const Tensor tensor = Tensor::from(dtype, {static_cast<std::int64_t>(values.size())}, values);
  gpu::write_memory(memory.address(), tensor.bytes(), static_cast<std::size_t>(tensor.size_bytes()));
}

// Sums of products of these numbers are exact, but in f32 some engines transform images first, and round.
void expect_sums(const Dense& got, const Dense& expected, DType dtype) {
  ASSERT_EQ(got.size(), expected.size());
  double most = 0;
  for (std::size_t i = 0; i < got.size(); ++i) most = std::max(most, std::abs(got[i] - expected[i]));
  EXPECT_LE(most, dtype == f32 ? 1e-4 : 0);
}

// The engine of that name.
void check_engine(const KernelCall& call, const std::string& name) {
  const gpu::GpuDevice& device = gpu::GpuDevice::get(0);
  device.make_current();
  std::vector<Dense> inputs;
  std::vector<gpu::DeviceMemory> memory;
  std::vector<void*> operands;
  for (std::size_t i = 0; i < 3; ++i) {
    const Layout& layout = i < 2 ? call.inputs[i] : call.outputs[0];
    operands.push_back(memory.emplace_back(device, static_cast<std::size_t>(size_bytes(layout.type))).pointer());
    if (i == 2) break;
    inputs.push_back(small_numbers(layout.type.shape, static_cast<unsigned>(i)));
    upload(memory.back(), layout.type.dtype, moved(inputs.back(), layout, false));
  }
  const Dense expected = expected_of(call, inputs);
  const Layout& result = call.outputs[0];
  const Dense wrong(expected.size(), 99);
  const gpu::DeviceMemory workspace(device, static_cast<std::size_t>(cudnn_workspace_bytes(call)));
  const gpu::Stream stream(device);
  for (const CudnnKernel& engine : cudnn_kernels(call, Device::cuda(0), 20)) {
    if (engine.engine != name) continue;
    SCOPED_TRACE("engine " + name);
    upload(memory[2], result.type.dtype, wrong);
    engine.kernel->run({operands.data(), workspace.pointer(), stream.get()});
    stream.wait_idle();
    Tensor got(result.type.dtype, {result.type.shape.elements()});
    PD_CUDA(gpu::required_driver().cuMemcpyDtoH(got.bytes(), memory[2].address(),
                                                static_cast<std::size_t>(got.size_bytes())));
    return expect_sums(moved(got.to_doubles(), result, true), expected, call.inputs[0].type.dtype);
  }
  ADD_FAILURE() << "there is no engine " << name;
}

bool is_there() { return Device::best().kind == DeviceKind::cuda && gpu::cudnn_functions() != nullptr; }

// Two engines of cuDNN 9.19 gave wrong gradients for weights: timing refuses engines that give other results.
TEST(ConvByCudnn, IsRightByTheEngineThatTimingFindsOnAGpu) {
  if (!is_there()) GTEST_SKIP() << "NOT CHECKED: no GPU here, or no cuDNN";
  const TargetPtr target = target_of(Device::cuda(0));
  // g++ takes a second or two for each kernel of ours that the pretended GPU runs.
#ifdef PAODING_PRETEND_FOLDER
  constexpr std::size_t kCases = 2;
#else
  constexpr std::size_t kCases = 9;
#endif
  ASSERT_GE(engine_cases().size(), kCases);
  std::size_t checked = 0;
  for (const EngineCase& c : std::span(engine_cases()).first(kCases)) {
    for (const auto& [dtype, tf32] : {std::pair{f32, false}, {f32, true}, {bf16, false}, {f16, false}}) {
      Graph g;
      build_engine_case(g, c, dtype);
      CompileOptions options;
      options.allow_tf32 = tf32;
      const std::vector<std::string> notes = time_choices(compile_plan(g, options, target).plan, Device::cuda(0));
      const auto calls = calls_of(c, dtype, tf32, target);
      EXPECT_EQ(calls.size(), dtype == f32 ? 3u : 4u);
      for (const KernelCall& call : calls) {
        SCOPED_TRACE(fmt::format("{} {}{} by {}, groups {}", call.op->name, to_string(dtype), tf32 ? " TF32" : "",
                                 to_string(c.x), to_string(c.w), c.options.groups));
        ASSERT_EQ(cudnn_refusal(call), "");
        const auto timed = gpu::PlanCache::shared().find(timing_key(call));
        ASSERT_TRUE(timed) << fmt::format("{}", fmt::join(notes, "\n"));
        if (timed->engine.empty()) {
          EXPECT_FALSE(c.is_usual) << "no engine is right";
          continue;
        }
        check_engine(call, timed->engine);
        ++checked;
      }
    }
  }
  EXPECT_GE(checked, 3 * kCases);
}

// How many of a case's convolutions a plan for the target has by cuDNN.
int chosen(const EngineCase& c, DType dtype, bool tf32, const Target& target) {
  Graph g;
  build_engine_case(g, c, dtype);
  CompileOptions options;
  options.allow_tf32 = tf32;
  const Plan plan = compile_plan(g, options, std::make_shared<const Target>(target)).plan;
  return static_cast<int>(std::ranges::count_if(
      plan.steps, [](const Step& step) { return step.kind == Step::Kind::kernel && step.kernel->name == kCudnnRow; }));
}

TEST(ConvByCudnn, IsPlannedWhereItWasFaster) {
  const Target& h200 = named_target("h200");
  const EngineCase usual{{64, 96, 14, 14}, {128, 96, 3, 3}, {.padding = {1, 1, 1, 1}}};
  const EngineCase by_patches{{64, 64, 14, 14}, {64, 64, 3, 3}, {.padding = {1, 1, 1, 1}}};
  const EngineCase product{{64, 64, 14, 14}, {128, 64, 1, 1}};
  const EngineCase strided{{64, 64, 28, 28}, {128, 64, 1, 1}, {.stride = {2, 2}}};
  EXPECT_EQ(chosen(usual, bf16, false, h200), 1) << "for images alone";
  EXPECT_EQ(chosen(usual, f16, false, h200), 1);
  EXPECT_EQ(chosen({{64, 96, 28, 28}, {128, 96, 3, 3}, {.stride = {2, 2}, .padding = {1, 1, 1, 1}}}, bf16, false, h200),
            2);
  EXPECT_EQ(chosen({{64, 256, 14, 14}, {256, 256, 3, 3}, {.padding = {1, 1, 1, 1}}}, bf16, false, h200), 0)
      << "ours is as fast";
  EXPECT_EQ(chosen(by_patches, bf16, false, h200), 0);
  EXPECT_EQ(chosen(by_patches, f32, true, h200), 3);
  EXPECT_EQ(chosen(usual, f32, true, h200), 3);
  EXPECT_EQ(chosen(usual, f32, false, h200), 0) << "exact f32";
  EXPECT_EQ(chosen(usual, f64, false, h200), 0);
  EXPECT_EQ(chosen(product, bf16, false, h200), 0) << "cuBLASLt's";
  EXPECT_EQ(chosen(product, f32, true, h200), 3);
  EXPECT_EQ(chosen(strided, bf16, false, h200), 1) << "not for images either";
  EXPECT_EQ(chosen(usual, bf16, false, named_target("a100")), 0) << "not measured there";
  const auto without = [&](auto change) {
    EngineCase c = usual;
    change(c);
    return chosen(c, bf16, false, h200);
  };
  EXPECT_EQ(without([](EngineCase& c) { c.x = {63, 96, 14, 14}; }), 0) << "fewer windows than were measured";
  EXPECT_EQ(without([](EngineCase& c) { c.x = {64, 56, 14, 14}, c.w = {128, 56, 3, 3}; }), 0) << "fewer channels";
  EXPECT_EQ(without([](EngineCase& c) { c.w = {128, 48, 3, 3}, c.options.groups = 2; }), 0);
}

TEST(ConvByCudnn, IsDeclinedWhereTheLibraryIsNotThere) {
  Target target = named_target("h200");
  std::erase_if(target.libraries, [](const TargetLibrary& library) { return library.name == "cudnn"; });
  const EngineCase c{{64, 64, 14, 14}, {128, 64, 3, 3}, {.padding = {1, 1, 1, 1}}};
  EXPECT_EQ(chosen(c, bf16, false, target), 0);
  Graph g;
  build_engine_case(g, c, bf16);
  const auto notes = compile_plan(g, {}, std::make_shared<const Target>(target)).plan.notes;
  EXPECT_EQ(std::ranges::count(notes, "conv2d: cudnn declined: libcudnn.so.9 is not there"), 1);
}

}  // namespace
}  // namespace paoding::testing_program
