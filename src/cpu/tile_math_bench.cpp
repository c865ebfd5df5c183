// SPDX-License-Identifier: Apache-2.0
// Nanoseconds per element of every primitive's SIMD routine on one core, over a tile that stays in L1, for each
// instruction set of this machine. ns/element is 1 / items_per_second.
#include <benchmark/benchmark.h>
#include <hwy/targets.h>

#include <random>
#include <vector>

#include "cpu/tile.h"
#include "scalar/primitive.h"

namespace paoding {
namespace {

constexpr std::int64_t kElements = 1024;

template <class T>
void run(benchmark::State& state, TileRoutine routine, double low, double high) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<T> in(kElements), other(kElements), out(kElements);
  for (T& x : in) x = static_cast<T>(uniform(random));
  for (T& x : other) x = static_cast<T>(uniform(random));
  char* slots[] = {reinterpret_cast<char*>(in.data()), reinterpret_cast<char*>(other.data()),
                   reinterpret_cast<char*>(out.data())};
  Instruction self;
  self.a = 0, self.b = 1, self.c = 1, self.out = 2;
  for (auto _ : state) {
    routine(self, slots, {1, kElements});
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kElements);
}

void random_run(benchmark::State& state, TileRoutine routine) {
  std::vector<std::int64_t> index(kElements), one{7};
  for (std::int64_t i = 0; i < kElements; ++i) index[static_cast<std::size_t>(i)] = i * (state.range(0) + 1);
  std::vector<std::int32_t> out(kElements);
  char* slots[] = {reinterpret_cast<char*>(index.data()), reinterpret_cast<char*>(one.data()),
                   reinterpret_cast<char*>(out.data())};
  Instruction self;
  self.a = 0, self.b = 1, self.c = 1, self.out = 2;
  for (auto _ : state) {
    routine(self, slots, {1, kElements});
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kElements);
}

void register_all(const char* target) {
  for (int i = 0; i < kPrimCount; ++i) {
    const Prim prim = static_cast<Prim>(i);
    const Primitive& row = primitive(prim);
    if (row.rule != PrimRule::real && row.rule != PrimRule::number) continue;
    const bool positive = row.name.starts_with("log") || row.name.ends_with("sqrt") || row.name == "pow";
    for (const DType dtype : {f32, f64}) {
      const TileRoutine routine = find_routine(prim, dtype, 0);
      if (routine == nullptr) continue;
      const std::string name = std::string(row.name) + "/" + std::string(to_string(dtype)) + "/" + target;
      const auto measure = dtype == f32 ? run<float> : run<double>;
      benchmark::RegisterBenchmark(name.c_str(), measure, routine, positive ? 0.01 : -8, 8);
    }
  }
  const std::string name = std::string("random_bits/") + target;
  benchmark::RegisterBenchmark(name.c_str(), random_run, find_routine(Prim::random_bits, i64, 6))->Arg(0)->Arg(1);
}

}  // namespace
}  // namespace paoding

int main(int argc, char** argv) {
  for (const std::int64_t target : {HWY_AVX3, HWY_AVX2}) {
    if ((hwy::SupportedTargets() & target) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    paoding::register_all(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(0);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
