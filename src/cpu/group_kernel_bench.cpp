// SPDX-License-Identifier: Apache-2.0
// How close groups on the CPU come to memcpy of the bytes they must move, and what a tiny group costs.
// Run: paoding_bench --benchmark_filter=Group   (OMP_NUM_THREADS sets the threads; each case names its own)
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "cpu/group_kernel.h"
#include "cpu/parallel.h"

namespace paoding {
namespace {

GroupOutput output(Scalar value, std::uint32_t mask, std::vector<std::int64_t> strides) {
  return {f32, value.id(), mask, mask ? Combine::sum : Combine::none, false, std::move(strides)};
}

void run(benchmark::State& state, const Group& group, int threads) {
  const CpuGroupKernel kernel(group, threads, Sharing::none);
  std::vector<std::vector<float>> memory;
  std::vector<void*> operands;
  auto add = [&](const std::vector<std::int64_t>& strides) {
    std::size_t elements = 1;
    for (std::size_t axis = 0; axis < strides.size(); ++axis) {
      elements += static_cast<std::size_t>((group.extents[axis] - 1) * strides[axis]);
    }
    memory.emplace_back(elements, 0.5f);
    operands.push_back(memory.back().data());
  };
  for (const GroupLoad& load : group.loads) add(load.strides);
  for (const GroupOutput& out : group.outputs) add(out.strides);
  for (auto _ : state) kernel.run(operands.data());
  state.SetBytesProcessed(state.iterations() * group.min_bytes());
}

// memcpy of as many bytes as the named group moves, half of them read and half written.
void Memcpy(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0) / 2);
  struct Copy {
    std::vector<char> from, to;
    int threads;
  } copy{std::vector<char>(bytes, 1), std::vector<char>(bytes, 2), static_cast<int>(state.range(1))};
  for (auto _ : state) {
    parallel(
        copy.threads,
        [](int thread, void* p) {
          auto* c = static_cast<Copy*>(p);
          const std::size_t part = c->from.size() / static_cast<std::size_t>(c->threads);
          const std::size_t at = part * static_cast<std::size_t>(thread);
          std::memcpy(c->to.data() + at, c->from.data() + at, part);
        },
        &copy);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(Memcpy)
    ->ArgsProduct({{3 * 1638400 * 4, 2 * 1638400 * 4, 6400 * 2048 * 4, 7 * 16384 * 4}, {1, 2}})
    ->UseRealTime();

Group lerp_gradient(bool sum_dx) {
  Group group;
  group.extents = {16, 102400};
  group.loads = {{f32, {102400, 1}}, {f32, {0, 0}}};
  const Scalar g = make_input(&group.expr, 0, f32), w = make_input(&group.expr, 1, f32);
  group.outputs = {sum_dx ? output((1.0 - w) * g, 3, {0, 0}) : output((1.0 - w) * g, 0, {102400, 1}),
                   output(w * g, 0, {102400, 1})};
  return group;
}
void LerpGradient(benchmark::State& state) { run(state, lerp_gradient(false), static_cast<int>(state.range(0))); }
BENCHMARK(LerpGradient)->Arg(1)->Arg(2)->UseRealTime();
void LerpGradientSummed(benchmark::State& state) { run(state, lerp_gradient(true), static_cast<int>(state.range(0))); }
BENCHMARK(LerpGradientSummed)->Arg(1)->Arg(2)->UseRealTime();

Group matrix_sum(std::uint32_t mask, std::vector<std::int64_t> strides) {
  Group group;
  group.extents = {6400, 2048};
  group.loads = {{f32, {2048, 1}}};
  group.outputs = {output(make_input(&group.expr, 0, f32), mask, std::move(strides))};
  return group;
}
void ColumnSum(benchmark::State& state) { run(state, matrix_sum(1, {0, 1}), static_cast<int>(state.range(0))); }
BENCHMARK(ColumnSum)->Arg(1)->Arg(2)->UseRealTime();
void RowSum(benchmark::State& state) { run(state, matrix_sum(2, {1, 0}), static_cast<int>(state.range(0))); }
BENCHMARK(RowSum)->Arg(1)->Arg(2)->UseRealTime();

void LstmGates(benchmark::State& state) {
  Group group;
  group.extents = {32, 512};
  for (int gate = 0; gate < 4; ++gate) group.loads.push_back({f32, {2048, 1}});
  group.loads.push_back({f32, {512, 1}});
  Scalar x[5];
  for (int i = 0; i < 5; ++i) x[i] = make_input(&group.expr, i, f32);
  const Scalar c = sigmoid(x[1]) * x[4] + sigmoid(x[0]) * tanh(x[2]);
  group.outputs = {output(c, 0, {512, 1}), output(sigmoid(x[3]) * tanh(c), 0, {512, 1})};
  run(state, group, static_cast<int>(state.range(0)));
}
BENCHMARK(LstmGates)->Arg(1)->Arg(2)->UseRealTime();

void Add(benchmark::State& state) {
  Group group;
  group.extents = {state.range(0)};
  group.loads = {{f32, {1}}, {f32, {1}}};
  const Scalar a = make_input(&group.expr, 0, f32), b = make_input(&group.expr, 1, f32);
  group.outputs = {output(a + b, 0, {1})};
  run(state, group, 0);
}
BENCHMARK(Add)->Arg(1)->Arg(4)->Arg(16)->Arg(300)->Arg(1024)->UseRealTime();

void AddTransposed(benchmark::State& state) {
  Group group;
  group.extents = {2048, 1000};
  group.loads = {{f32, {1000, 1}}, {f32, {1, 2048}}};
  const Scalar a = make_input(&group.expr, 0, f32), b = make_input(&group.expr, 1, f32);
  group.outputs = {output(a + b, 0, {1000, 1})};
  run(state, group, 1);
}
BENCHMARK(AddTransposed)->UseRealTime();

void AddBiasShortRows(benchmark::State& state) {
  Group group;
  group.extents = {20000, 40};
  group.loads = {{f32, {40, 1}}, {f32, {0, 1}}};
  const Scalar a = make_input(&group.expr, 0, f32), b = make_input(&group.expr, 1, f32);
  group.outputs = {output(a + b, 0, {40, 1})};
  run(state, group, 1);
}
BENCHMARK(AddBiasShortRows)->UseRealTime();

}  // namespace
}  // namespace paoding
