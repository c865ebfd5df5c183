// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile_environment.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "paoding/error.h"
#include "paoding/graph.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

TEST(CompileEnvironment, SetsWhatItsWordsName) {
  const CompileOptions given{.disabled_passes = {"fuse_groups", "alias_views"}, .allow_tf32 = true};
  const CompileOptions made =
      with_switches(given, "pass=fuse_groups;no_pass=choose_layouts;tf32=0;tune=1;precision=bf16;execution=stepwise");
  EXPECT_EQ(made.disabled_passes, (std::vector<std::string>{"alias_views", "choose_layouts"}));
  EXPECT_FALSE(made.allow_tf32);
  EXPECT_TRUE(made.tune);
  EXPECT_EQ(made.precision, bf16);
  EXPECT_EQ(made.execution, Execution::stepwise);
  const CompileOptions same = with_switches(given, "");
  EXPECT_EQ(same.disabled_passes, given.disabled_passes);
  EXPECT_EQ(same.precision, f32);
}

TEST(CompileEnvironment, RefusesWordsThatAreNoSwitch) {
  for (const char* words : {"tf32", "tf32=yes", "precision=f64", "faster=1", "pass=a;=b", "execution=quick"}) {
    EXPECT_THROW(with_switches({}, words), Error) << words;
  }
}

std::size_t passes_of(const char* words) {
  setenv("PAODING_COMPILE", words, 1);
  Graph graph;
  const Value x = graph.input("x", f32, {2, 3});
  graph.fetch("y", tanh(x) * x + x);
  const Program program(graph, {});
  unsetenv("PAODING_COMPILE");
  return program.report().passes.size();
}

TEST(CompileEnvironment, ReachesEveryProgramOfTheProcess) {
  EXPECT_LT(passes_of("no_pass=fuse_groups"), passes_of(""));
  EXPECT_EQ(passes_of("no_pass=fuse_groups;pass=fuse_groups"), passes_of(""));
}

}  // namespace
}  // namespace paoding
