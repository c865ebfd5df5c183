// SPDX-License-Identifier: Apache-2.0
// Every kernel text that the op sweep, an LSTM with its gradients and lerp_grad would have on an H200 compiles. Needs
// NVRTC, but no GPU. Equal texts are compiled once, on four threads.
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "gpu/nvrtc.h"
#include "tests/kernel_texts.h"
#include "tests/op_case.h"

namespace paoding::testing_program {
namespace {

constexpr const char* kArch = "sm_90a";

using Texts = std::map<std::string, std::string>;  // text, where it is from

void add_texts(Texts* all, const Graph& graph, const std::string& what, const std::vector<std::string>& disabled = {}) {
  for (const auto& [text, step] : kernel_texts_with_steps(graph, disabled)) all->emplace(text, what + ": " + step);
}

/// Compiles all; a failure says where a text is from and what NVRTC says of it.
void compile_all(const Texts& texts, const char* what) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::pair<std::string, std::string>> list(texts.begin(), texts.end());
  std::atomic<std::size_t> next{0};
  std::atomic<int> failed{0};
  std::mutex mutex;
  const auto work = [&] {
    for (std::size_t i = next++; i < list.size() && failed < 5; i = next++) {
      try {
        gpu::compile(list[i].first, "kernel.cu", kArch);
      } catch (const std::exception& error) {
        ++failed;
        const std::lock_guard lock(mutex);
        ADD_FAILURE() << list[i].second << "\n" << error.what();
      }
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%s: %zu distinct texts compiled in %.1f s\n", what, list.size(), seconds);
}

#define SKIP_WITHOUT_NVRTC() \
  if (gpu::nvrtc() == nullptr) GTEST_SKIP() << "NOT CHECKED, no kernel was compiled: " << gpu::nvrtc_problem()

// Every case in f32, alone and between other ops, with gradients, fused and unfused; in other dtypes the first
// case of each op, fused: their texts differ in types alone.
Texts sweep_texts() {
  Texts texts;
  for (const DType dtype : {f32, f64, bf16, f16, i64}) {
    std::map<const OpDef*, int> taken;
    for (const SweepCase& c : sweep_cases(dtype)) {
      if (!c.shape.error.empty() || (dtype != f32 && ++taken[c.op] > 1)) continue;
      for (const Around around : {Around::nothing, Around::elementwise}) {
        try {
          const CaseGraph made(c, around, true);
          const std::string what = c.op->name + "/" + c.name + "/" + std::string(to_string(dtype));
          add_texts(&texts, made.graph, what);
          if (dtype == f32 && around == Around::elementwise) add_texts(&texts, made.graph, what, {"fuse_groups"});
        } catch (const Error& error) {
          // Floats only, or a product that has no GPU kernel: not a matter of group kernels.
          EXPECT_TRUE(error.kind() == ErrorKind::dtype || error.kind() == ErrorKind::unsupported) << error.what();
        }
      }
    }
  }
  return texts;
}

TEST(GpuKernels, OfEveryOpCaseCompile) {
  SKIP_WITHOUT_NVRTC();
  compile_all(sweep_texts(), "op sweep");
}

TEST(GpuKernels, OfAnLstmCompileAndAreFew) {
  Texts texts;
  Graph forward, training;
  build_lstm(forward, {.steps = 64, .batch = 32, .inputs = 512, .hidden = 512, .has_gradients = false});
  build_lstm(training, {.steps = 64, .batch = 32, .inputs = 512, .hidden = 512});
  add_texts(&texts, forward, "LSTM");
  const std::size_t count_forward = texts.size();
  add_texts(&texts, training, "LSTM with gradients");
  std::printf("LSTM T64 B32 H512: %zu texts forward, %zu with gradients\n", count_forward, texts.size());
  EXPECT_LE(count_forward, 4u);
  EXPECT_LE(texts.size(), 10u);
  Graph odd;
  build_lstm(odd, {.steps = 7, .batch = 3, .inputs = 5, .hidden = 13, .reverse = true});
  add_texts(&texts, odd, "odd LSTM");
  SKIP_WITHOUT_NVRTC();
  compile_all(texts, "LSTM");
}

TEST(GpuKernels, OfLerpGradCompile) {
  SKIP_WITHOUT_NVRTC();
  struct LerpCase {
    DType dtype;
    Shape x, y, w;
  };
  const std::vector<LerpCase> cases = {{f32, {16, 102400}, {16, 102400}, {1}},
                                       {f64, {16, 204800}, {16, 204800}, {1}},
                                       {f32, {16, 1, 1, 1}, {16, 3, 224, 224}, {1}},
                                       {f32, {16, 1, 1, 1}, {16, 3, 244, 244}, {3, 1, 244}},
                                       {f32, {64, 1, 512, 1}, {64, 256, 1, 128}, {256, 512, 128}}};
  Texts texts;
  for (const LerpCase& c : cases) {
    for (const bool both : {true, false}) {
      Graph g;
      const Value x = g.input("x", c.dtype, c.x), y = g.input("y", c.dtype, c.y), w = g.input("w", c.dtype, c.w);
      const Value out = lerp(x, y, w), seed = g.input("seed", c.dtype, out.shape());
      const Values made = gradients(std::array{out}, std::array{x, y}, std::array{seed});
      g.fetch("dx", made[0]);
      if (both) g.fetch("dy", made[1]);
      const auto before = texts.size();
      add_texts(&texts, g, "lerp_grad " + to_string(c.x) + " " + to_string(c.y));
      EXPECT_LE(texts.size() - before, 2u) << "both gradients should be one kernel, or two: " << to_string(c.y);
    }
  }
  compile_all(texts, "lerp_grad");
}

}  // namespace
}  // namespace paoding::testing_program
