// SPDX-License-Identifier: Apache-2.0
// Recordings of runs on a GPU say the operands of kernels and the size of their launches, also when read from a file.
#include <filesystem>
#include <set>

#include "paoding/profile.h"
#include "profile/recording.h"
#include "profile/trace.h"
#include "tests/gpu/pretend_gpu/pretend_program.h"
#include "tests/support/temporary_folder.h"

namespace paoding::testing_program {
namespace {

const profile::Site* kernel_site(const profile::Trace& trace, std::string_view op) {
  for (profile::SpanId i = 0; i < trace.size(); ++i) {
    if (trace.on_gpu(i) && trace.kind(i) == profile::SpanKind::kernel && trace.text(trace.site(i).op) == op) {
      return &trace.site(i);
    }
  }
  return nullptr;
}

TEST(SitesOnAGpu, SayShapesAndLaunchesAlsoInAFile) {
  Graph g;
  const Value x = g.input("x", f32, {6, 40}), w = g.input("w", f32, {40, 24});
  g.fetch("y", softmax(matmul(x, w), 1));
  g.fetch("s", sort(x).values);
  Program program(g, on_gpu());
  program.run(to_tensors(g, make_feeds(g, 3)));
  Profiler seen;
  for (int i = 0; i < 4; ++i) program.run();
  program.wait();
  seen.end();
  const TemporaryFolder folder;
  const std::string path = (folder / "gpu.paoding").string();
  profile::write_recording(seen.trace(), path);
  const profile::Trace read = profile::read_recording(path);
  for (const profile::Trace* trace : {&seen.trace(), &read}) {
    const profile::Site* product = kernel_site(*trace, "matmul");
    ASSERT_NE(product, nullptr);
    EXPECT_EQ(trace->text(product->shapes), "f32[6,40], f32[40,24] -> f32[6,24]");
    const profile::Site* sorted = kernel_site(*trace, "sort");
    ASSERT_NE(sorted, nullptr);
    EXPECT_EQ(trace->text(sorted->shapes), "f32[6,40] -> f32[6,40], i64[6,40]");
    EXPECT_TRUE(sorted->launch.is_known()) << "sort is a kernel of our own";
    EXPECT_GT(sorted->launch.threads, 0);
    EXPECT_EQ(sorted->launch.registers, 40) << "as the pretended driver says of every kernel";
  }
}

}  // namespace
}  // namespace paoding::testing_program
