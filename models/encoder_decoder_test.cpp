// SPDX-License-Identifier: Apache-2.0
// The transformer that translates: padding and batches change no loss, and searching step by step agrees with the
// losses of whole targets.
#include "models/encoder_decoder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/program_check.h"

namespace paoding::models {
namespace {

using testing_program::Dense;

constexpr std::int64_t kFirst = 1, kLast = 2, kTargetSteps = 5;
const EncoderDecoderOptions kPairs{.source_vocabulary = 9,
                                   .target_vocabulary = 8,
                                   .hidden = 12,
                                   .heads = 3,
                                   .layers = 2,
                                   .source_positions = 6,
                                   .target_positions = 7,
                                   .dtype = f64};

// Parameters that tell words apart.
Parameters loud_parameters(const Graph& graph) {
  Parameters parameters(graph, Device::cpu(), {.seed = 8});
  for (const std::string& name : parameters.names()) {
    const Tensor quiet = parameters.get(name);
    Dense values = quiet.to_doubles();
    for (double& value : values) value *= name.ends_with("norm/gamma") ? 1 : 4;
    parameters.set(name, Tensor::from(quiet.dtype(), quiet.shape(), values));
  }
  return parameters;
}

Tensor columns(const std::vector<std::vector<std::int64_t>>& texts, std::int64_t steps, double rest) {
  const auto rows = std::ssize(texts);
  Dense values(static_cast<std::size_t>(steps * rows), rest);
  for (std::size_t b = 0; b < texts.size(); ++b) {
    for (std::size_t t = 0; t < texts[b].size(); ++t) {
      values[t * texts.size() + b] = static_cast<double>(texts[b][t]);
    }
  }
  return Tensor::from(i64, {steps, rows}, values);
}

const std::vector<std::vector<std::int64_t>> kSources{{3, 4, 5, 6}, {7}, {8, 3}};

// Losses [B, T] of targets, whose beginnings are `kFirst`; sources and targets padded to these steps.
Dense target_losses(const std::vector<std::vector<std::int64_t>>& sources,
                    const std::vector<std::vector<std::int64_t>>& targets, std::int64_t S, std::int64_t T) {
  Graph g;
  const auto B = std::ssize(sources);
  const Value source = g.input("source", i64, {S, B}), lengths = g.input("lengths", i64, {B});
  const Value written = g.input("written", i64, {T, B}), labels = g.input("labels", i64, {T, B});
  g.fetch("losses", EncoderDecoder(g, kPairs).loss(source, lengths, written, labels, LossReduction::none));
  const Parameters parameters = loud_parameters(g);
  std::vector<std::vector<std::int64_t>> begun;
  Dense ends;
  for (std::size_t b = 0; b < sources.size(); ++b) {
    begun.push_back({kFirst});
    begun.back().insert(begun.back().end(), targets[b].begin(), targets[b].end());
    begun.back().resize(targets[b].size());
    ends.push_back(static_cast<double>(sources[b].size()));
  }
  return Program(g, {}, &parameters)
      .run({{"source", columns(sources, S, 5)},
            {"lengths", Tensor::from(i64, {B}, ends)},
            {"written", columns(begun, T, 6)},
            {"labels", columns(targets, T, -1)}})
      .at("losses")
      .to_doubles();
}

TEST(EncoderDecoder, LosesTheSameWhateverStandsBesideAndBehind) {
  const std::vector<std::vector<std::int64_t>> targets{{4, 5, 2}, {6, 2}, {3, 3, 7, 2}};
  const Dense together = target_losses(kSources, targets, 6, 7);
  for (std::size_t b = 0; b < kSources.size(); ++b) {
    const auto steps = std::ssize(targets[b]);
    const Dense alone = target_losses({kSources[b]}, {targets[b]}, std::ssize(kSources[b]), steps);
    for (std::size_t t = 0; t < targets[b].size(); ++t) EXPECT_NEAR(together[b * 7 + t], alone[t], 1e-12) << b;
    for (std::size_t t = targets[b].size(); t < 7; ++t) EXPECT_EQ(together[b * 7 + t], 0) << "no label";
  }
}

TEST(EncoderDecoder, FindsTargetsThatLoseWhatTheirTotalsSay) {
  for (const std::int64_t beam : {1, 3}) {
    Graph g;
    const Value source = g.input("source", i64, {5, 3}), lengths = g.input("lengths", i64, {3});
    fetch(g, EncoderDecoder(g, kPairs).search(source, lengths,
                                              {.beam = beam, .steps = kTargetSteps, .start = kFirst, .end = kLast}));
    const Parameters parameters = loud_parameters(g);
    Program program(g, {}, &parameters);
    program.run({{"source", columns(kSources, 5, 0)}, {"lengths", Tensor::from(i64, {3}, Dense{4, 1, 2})}});
    const auto found = hypotheses(program, kLast);
    for (std::size_t b = 0; b < kSources.size(); ++b) {
      ASSERT_EQ(std::ssize(found[b]), beam);
      for (const Hypothesis& hypothesis : found[b]) {
        std::vector<std::int64_t> target = hypothesis.words;
        if (hypothesis.is_finished) target.push_back(kLast);
        double loss = 0;
        for (const double each : target_losses({kSources[b]}, {target}, 4, std::ssize(target))) loss += each;
        EXPECT_NEAR(hypothesis.log_probability, -loss, 1e-5) << b;
      }
    }
    if (beam > 1) continue;
    // Greedy: no other word is more likely at any step.
    for (std::size_t b = 0; b < kSources.size(); ++b) {
      std::vector<std::int64_t> target = found[b][0].words;
      if (found[b][0].is_finished) target.push_back(kLast);
      for (std::size_t t = 0; t < target.size(); ++t) {
        std::vector<std::int64_t> begun(target.begin(), target.begin() + static_cast<std::ptrdiff_t>(t) + 1);
        const double chosen = target_losses({kSources[b]}, {begun}, 4, std::ssize(begun))[t];
        for (std::int64_t word = 0; word < kPairs.target_vocabulary; ++word) {
          begun[t] = word;
          EXPECT_GE(target_losses({kSources[b]}, {begun}, 4, std::ssize(begun))[t], chosen - 1e-9);
        }
      }
    }
  }
}

}  // namespace
}  // namespace paoding::models
