// SPDX-License-Identifier: Apache-2.0
// Helpers that tests on the pretended GPU share.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <string_view>

#include "tests/gpu/pretend_gpu/pretend_gpu.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {

/// The GPU's other side. The library has loaded the driver by then, or this loads it.
inline pretend::Gpu& pretend_gpu() {
  static pretend::Gpu* gpu = [] {
    void* library = dlopen(PAODING_PRETEND_FOLDER "/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<pretend::Gpu* (*)()>(dlsym(library, "paoding_pretend_gpu"))();
  }();
  return *gpu;
}

inline CompileOptions on_gpu(Execution execution = Execution::captured) {
  CompileOptions options;
  options.device = Device::cuda(0);
  options.execution = execution;
  return options;
}

inline bool has_note(const Program& program, std::string_view part) {
  return std::ranges::any_of(program.report().plan_notes, [&](const std::string& note) { return has(note, part); });
}

/// Expects that y equals the result of `wide`, the same graph in f64, on the CPU, for numbers of which every sum of
/// products is one of 16 bits.
inline void expect_y_of(Program& program, const Graph& g, const Graph& wide) {
  Feeds feeds = make_feeds(g, 5);
  for (auto& [name, numbers] : feeds) {
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = i % 7 == 0 ? 1 : i % 5 == 0 ? -1 : 0;
  }
  EXPECT_EQ(program.run(to_tensors(g, feeds)).at("y").to_doubles(),
            Program(wide).run(to_tensors(wide, feeds)).at("y").to_doubles());
}

/// A loop of kernels, and one after it that is no group.
inline void build_loop(Graph& g) {
  const Value a = g.input("a", f32, {5, 3}), ids = g.input("ids", i64, {4, 2});
  const StepResult made = scan({full(g, {2, 3}, 0)}, {ids}, [&](const Values& c, const Values& e) {
    return step({tanh(c[0]) + gather(a, e[0], 0)}, {});
  });
  g.fetch("sorted", sort(sum(made.carries[0], Ints{0})).values);
}

inline Tensors feeds_of_loop(const Graph& g) {
  return to_tensors(g, {{"a", Dense(15, 0.5)}, {"ids", {0, 1, 2, 3, 4, 0, 1, 2}}});
}

}  // namespace paoding::testing_program
