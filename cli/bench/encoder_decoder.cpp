// SPDX-License-Identifier: Apache-2.0
// Section T: a training step of the transformer that translates, of the sizes that its paper has as its base.
#include "models/encoder_decoder.h"

#include <cmath>

#include "cli/bench/case.h"
#include "cli/bench/training_feed.h"
#include "io/json_text.h"
#include "paoding/optimizer.h"

namespace paoding::cli::bench {
namespace {

struct PairSize {
  models::EncoderDecoderOptions model;
  std::int64_t batch = 128, steps = 50;
};

PairSize smaller_pairs(PairSize s) {
  s.model.source_vocabulary = 300, s.model.target_vocabulary = 200;
  s.model.hidden = 128, s.model.heads = 2, s.model.layers = 2, s.model.dropout = 0;
  s.batch = 4, s.steps = 10;
  return s;
}

void build_pairs(Graph& graph, const PairSize& s, DType dtype) {
  models::EncoderDecoderOptions options = s.model;
  options.dtype = dtype;
  const models::EncoderDecoder model(graph, options);
  const Value source = graph.input("source", i64, {s.steps, s.batch}), lengths = graph.input("lengths", i64, {s.batch});
  const Value written = graph.input("written", i64, {s.steps, s.batch});
  const Value loss = model.loss(source, lengths, written, graph.input("labels", i64, {s.steps, s.batch}));
  const TrainingStep step = minimize(loss, AdamW{.learning_rate = 1e-4}, {.clip_norm = 1, .skip_nonfinite = true});
  graph.fetch("loss", loss);
  graph.fetch("norm", step.gradient_norm);
}

// All rows are as long as the sequences: nothing is padded.
Tensor pairs_feed(const PairSize& s, const std::string& name, const Type& type) {
  const bool is_source = name == "source";
  std::vector<double> values(static_cast<std::size_t>(type.shape.elements()));
  if (name == "lengths") return filled_tensor(type, static_cast<double>(s.steps));
  if (is_source || name == "written" || name == "labels") {
    const auto words = static_cast<std::uint64_t>(is_source ? s.model.source_vocabulary : s.model.target_vocabulary);
    std::uint64_t seed = name.size();
    for (double& value : values) {
      seed = seed * 6364136223846793005 + 1442695040888963407;
      value = static_cast<double>((seed >> 33) % words);
    }
    return Tensor::from(type.dtype, type.shape, values);
  }
  const bool is_factor = name.ends_with("/gamma");
  if (name.starts_with("adam/") || !is_factor) return training_feed(name, type);
  values = random_tensor({f64, type.shape}, 1, name).to_doubles();
  for (double& value : values) value = 1 + 0.1 * std::abs(value);
  return Tensor::from(type.dtype, type.shape, values);
}

Need need_of_pairs(const PairSize& s) {
  const auto width = static_cast<double>(s.model.hidden), layers = static_cast<double>(s.model.layers);
  const double tokens = static_cast<double>(s.batch * s.steps), steps = static_cast<double>(s.steps);
  // An encoder layer has four matrices of attention and two that are four times as large; a decoder layer four more.
  const double matrices = layers * (12 + 16) * width * width;
  const double scores = static_cast<double>(s.model.target_vocabulary) * width;
  const double weights = matrices + scores + static_cast<double>(s.model.source_vocabulary) * width;
  const double pairs = 3 * layers * tokens * steps;
  return {.read = 16 * weights,
          .written = 12 * weights,
          .updated = 12 * weights,
          .flops = 6 * tokens * (matrices + scores) + 14 * pairs * width};
}

}  // namespace

Cases encoder_decoder_cases() {
  const PairSize s{.model = {.source_vocabulary = 17191, .target_vocabulary = 7709, .dropout = 0.1}};
  Case c;
  c.section = 'T';
  c.kind = "transformer_training";
  c.name = "transformer/training_f32";
  c.what = "6+6 layers of 512, B 128, 50 x 50, dropout 0.1, AdamW, clip";
  c.sizes = JsonObject()
                .add("source_words", s.model.source_vocabulary)
                .add("target_words", s.model.target_vocabulary)
                .add("hidden", s.model.hidden)
                .add("heads", s.model.heads)
                .add("layers", s.model.layers)
                .add("dropout", s.model.dropout)
                .add("batch", s.batch)
                .add("steps", s.steps)
                .text();
  c.need = need_of_pairs(s);
  c.goal.wall = 6000;
  c.need.floor_us = 3000;
  c.on_cpu = false;
  c.rotates = false;
  c.build = [s](Graph& graph, DType type, const std::string&) { build_pairs(graph, s, type); };
  const PairSize small = smaller_pairs(s);
  c.build_small = [small](Graph& graph, DType type, const std::string&) { build_pairs(graph, small, type); };
  c.checked_as = "2+2 layers of 128, B 4, 10 x 10, no dropout";
  c.feed = [s, small](const std::string& input, const Type& type) {
    const bool is_small = type.shape.rank() > 0 && type.shape[type.shape.rank() - 1] == small.batch;
    return pairs_feed(is_small ? small : s, input, type);
  };
  return {in_mixed_precision(std::move(c), bf16)};
}

}  // namespace paoding::cli::bench
