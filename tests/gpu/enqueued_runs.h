// SPDX-License-Identifier: Apache-2.0
// Helpers that tests of enqueued runs share. They are compiled twice: for a GPU that is there, and for the pretended
// one, which is told in which order to run things, and asked whether the host has waited.
#pragma once

#include <set>

#include "tests/support/program_check.h"

#ifdef PAODING_PRETEND_FOLDER
#include "tests/gpu/pretend_gpu/pretend_program.h"
#endif

namespace paoding::testing_program {

#ifdef PAODING_PRETEND_FOLDER

inline constexpr std::int64_t kLongRun = 17'000;
inline Device gpu_here() { return Device::cuda(0); }
inline void schedule(unsigned seed, unsigned haste) { pretend_gpu().schedule(seed, haste); }
inline void forget_calls() { pretend_gpu().forget_calls(); }

inline bool is_wait(const std::string& call) {
  static const std::set<std::string> waits{"cuStreamSynchronize", "cuCtxSynchronize", "cuMemcpyDtoH", "cuMemcpyHtoD"};
  return waits.contains(call);
}
inline std::size_t waits() {
  const std::vector<std::string> calls = pretend_gpu().calls();
  return static_cast<std::size_t>(std::count_if(calls.begin(), calls.end(), is_wait));
}

#else

inline constexpr std::int64_t kLongRun = 100'000;
inline Device gpu_here() { return Device::best(); }
inline void schedule(unsigned, unsigned) {}
inline void forget_calls() {}
inline std::size_t waits() { return 0; }
inline CompileOptions on_gpu() {
  CompileOptions options;
  options.device = Device::best();
  return options;
}

#endif

#define PD_SKIP_WITHOUT_A_GPU() \
  if (gpu_here().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here"

// w [n] is written.
inline void build_training(Graph& g, std::int64_t n) {
  const Value w = g.parameter("w", f32, {n}), x = g.input("x", f32, {n});
  assign(w, w * 0.5 + x);
  g.fetch("sum", sum(w * x));
  g.fetch("w", w * 1.0);
}
inline void build_evaluation(Graph& g, std::int64_t n) {
  const Value w = g.parameter("w", f32, {n});
  g.fetch("most", max(w, Ints{0}));
}

inline Tensor input(std::int64_t n, int step) {
  Dense values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(static_cast<double>((i * 7 + step * 13) % 32) / 8.0);
  return Tensor::from(f32, {n}, values);
}

}  // namespace paoding::testing_program
