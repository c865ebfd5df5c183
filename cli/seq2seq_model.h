// SPDX-License-Identifier: Apache-2.0
// The attention seq2seq of the benchmarks: layers of LSTM that read the source, layers of LSTM cells that write the
// target, fed with what attention over the projected source said last (input feeding; Luong, Pham, Manning 2015).
#pragma once

#include <array>

#include "paoding/nn.h"

namespace paoding::cli {

struct Seq2SeqSize {
  std::int64_t source_vocabulary = 30, target_vocabulary = 42, hidden = 256;
  int layers = 2;  // of the encoder, and of the decoder
  std::int64_t batch = 64, source_steps = 10, target_steps = 10;
  DType dtype = DType::f32;
  double dropout = 0;
  bool squashes_attention = true;  // tanh on what attention gives, and an output bias
  bool has_lengths = false;        // input "lengths" [B]: source positions beyond are not seen
  bool sums_over_time = false;     // loss: mean over the batch, summed over time, rather than the mean of all
};

/// The loss; declares inputs "source" [S, B] and "target" [T + 1, B] (i64) and every parameter.
inline Value build_seq2seq(Graph& graph, const Seq2SeqSize& size) {
  const std::int64_t H = size.hidden, B = size.batch, S = size.source_steps, T = size.target_steps;
  const auto linear = [&](const char* name, std::int64_t inputs, std::int64_t outputs, bool bias) {
    return nn::Linear(graph, name, inputs, outputs, {.bias = bias, .dtype = size.dtype});
  };
  const Value source = graph.input("source", i64, {S, B}), target = graph.input("target", i64, {T + 1, B});
  const Value lengths = size.has_lengths ? graph.input("lengths", i64, {B}) : Value();
  const nn::Embedding read(graph, "source", size.source_vocabulary, H, {.dtype = size.dtype});
  const nn::Embedding written(graph, "target", size.target_vocabulary, H, {.dtype = size.dtype});
  const nn::Lstm encoder(graph, "encoder", H, H, {.layers = size.layers, .dropout = size.dropout, .dtype = size.dtype});
  const nn::Lstm decoder(graph, "decoder", 2 * H, H, {.layers = size.layers, .dtype = size.dtype});  // only its cells
  const nn::Linear project = linear("memory", H, H, false), attend = linear("attention", 2 * H, H, false);
  const nn::Linear output = linear("output", H, size.target_vocabulary, size.squashes_attention);

  const RecurrentResult encoded = [&] {
    const Scope scope(graph, "encoder");
    return encoder(dropout(read(source), size.dropout), {.lengths = lengths});
  }();
  const Value memory = project(encoded.outputs);  // [S, B, H]
  Value counts;                                   // [S, B, 1]
  if (size.has_lengths) {
    const Value ends = reshape(lengths, Shape{1, B, 1});
    counts = less(iota(graph, Shape{S, 1, 1}, 0, i64), ends);
  }

  const Scope scope(graph, "decoder");
  Values start{expand(full(graph, {}, 0, size.dtype), Shape{B, H})};  // what attention said, then h and c of each layer
  for (int layer = 0; layer < size.layers; ++layer) {
    start.push_back(encoded.last_h[static_cast<std::size_t>(layer)]);
    start.push_back(encoded.last_c[static_cast<std::size_t>(layer)]);
  }
  const Value words = written(slice(target, 0, 0, T));
  const StepResult decoded = scan(start, {words}, [&](const Values& state, const Values& element) {
    Value x = concat(std::array{element[0], state[0]}, 1);
    Values next(1);
    for (std::size_t layer = 0; layer < decoder.parameters().size(); ++layer) {
      const RecurrentParameters& p = decoder.parameters()[layer];
      const auto [h, c] = lstm_cell(x, state[2 * layer + 1], state[2 * layer + 2], p.w, p.u, p.b);
      next.insert(next.end(), {h, c});
      x = dropout(h, size.dropout);
    }
    // Time stands first in memory, so the scores are a sum of products rather than a product of matrices.
    const Value query = reshape(x, Shape{1, B, H});
    Value scores = sum(memory * query, std::array<std::int64_t, 1>{2}, true);  // [S, B, 1]
    if (counts.valid()) scores = select(counts, scores, full(scores.graph(), {}, -1e30, size.dtype));
    const Value weights = softmax(scores, 0);
    const Value seen = sum(weights * memory, std::array<std::int64_t, 1>{0});
    Value said = attend(concat(std::array{seen, x}, 1));
    if (size.squashes_attention) said = tanh(said);
    next[0] = said;
    return step(next, {said});
  });
  const Value logits = output(decoded.outputs[0]);
  const Value labels = slice(target, 0, 1, T + 1);
  if (!size.sums_over_time) return cross_entropy(logits, labels);
  return cross_entropy(logits, labels, {.reduction = LossReduction::sum}) * (1.0 / static_cast<double>(B));
}

}  // namespace paoding::cli
