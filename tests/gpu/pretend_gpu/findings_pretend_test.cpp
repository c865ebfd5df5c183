// SPDX-License-Identifier: Apache-2.0
// Findings of programs that run on the pretended GPU and are recorded there, through a file: rules about kernels know
// them by the shapes and launches that the runtime gives their sites.
#include <algorithm>
#include <filesystem>

#include "findings/finding.h"
#include "paoding/profile.h"
#include "profile/recording.h"
#include "tests/gpu/pretend_gpu/pretend_program.h"
#include "tests/support/temporary_folder.h"

namespace paoding::testing_program {
namespace {

using findings::Kind;

findings::Findings findings_of(const Graph& g, const CompileOptions& options) {
  Program program(g, options);
  program.run(to_tensors(g, make_feeds(g, 3)));
  program.wait();
  Profiler seen;
  for (int i = 0; i < 16; ++i) {
    program.run();
    program.wait();
  }
  seen.end();
  const TemporaryFolder folder;
  const std::string path = (folder / "gpu.paoding").string();
  profile::write_recording(seen.trace(), path);
  // The pretended GPU is as fast as its host, which may have other work: neither a prediction nor the time of recording
  // is held against it.
  return findings::find(profile::read_recording(path), {.most_replay_error = 1, .most_recording = 1});
}

const findings::Finding* finding_of(const findings::Findings& all, Kind kind) {
  const auto found = std::ranges::find(all.found, kind, &findings::Finding::kind);
  return found == all.found.end() ? nullptr : &*found;
}

TEST(FindingsOnAGpu, KnowProductsWhoseRowsAreNotAligned) {
  Graph g;
  const Value x = g.input("x", bf16, {64, 63}), w = g.input("w", bf16, {63, 61});
  g.fetch("y", sum(matmul(x, w)));
  CompileOptions options = on_gpu();
  options.disabled_passes = {"align_products"};
  const findings::Findings all = findings_of(g, options);
  ASSERT_EQ(all.abstained, "");
  const findings::Finding* const odd = finding_of(all, Kind::odd_dimensions);
  ASSERT_NE(odd, nullptr);
  EXPECT_TRUE(has(odd->text, "[64 x 63] by [63 x 61]")) << odd->text;
  EXPECT_EQ(odd->verify, "pass align_products");
}

TEST(FindingsOnAGpu, KnowViewsThatAreCopied) {
  Graph g;
  const Value x = g.input("x", f32, {128, 512}), w = g.input("w", f32, {256, 16});
  g.fetch("y", sum(matmul(slice(x, Ints{0, 256}, Ints{128, 512}), w)));
  CompileOptions options = on_gpu();
  options.disabled_passes = {"alias_views"};
  const findings::Findings all = findings_of(g, options);
  ASSERT_EQ(all.abstained, "");
  const findings::Finding* const copied = finding_of(all, Kind::layout_kernels);
  ASSERT_NE(copied, nullptr);
  EXPECT_EQ(copied->op, "slice");
  EXPECT_EQ(copied->verify, "pass alias_views");
  EXPECT_EQ(finding_of(findings_of(g, on_gpu()), Kind::layout_kernels), nullptr) << "with the pass there is none";
}

}  // namespace
}  // namespace paoding::testing_program
