// SPDX-License-Identifier: Apache-2.0
// The gradient of a ReLU and its sums of channels in one kernel, on a GPU and against sums of float64: run after run
// the same bits, as values that CTAs leave for the ones that add up have to be gone by the next.
#include "tests/gpu/kernel_texts.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

TEST(SumBeside, IsOfWhatItsKernelWritesOnAGpu) {
  if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  for (const DType dtype : {f32, bf16}) {
    for (const std::int64_t channels : {16, 21, 512}) {
      SCOPED_TRACE(fmt::format("{} channels {}", channels, to_string(dtype)));
      const std::int64_t images = 16 * 1000 / channels, pixels = 28 * 28;
      Graph g;
      const Value y = g.input("y", dtype, {images, channels, 28, 28}), dy = g.input("dy", dtype, y.shape());
      const Value dx = where(greater(y, 0), dy, 0);
      g.fetch("dx", dx), g.fetch("sums", sum(cast(dx, f32), Ints{0, 2, 3}));
      EXPECT_EQ(plan_for_gpu(g).steps.size(), 1u);

      CompileOptions options;
      options.device = Device::best();
      Program program(g, options);
      const Tensors feeds = to_tensors(g, make_feeds(g, 5));
      const Tensors first = program.run(feeds);
      const Dense written = first.at("dx").to_doubles();
      Dense sums(static_cast<std::size_t>(channels));
      for (std::size_t i = 0; i < written.size(); ++i)
        sums[i / static_cast<std::size_t>(pixels) % sums.size()] += written[i];
      expect_close("sums", first.at("sums").to_doubles(), sums, 1e-5);
      for (int run = 0; run < 20; ++run) expect_same_bits(first, program.run(feeds));
    }
  }
}

}  // namespace
}  // namespace paoding::testing_program
