// SPDX-License-Identifier: Apache-2.0
// Attention for Hopper in the emulation, forward and backward, against the float64 composition.
#include "gpu/driver/nvrtc.h"
#include "ops/attention/gpu/attention_cases.h"
#include "tests/gpu/emulated_cases.h"

namespace paoding::testing_program {
namespace {

void check(const std::vector<AttentionCase>& all, bool is_trained) {
  EmulatedCases cases;
  for (const AttentionCase& c : all) {
    auto graph = graph_of(c, is_trained);
    const Feeds feeds = feeds_of(c, *graph);
    auto program = std::make_unique<EmulatedProgram>(*graph);
    EXPECT_TRUE(program->has_text_kernel()) << to_string(c);
    cases.add(to_string(c), std::move(graph), feeds, std::move(program));
  }
  cases.check();
}

const std::vector<AttentionCase> kCases{
    {.batch = 2, .heads = 2, .key_heads = 2, .queries = 200, .keys = 200, .right = 0},
    {.batch = 2, .heads = 3, .key_heads = 1, .queries = 70, .keys = 300, .width = 72, .value_width = 40, .dtype = f16},
    {.batch = 3, .queries = 130, .keys = 260, .right = 0, .bottom_right = true, .has_lengths = true},
    {.queries = 300, .keys = 150, .right = 0, .bottom_right = true},
    {.queries = 150, .keys = 300, .width = 128, .value_width = 128, .right = 0},
    {.queries = 320, .keys = 320, .left = 70, .right = 20},
    {.batch = 3, .heads = 2, .key_heads = 2, .queries = 50, .keys = 50, .right = 0, .has_lengths = true},
    {.batch = 2, .heads = 2, .queries = 70, .keys = 33, .width = 128, .value_width = 72, .dtype = f16},
    {.queries = 100, .keys = 128, .width = 96, .value_width = 96, .left = 20, .right = 10},
    {.batch = 2, .heads = 2, .key_heads = 2, .queries = 140, .keys = 140, .right = 0, .is_transposed = true},
    {.batch = 2, .heads = 2, .key_heads = 2, .queries = 200, .keys = 200, .right = 0, .dropout = 0.25},
    {.heads = 2, .key_heads = 1, .queries = 130, .keys = 261, .has_lengths = true, .dropout = 0.1},
    {.batch = 2,
     .heads = 2,
     .key_heads = 2,
     .queries = 50,
     .keys = 50,
     .right = 0,
     .has_lengths = true,
     .dropout = 0.1},
    {.queries = 90, .keys = 127, .width = 96, .value_width = 72, .dtype = f16, .dropout = 0.5},
};

TEST(AttentionText, ForwardIsRight) { check(kCases, false); }
TEST(AttentionText, GradientsAreRight) { check(kCases, true); }

// Groups of a CTA clear the rows that all of them read, each before its own products.
TEST(AttentionText, DoesNotSeeNaNsBehindTheLengths) {
  std::vector<std::unique_ptr<EmulatedProgram>> programs;
  std::vector<AttentionCase> cases;
  std::vector<const gpu::TextLaunch*> kernels;
  for (const std::int64_t rows : {50, 320}) {
    cases.push_back(
        {.batch = 3, .heads = 2, .key_heads = 2, .queries = rows, .keys = rows, .right = 0, .has_lengths = true});
    programs.push_back(std::make_unique<EmulatedProgram>(*graph_of(cases.back(), true)));
    for (const gpu::TextLaunch* kernel : programs.back()->kernels()) kernels.push_back(kernel);
  }
  const gpu::EmulatedKernels compiled(kernels);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto graph = graph_of(cases[i], true);
    Feeds feeds = feeds_of(cases[i], *graph);
    const Tensors expected = programs[i]->run(compiled, to_tensors(*graph, feeds), 1);
    put_nans_behind_lengths(cases[i], &feeds);
    for (unsigned seed = 1; seed < 5; ++seed) {
      SCOPED_TRACE(to_string(cases[i]) + ", seed " + std::to_string(seed));
      expect_same_bits(expected, programs[i]->run(compiled, to_tensors(*graph, feeds), seed));
    }
  }
}

}  // namespace
}  // namespace paoding::testing_program
