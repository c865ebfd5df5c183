// SPDX-License-Identifier: Apache-2.0
// How close groups on the CPU come to memcpy of the bytes they must move, and the cost of a tiny group.
// Run: paoding_bench --benchmark_filter=Group   (OMP_NUM_THREADS sets the threads; each case names its own)
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "cpu/group_kernel.h"
#include "cpu/parallel.h"

namespace paoding {
namespace {

GroupOutput output(Scalar value, std::uint32_t mask, std::vector<std::int64_t> strides, DType dtype = f32) {
  return {dtype, value.id(), mask, mask ? Combine::sum : Combine::none, false, std::move(strides)};
}

Scalar reduced(Group* group, Scalar value, Combine combine, std::uint32_t mask) {
  group->reductions.push_back({value.id(), combine, mask});
  const auto index = static_cast<std::int32_t>(group->reductions.size()) - 1;
  return {&group->expr, group->expr.add({.prim = Prim::reduced, .dtype = value.dtype(), .index = index})};
}

// `sets` of operands in turn: with enough of them none is in a cache when its turn comes.
void run(benchmark::State& state, const Group& group, int threads, int sets = 1) {
  const CpuGroupKernel kernel(group, threads, Sharing::none);
  std::vector<std::vector<float>> memory;
  std::vector<std::vector<void*>> operands(static_cast<std::size_t>(sets));
  auto add = [&](const std::vector<std::int64_t>& strides, std::vector<void*>* to) {
    std::size_t elements = 1;
    for (std::size_t axis = 0; axis < strides.size(); ++axis) {
      elements += static_cast<std::size_t>((group.extents[axis] - 1) * strides[axis]);
    }
    memory.emplace_back(elements, 0.5f);
    to->push_back(memory.back().data());
  };
  for (std::vector<void*>& set : operands) {
    for (const GroupLoad& load : group.loads) add(load.strides, &set);
    for (const GroupOutput& out : group.outputs) add(out.strides, &set);
  }
  std::size_t turn = 0;
  for (auto _ : state) {
    kernel.run(operands[turn].data());
    turn = turn + 1 == operands.size() ? 0 : turn + 1;
  }
  state.SetBytesProcessed(state.iterations() * group.min_bytes());
  state.counters["threads"] = kernel.threads();
}

// memcpy of as many bytes as the named group moves, half of them read and half written, between `sets` pairs in turn.
void copy(benchmark::State& state, std::int64_t bytes_moved, int threads, int sets) {
  const auto bytes = static_cast<std::size_t>(bytes_moved / 2);
  struct Copy {
    std::vector<std::vector<char>> from, to;
    std::size_t turn = 0, bytes;
    int threads;
  } copy{{}, {}, 0, bytes, threads};
  for (int i = 0; i < sets; ++i) copy.from.emplace_back(bytes, 1), copy.to.emplace_back(bytes, 2);
  for (auto _ : state) {
    parallel(
        copy.threads,
        [](int thread, void* p) {
          auto* c = static_cast<Copy*>(p);
          const std::size_t part = c->bytes / static_cast<std::size_t>(c->threads);
          const std::size_t at = part * static_cast<std::size_t>(thread);
          std::memcpy(c->to[c->turn].data() + at, c->from[c->turn].data() + at, part);
        },
        &copy);
    benchmark::ClobberMemory();
    copy.turn = copy.turn + 1 == copy.from.size() ? 0 : copy.turn + 1;
  }
  state.SetBytesProcessed(state.iterations() * bytes_moved);
}
void Memcpy(benchmark::State& state) {
  copy(state, state.range(0), static_cast<int>(state.range(1)), static_cast<int>(state.range(2)));
}
BENCHMARK(Memcpy)
    ->ArgsProduct({{3 * 1638400 * 4, 2 * 1638400 * 4, 6400 * 2048 * 4, 7 * 16384 * 4}, {1, 2}, {1}})
    ->ArgsProduct({{3 * 1638400 * 4, 2 * 1638400 * 4}, {1, 2}, {24}})
    ->ArgsProduct({{2 * 8192 * 1024 * 4, 3 * 8192 * 1024 * 4}, {1, 2}, {4}})
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

// ---- cold: 24 sets of operands in turn -----------------------------------------------

Group lerp() {
  Group group;
  group.extents = {16, 102400};
  group.loads = {{f32, {102400, 1}}, {f32, {102400, 1}}, {f32, {0, 0}}};
  const Scalar x = make_input(&group.expr, 0, f32), y = make_input(&group.expr, 1, f32);
  const Scalar w = make_input(&group.expr, 2, f32);
  group.outputs = {output(x + w * (y - x), 0, {102400, 1})};
  return group;
}
void LerpCold(benchmark::State& state) { run(state, lerp(), static_cast<int>(state.range(0)), 24); }
BENCHMARK(LerpCold)->Arg(1)->Arg(2)->UseRealTime();
void LerpGradientCold(benchmark::State& state) {
  run(state, lerp_gradient(false), static_cast<int>(state.range(0)), 24);
}
BENCHMARK(LerpGradientCold)->Arg(1)->Arg(2)->UseRealTime();

void Bf16Gelu(benchmark::State& state) {
  Group group;
  group.extents = {8192, 1024};
  group.loads = {{bf16, {1024, 1}}, {bf16, {0, 1}}};
  const Scalar x = make_input(&group.expr, 0, f32) + make_input(&group.expr, 1, f32);
  group.outputs = {output(x * sigmoid(1.702 * x), 0, {1024, 1}, bf16)};
  run(state, group, static_cast<int>(state.range(0)), 4);
}
BENCHMARK(Bf16Gelu)->Arg(1)->Arg(2)->UseRealTime();
void Bf16Add(benchmark::State& state) {
  Group group;
  group.extents = {8192 * 1024};
  group.loads = {{bf16, {1}}, {bf16, {1}}};
  group.outputs = {output(make_input(&group.expr, 0, f32) + make_input(&group.expr, 1, f32), 0, {1}, bf16)};
  run(state, group, static_cast<int>(state.range(0)), 4);
}
BENCHMARK(Bf16Add)->Arg(1)->Arg(2)->UseRealTime();

// ---- reductions of their own -----------------------------------------------------------

void LayerNorm(benchmark::State& state) {
  Group group;
  group.extents = {8192, 1024};
  group.loads = {{f32, {1024, 1}}, {f32, {0, 1}}, {f32, {0, 1}}};
  const Scalar x = make_input(&group.expr, 0, f32), gamma = make_input(&group.expr, 1, f32);
  const Scalar beta = make_input(&group.expr, 2, f32);
  const Scalar centered = x - reduced(&group, x, Combine::sum, 2) * (1.0 / 1024);
  const Scalar variance = reduced(&group, centered * centered, Combine::sum, 2) * (1.0 / 1024);
  group.outputs = {output(centered * rsqrt(variance + 1e-5) * gamma + beta, 0, {1024, 1})};
  run(state, group, static_cast<int>(state.range(0)), 4);
}
BENCHMARK(LayerNorm)->Arg(1)->Arg(2)->UseRealTime();

// Computes from x and the gradient of the result; mean and deviation are computed again.
void LayerNormGradient(benchmark::State& state) {
  Group group;
  group.extents = {8192, 1024};
  group.loads = {{f32, {1024, 1}}, {f32, {1024, 1}}, {f32, {0, 1}}};
  const Scalar x = make_input(&group.expr, 0, f32), g = make_input(&group.expr, 1, f32);
  const Scalar gamma = make_input(&group.expr, 2, f32);
  const Scalar centered = x - reduced(&group, x, Combine::sum, 2) * (1.0 / 1024);
  const Scalar variance = reduced(&group, centered * centered, Combine::sum, 2) * (1.0 / 1024);
  const Scalar r = rsqrt(variance + 1e-5), normal = centered * r, h = g * gamma;
  const Scalar sum_h = reduced(&group, h, Combine::sum, 2) * (1.0 / 1024);
  const Scalar sum_hn = reduced(&group, h * normal, Combine::sum, 2) * (1.0 / 1024);
  group.outputs = {output((h - sum_h - normal * sum_hn) * r, 0, {1024, 1}), output(g * normal, 1, {0, 1}),
                   output(g, 1, {0, 1})};
  run(state, group, static_cast<int>(state.range(0)), 4);
}
BENCHMARK(LayerNormGradient)->Arg(1)->Arg(2)->UseRealTime();

Group softmax(std::vector<std::int64_t> extents, int axis) {
  Group group;
  group.extents = extents;
  std::vector<std::int64_t> strides(extents.size(), 1);
  for (std::size_t i = extents.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * extents[i + 1];
  group.loads = {{f32, strides}};
  const Scalar x = make_input(&group.expr, 0, f32);
  const Scalar e = exp(x - reduced(&group, x, Combine::max, 1u << axis));
  group.outputs = {output(e / reduced(&group, e, Combine::sum, 1u << axis), 0, strides)};
  return group;
}
void SoftmaxShort(benchmark::State& state) {
  run(state, softmax({state.range(0), 10}, 1), static_cast<int>(state.range(1)));
}
BENCHMARK(SoftmaxShort)->ArgsProduct({{64, 640, 6400}, {0, 1}})->UseRealTime();
void SoftmaxColumns(benchmark::State& state) {
  run(state, softmax({64, 10, 256}, 1), static_cast<int>(state.range(0)));
}
BENCHMARK(SoftmaxColumns)->Arg(1)->Arg(2)->UseRealTime();
void SoftmaxRows(benchmark::State& state) {
  run(state, softmax({640, state.range(0)}, 1), static_cast<int>(state.range(1)), 4);
}
BENCHMARK(SoftmaxRows)->ArgsProduct({{256, 1024, 7709}, {1, 2}})->UseRealTime();

// Softmax cross entropy of rows of 7709 and its gradient, from one label per row.
void CrossEntropy(benchmark::State& state) {
  Group group;
  group.extents = {640, 7709};
  group.loads = {{f32, {7709, 1}}, {i32, {1, 0}}};
  group.indices = {{i32, 0, {0, 1}}};
  const Scalar x = make_input(&group.expr, 0, f32), label = make_input(&group.expr, 1, i32);
  const Scalar at{&group.expr, group.expr.add({.prim = Prim::index, .dtype = i32, .index = 0})};
  const Scalar shifted = x - reduced(&group, x, Combine::max, 2), e = exp(shifted);
  const Scalar sum = reduced(&group, e, Combine::sum, 2), zero = x.constant(0), is_label = equal(at, label);
  group.outputs = {output(select(is_label, log(sum) - shifted, zero), 2, {1, 0}),
                   output(e / sum - select(is_label, x.constant(1), zero), 0, {7709, 1})};
  run(state, group, static_cast<int>(state.range(0)), 4);
}
BENCHMARK(CrossEntropy)->Arg(1)->Arg(2)->UseRealTime();

void BatchNorm(benchmark::State& state) {
  Group group;
  const std::int64_t size = state.range(0), plane = size * size;
  group.extents = {128, 64, plane};
  group.loads = {{f32, {64 * plane, plane, 1}}, {f32, {0, 1, 0}}, {f32, {0, 1, 0}}};
  const Scalar x = make_input(&group.expr, 0, f32), gamma = make_input(&group.expr, 1, f32);
  const Scalar beta = make_input(&group.expr, 2, f32);
  const double scale = 1.0 / (128.0 * double(plane));
  const Scalar centered = x - reduced(&group, x, Combine::sum, 5) * scale;
  const Scalar variance = reduced(&group, centered * centered, Combine::sum, 5) * scale;
  group.outputs = {output(centered * (rsqrt(variance + 1e-5) * gamma) + beta, 0, {64 * plane, plane, 1})};
  run(state, group, static_cast<int>(state.range(1)), 2);
}
BENCHMARK(BatchNorm)->ArgsProduct({{7, 32}, {1, 2}})->UseRealTime();

}  // namespace
}  // namespace paoding
