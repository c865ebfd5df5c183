// SPDX-License-Identifier: Apache-2.0
// A batch of products whose matrices are read from the last to the first, which cuBLASLt has no word for.
#include "tests/gpu/enqueued_runs.h"

namespace paoding::testing_program {
namespace {

TEST(BackwardBatch, OfProductsOnAGpuGivesWhatTheCpuGives) {
  PD_SKIP_WITHOUT_A_GPU();
  Graph g;
  const Value a = g.input("a", f32, {3 * 2 * 4 * 5}), b = g.input("b", f32, {3 * 2 * 5 * 4});
  const Value x = reshape(a, {3, 2, 4, 5}), y = reshape(b, {3, 2, 5, 4});
  const auto flipped = [](const Value& value, int axis) { return flip(value, Ints{axis}); };
  g.fetch("second", matmul(x, flipped(y, 1)));
  g.fetch("first", matmul(flipped(x, 0), y));
  g.fetch("both", matmul(flipped(flipped(x, 0), 1), flipped(y, 1)));
  const Tensors feeds{{"a", input(3 * 2 * 4 * 5, 1)}, {"b", input(3 * 2 * 5 * 4, 2)}};
  Program on_gpu_program(g, on_gpu()), on_cpu(g, CompileOptions{});
  const Tensors got = on_gpu_program.run(feeds);
  for (const auto& [name, want] : on_cpu.run(feeds)) EXPECT_EQ(got.at(name).to_doubles(), want.to_doubles()) << name;
}

}  // namespace
}  // namespace paoding::testing_program
