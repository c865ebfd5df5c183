// SPDX-License-Identifier: Apache-2.0
// sort and topk on the pretended GPU agree with the CPU, to the last place of equal elements.
#include <fmt/format.h>

#include <limits>

#include "tests/gpu/pretend_gpu/pretend_program.h"

namespace paoding::testing_program {
namespace {

// Many equal, some infinite or NaN.
Dense numbers(std::size_t count, DType dtype, unsigned seed, double step) {
  std::mt19937 rng(seed);
  Dense made(count);
  for (double& number : made) number = (static_cast<double>(rng() % 50) - 25) * step;
  if (!is_float(dtype) || count == 0) return made;
  made[rng() % count] = std::numeric_limits<double>::quiet_NaN();
  made[rng() % count] = -std::numeric_limits<double>::infinity();
  return made;
}

void check(const Shape& shape, int axis, DType dtype, std::int64_t taken, double step = 1) {
  SCOPED_TRACE(fmt::format("{} {} axis {} first {}", to_string(dtype), to_string(shape), axis, taken));
  Graph g;
  const Value a = g.input("a", dtype, shape);
  for (const bool is_last : {false, true}) {
    const Sorted sorted = sort(a, axis, is_last), most = topk(a, taken, axis, is_last);
    const std::string name = is_last ? "falling" : "rising";
    g.fetch("values " + name, sorted.values);
    g.fetch("places " + name, sorted.indices);
    g.fetch("values of some " + name, most.values);
    g.fetch("places of some " + name, most.indices);
  }
  const Tensors feeds{
      {"a", Tensor::from(dtype, shape, numbers(static_cast<std::size_t>(shape.elements()), dtype, 1, step))}};
  Program on_cpu(g), on_a_gpu(g, on_gpu());
  const Tensors expected = on_cpu.run(feeds), got = on_a_gpu.run(feeds);
  for (const auto& [name, tensor] : expected) {
    const Dense want = tensor.to_doubles(), have = got.at(name).to_doubles();
    ASSERT_EQ(have.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_TRUE(have[i] == want[i] || (std::isnan(have[i]) && std::isnan(want[i]))) << name << " at " << i;
    }
  }
}

TEST(SortOnAGpu, PlacesByRankWhatIsNotTooMuchToCompare) {
  check({1}, 0, f32, 1);
  check({3, 67, 2}, 1, f32, 5);
  check({2, 300}, 1, i32, 64);
  check({2500}, 0, i64, 100);
  check({2500}, 0, i64, 100, 0x1p31);
  check({2, 130}, 1, f64, 130);
}

TEST(SortOnAGpu, MergesLongOrManyRows) {
  check({8200}, 0, i64, 33);
  check({300, 480}, 1, f32, 7);
}

}  // namespace
}  // namespace paoding::testing_program
