// SPDX-License-Identifier: Apache-2.0
// The names in reports of the code that ran a program's steps: on the CPU the library or our own code, on a GPU the
// entries of its kernels' sources.
#include <fmt/ranges.h>

#include <set>

#include "paoding/profile.h"
#include "profile/trace.h"
#include "runtime/compile.h"
#include "tests/support/devices_here.h"
#include "tests/support/program_check.h"

#if PAODING_WITH_CUDA
#include "gpu/codegen/text_launch.h"
#endif

namespace paoding::testing_program {
namespace {

void build_ran(Graph& g) {
  const Value x = g.input("x", f32, {64, 96}), w = g.input("w", f32, {96, 80});
  g.fetch("y", sort(exp(matmul(x, w)) + 1.0).values);
}

// "matmul cublaslt", of every op in a trace.
std::set<std::string> ran_as(const profile::Trace& trace) {
  std::set<std::string> all;
  for (profile::SpanId i = 0; i < trace.size(); ++i) {
    const profile::Site& site = trace.site(i);
    if (site.kind != profile::SpanKind::op && site.kind != profile::SpanKind::kernel) continue;
    all.insert(fmt::format("{} {}", trace.text(site.op), trace.text(site.kernel)));
  }
  return all;
}

TEST(RanAs, NamesTheLibraryOrOurOwnCodeOnTheCpu) {
  Graph g;
  build_ran(g);
  Program program(g);
  const Tensors feeds = to_tensors(g, make_feeds(g, 1));
  Profiler seen(State::cpu);
  program.run(feeds);
  const std::string report = seen.stop(SortBy::total, "", {.kernels = true});
  const std::set<std::string> found = ran_as(seen.trace());
  EXPECT_TRUE(found.contains("matmul onednn")) << fmt::format("{}", fmt::join(found, ", "));
  const bool has_group = std::ranges::any_of(
      found, [](const std::string& one) { return one.ends_with(" machine code") || one.ends_with(" routines"); });
  EXPECT_TRUE(has_group) << fmt::format("{}", fmt::join(found, ", "));
  EXPECT_TRUE(has(report, "\n  kernel onednn")) << report;
}

#if PAODING_WITH_CUDA
TEST(RanAs, NamesTheKernelsOfPlansOnAGpu) {
  if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  Graph g;
  build_ran(g);
  const CompileOptions options{.device = Device::best()};
  std::set<std::string> planned;
  const CompiledPlan compiled = compile_plan(g, options, target_of(options.device));
  for (const Step& step : compiled.plan.steps) {
    if (step.text == nullptr) {
      if (step.kernel != nullptr) planned.insert(step.label.op + " " + step.kernel->name);
      continue;
    }
    std::string entries;
    for (const gpu::TextLaunch& launch : step.text->launches) entries += (entries.empty() ? "" : " + ") + launch.entry;
    planned.insert(step.label.op + " " + entries);
  }
  Program program(g, options);
  const Tensors feeds = to_tensors(g, make_feeds(g, 1));
  program.run(feeds);
  Profiler seen(State::gpu);
  program.run();  // the first of a recording has all its stamps
  program.wait();
  seen.end();
  std::set<std::string> found = ran_as(seen.trace());
  std::erase_if(found, [](const std::string& one) { return one.ends_with(' '); });  // gates
  EXPECT_EQ(found, planned);
}
#endif

}  // namespace
}  // namespace paoding::testing_program
