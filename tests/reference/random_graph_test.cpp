// SPDX-License-Identifier: Apache-2.0
// Random graphs of f32, f64, bf16 and f16 agree with the float64 evaluator: with all passes, with none, and with each
// one left out, on every device there is. PAODING_RANDOM_GRAPHS=100000 tries that many instead of 200,
// PAODING_RANDOM_SEED is the first one. A failure prints the seed and the graph's text.
#include "tests/support/random_graph.h"

#include <cstdlib>

#include "tests/support/error_model.h"
#include "tests/support/gpu_refusals.h"

namespace paoding::testing_program {
namespace {

unsigned from_environment(const char* name, unsigned otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}

constexpr DType kNarrow[] = {f32, f32, bf16, f16};  // by seed

// Fed, and expected, once for all programs of one graph.
struct Example {
  Graph graph;
  Feeds feeds;
  std::map<std::string, Expected> expected;
  std::string refusal;  // why it has no program for the GPU
  std::size_t elements = 0, vague = 0;

  explicit Example(unsigned seed) {
    RandomGraph(graph, seed, nullptr, kNarrow[seed % std::size(kNarrow)]);
    feeds = make_feeds(graph, seed);
    expected = expected_within(graph, feeds);
    for (const auto& [name, each] : expected) elements += each.values.size(), vague += each.vague();
  }

  std::string check(const CompileOptions& options) {
    try {
      Program program(graph, options);
      const Tensors got = program.run(to_tensors(graph, feeds));
      for (const auto& [name, each] : expected) {
        const std::string problem = each.problem_with(got.at(name).to_doubles());
        if (!problem.empty()) return name + ": " + problem;
      }
      expect_same_bits(got, program.run(to_tensors(graph, feeds)));
    } catch (const Error& error) {
      if (options.device.kind != DeviceKind::cpu && is_known_gpu_refusal(error)) {
        refusal = error.what();
        return "";
      }
      return std::string("threw: ") + error.what();
    } catch (const std::exception& error) {
      return std::string("threw: ") + error.what();
    }
    return "";
  }
};

std::vector<std::pair<std::string, CompileOptions>> ways(const Device& device) {
  std::vector<std::pair<std::string, CompileOptions>> list;
  CompileOptions options;
  options.device = device;
  list.emplace_back("all passes", options);
  options.disabled_passes = pass_names();
  list.emplace_back("no passes", options);
  for (const std::string& pass : pass_names()) {
    options.disabled_passes = {pass};
    list.emplace_back("without " + pass, options);
  }
  return list;
}

// Shares of the graphs. Each is a suite of its own, so that ctest tries them, and compiles for them, side by side.
constexpr unsigned kParts = 8;

void check_graphs(const Device& device, unsigned part) {
  const unsigned count = from_environment("PAODING_RANDOM_GRAPHS", 200),
                 start = from_environment("PAODING_RANDOM_SEED", 0);
  int failed = 0;
  unsigned tried = 0, refused = 0;
  std::size_t elements = 0, vague = 0;
  for (unsigned seed = start + part; seed < start + count && failed < 5; seed += kParts) {
    std::string problems, text;
    try {
      Example example(seed);
      text = to_text(example.graph);
      for (const auto& [name, options] : ways(device)) {
        const std::string problem = example.check(options);
        if (!problem.empty()) problems += name + ": " + problem + "\n";
      }
      ++tried;
      elements += example.elements;
      vague += example.vague;
      if (!example.refusal.empty()) {
        ++refused;
        std::printf("seed %u NOT CHECKED on %s: %s\n", seed, to_string(device).c_str(), example.refusal.c_str());
      }
    } catch (const std::exception& error) {
      problems = std::string("building the graph threw: ") + error.what() + "\n";
    }
    if (problems.empty()) continue;
    ++failed;
    ADD_FAILURE() << "seed " << seed << " on " << to_string(device) << "\n" << problems << text;
  }
  EXPECT_LE(vague * 20, elements) << vague << " of " << elements << " elements may be anything: nothing was compared";
  if (failed == 0 && tried > 0 && refused == tried) {
    GTEST_SKIP() << "NOT CHECKED: no graph has a program for " << to_string(device);
  }
}

class RandomPrograms : public testing::TestWithParam<unsigned> {};

TEST_P(RandomPrograms, GiveWhatTheEvaluatorSays) { check_graphs(Device::cpu(), GetParam()); }

class RandomProgramsOnAGpu : public testing::TestWithParam<unsigned> {};

TEST_P(RandomProgramsOnAGpu, GiveWhatTheEvaluatorSays) {
  if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  check_graphs(Device::best(), GetParam());
}

#define PART(number)                                                                  \
  INSTANTIATE_TEST_SUITE_P(Part##number, RandomPrograms, testing::Values(number##u)); \
  INSTANTIATE_TEST_SUITE_P(Part##number, RandomProgramsOnAGpu, testing::Values(number##u))
PART(0);
PART(1);
PART(2);
PART(3);
PART(4);
PART(5);
PART(6);
PART(7);
#undef PART

TEST(RandomGraphTexts, ReadBackToTheSameGraph) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    Example example(seed);
    const std::string text = to_text(example.graph);
    const auto parsed = parse_graph(text);
    EXPECT_EQ(to_text(*parsed), text) << "seed " << seed;
    const auto values = evaluate_graph(*parsed, example.feeds);
    for (const auto& [name, expected] : example.expected) expect_close(name, values.at(name), expected.values, 1e-14);
  }
}

}  // namespace
}  // namespace paoding::testing_program
