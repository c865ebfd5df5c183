// SPDX-License-Identifier: Apache-2.0
// Every kernel source that the op sweep, an LSTM with its gradients and lerp_grad would have on an H200 compiles. Needs
// NVRTC, but no GPU. Equal sources are compiled once, many in one program.
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "gpu/driver/nvrtc.h"
#include "gpu/kernels/choose_text.h"
#include "gpu/kernels/kernel_prelude.h"
#include "gpu/kernels/to_host_text.h"
#include "tests/gpu/kernel_texts.h"
#include "tests/support/case_share.h"
#include "tests/support/gpu_refusals.h"
#include "tests/support/op_case.h"

namespace paoding::testing_program {
namespace {

constexpr const char* kArch = "sm_90a";

using Texts = std::map<std::string, std::string>;  // source, where it is from

void add_texts(Texts* all, const Graph& graph, const std::string& what, const std::vector<std::string>& disabled = {}) {
  for (const auto& [text, step] : kernel_texts_with_steps(graph, disabled)) all->emplace(text, what + ": " + step);
}

/// One program of several kernels: NVRTC reads the prelude, most of every source, once for them all.
std::string one_program(std::span<const std::string> texts) {
  const std::string prelude(gpu::kernel_prelude());
  std::string program = prelude;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::string text = texts[i];
    const std::size_t at = text.find(prelude);
    EXPECT_NE(at, std::string::npos) << text;
    if (at != std::string::npos) text.erase(at, prelude.size());
    program += fmt::format("namespace in_{} {{\n{}\n}}\n", i, text);
  }
  return program;
}

/// Compiles all; a failure says where a source is from and has NVRTC's message.
void compile_all(const Texts& texts, const char* what) {
  constexpr std::size_t kBatch = 24;
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::pair<std::string, std::string>> shared(texts.begin(), texts.end());
  keep_share(&shared, [](const auto& text) { return text.first; });
  std::vector<std::string> list, origins;
  for (const auto& [text, from] : shared) {
    list.push_back(text);
    origins.push_back(from);
  }
  std::atomic<std::size_t> next{0};
  std::atomic<int> failed{0};
  std::mutex mutex;
  const auto fails = [&](const std::string& source, std::string* message) {
    try {
      gpu::compile(source, "kernel.cu", kArch);
      return false;
    } catch (const std::exception& error) {
      *message = error.what();
      return true;
    }
  };
  const auto work = [&] {
    for (std::size_t i = next.fetch_add(kBatch); i < list.size() && failed < 5; i = next.fetch_add(kBatch)) {
      const std::size_t count = std::min(kBatch, list.size() - i);
      std::string together, alone;
      if (!fails(one_program(std::span(list).subspan(i, count)), &together)) continue;
      bool is_found = false;
      for (std::size_t k = i; k < i + count && failed < 5; ++k) {
        if (!fails(list[k], &alone)) continue;
        is_found = true;
        ++failed;
        const std::lock_guard lock(mutex);
        ADD_FAILURE() << origins[k] << "\n" << alone;
      }
      if (is_found || failed >= 5) continue;
      ++failed;
      const std::lock_guard lock(mutex);
      ADD_FAILURE() << "kernels that compile alone do not in one program\n" << together;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(2u, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%s: %zu distinct texts compiled in %.1f s\n", what, list.size(), seconds);
}

#define SKIP_WITHOUT_NVRTC() \
  if (gpu::nvrtc() == nullptr) GTEST_SKIP() << "NOT CHECKED, no kernel was compiled: " << gpu::nvrtc_problem()

struct Sweep {
  Texts texts;
  std::map<std::string, std::set<std::string>> refused;  // op: the cases that have no program for its sake
};

// Every case in f32, alone and between other ops, with gradients, fused and unfused; in other dtypes the first
// case of each op, fused: their sources differ in types alone.
const Sweep& sweep() {
  static const auto* made = [] {
    auto* result = new Sweep;
    for (const DType dtype : {f32, f64, bf16, f16, i64}) {
      std::map<const OpDef*, int> taken;
      for (const SweepCase& c : sweep_cases(dtype)) {
        if (!c.shape.error.empty() || (dtype != f32 && ++taken[c.op] > 1)) continue;
        for (const Around around : {Around::nothing, Around::elementwise}) {
          const std::string what = c.op->name + "/" + c.name + "/" + std::string(to_string(dtype));
          try {
            const CaseGraph made(c, around, true);
            add_texts(&result->texts, made.graph, what);
            if (dtype == f32 && around == Around::elementwise) {
              add_texts(&result->texts, made.graph, what, {"fuse_groups"});
            }
          } catch (const Error& error) {
            if (error.kind() == ErrorKind::dtype) continue;  // the op takes floats only
            result->refused[refused_op(error)].insert(what);
            EXPECT_TRUE(is_known_gpu_refusal(error)) << what << "\n" << error.what();
          }
        }
      }
    }
    return result;
  }();
  return *made;
}

TEST(GpuKernels, AreMissingForListedOps) {
  std::set<std::string> refused;
  for (const auto& [op, cases] : sweep().refused) {
    refused.insert(op);
    std::printf("no GPU kernel for %s, NOT CHECKED:", op.c_str());
    for (const std::string& what : cases) std::printf(" %s", what.c_str());
    std::printf("\n");
  }
  EXPECT_EQ(refused, ops_without_gpu_kernel())
      << "tests/support/gpu_refusals.h is to name just the ops that a GPU refuses";
}

TEST(GpuKernels, OfEveryOpCaseCompile) {
  SKIP_WITHOUT_NVRTC();
  compile_all(sweep().texts, "op sweep");
}

TEST(GpuKernels, ThatDecideWhileAProgramRunsAndThatWriteToTheHostCompile) {
  SKIP_WITHOUT_NVRTC();
  const Target& target = named_target("h200");
  std::vector<gpu::TextLaunch> launches = {gpu::plan_log_value(1 << 20),
                                           gpu::plan_pack(std::array<std::int64_t, 3>{4, 0, 100}, target)};
  for (const DType index : {DType::i32, DType::i64, DType::boolean}) {
    const gpu::WordChoice two[] = {{index, 3}, {DType::i32, 2}};
    launches.push_back(gpu::plan_choose_words(two, target));
    launches.push_back(gpu::plan_choose_body(index, 3, target));
    launches.push_back(gpu::plan_choose_turn(index, 16, target));
  }
  for (const gpu::TextLaunch& launch : launches) {
    for (const char* arch : {"sm_80", "sm_90a", "sm_100a"}) {
      EXPECT_EQ(message_of([&] { gpu::compile(launch.source, launch.entry + ".cu", arch); }), "no error") << arch;
    }
  }
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
