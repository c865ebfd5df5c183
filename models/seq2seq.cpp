// SPDX-License-Identifier: Apache-2.0
#include "models/seq2seq.h"

#include <array>

namespace paoding::models {
namespace {

nn::RecurrentLayerOptions layers_of(const Seq2SeqOptions& o, double dropout) {
  return {.layers = static_cast<int>(o.layers), .dropout = dropout, .dtype = o.dtype};
}

nn::LinearOptions linear(const Seq2SeqOptions& o, bool bias) { return {.bias = bias, .dtype = o.dtype}; }

}  // namespace

Seq2Seq::Seq2Seq(Graph& graph, const Seq2SeqOptions& o)
    : graph_(graph),
      options_(o),
      read_(graph, "source", o.source_vocabulary, o.hidden, {.dtype = o.dtype}),
      written_(graph, "target", o.target_vocabulary, o.hidden, {.dtype = o.dtype}),
      encoder_(graph, "encoder", o.hidden, o.hidden, layers_of(o, o.dropout)),
      decoder_(graph, "decoder", 2 * o.hidden, o.hidden, layers_of(o, 0)),
      project_(graph, "memory", o.hidden, o.hidden, linear(o, false)),
      attend_(graph, "attention", 2 * o.hidden, o.hidden, linear(o, false)),
      output_(graph, "output", o.hidden, o.target_vocabulary, linear(o, o.squashes_attention)) {}

Seq2Seq::Encoded Seq2Seq::encode(const Value& source, const Value& lengths) const {
  const Scope scope(graph_, "encoder");
  const std::int64_t S = source.shape()[0], B = source.shape()[1];
  const Value ends = lengths.valid() ? cast(lengths, i32) : Value();  // as recurrences take them
  const RecurrentResult read = encoder_(dropout(read_(source), options_.dropout), {.lengths = ends});
  Encoded encoded{.memory = project_(read.outputs), .counts = {}, .state = {}};
  if (ends.valid()) {
    encoded.counts = less(iota(graph_, Shape{S, 1, 1}, 0, i32), reshape(ends, Shape{1, B, 1}));
  }
  encoded.state.push_back(zeros(graph_, {B, options_.hidden}, options_.dtype));
  for (std::size_t layer = 0; layer < read.last_h.size(); ++layer) {
    encoded.state.insert(encoded.state.end(), {read.last_h[layer], read.last_c[layer]});
  }
  return encoded;
}

// The context that each row of the query sees: [B K, H]. Time stands first in memory, so that scores are a sum of
// products rather than a product of matrices.
Value Seq2Seq::attention(const Value& query, const Encoded& encoded) const {
  const Scope scope(query.graph(), "attention");
  const Shape& shape = encoded.memory.shape();
  const std::int64_t S = shape[0], B = shape[1], H = shape[2], beam = query.shape()[0] / B;
  Value memory = encoded.memory, counts = encoded.counts;
  if (beam > 1) {
    memory = reshape(memory, Shape{S, B, 1, H});
    if (counts.valid()) counts = reshape(counts, Shape{S, B, 1, 1});
  }
  const Value rows = reshape(query, beam > 1 ? Shape{1, B, beam, H} : Shape{1, B, H});
  const std::array<std::int64_t, 1> over_width{rows.shape().rank() - 1}, over_time{0};
  Value scores = sum(memory * rows, over_width, true);
  if (counts.valid()) scores = select(counts, scores, full(scores.graph(), {}, -1e30, options_.dtype));
  return reshape(sum(softmax(scores, 0) * memory, over_time), Shape{B * beam, H});
}

Values Seq2Seq::step(const Value& word, const Values& state, const Encoded& encoded) const {
  Value x = concat(std::array{word, state[0]}, 1);
  Values next(1);
  for (std::size_t layer = 0; layer < decoder_.parameters().size(); ++layer) {
    const RecurrentParameters& p = decoder_.parameters()[layer];
    const auto [h, c] = lstm_cell(x, state[2 * layer + 1], state[2 * layer + 2], p.w, p.u, p.b);
    next.insert(next.end(), {h, c});
    x = dropout(h, options_.dropout);
  }
  const Value said = attend_(concat(std::array{attention(x, encoded), x}, 1));
  next[0] = options_.squashes_attention ? tanh(said) : said;
  return next;
}

Value Seq2Seq::loss(const Encoded& encoded, const Value& written, const Value& labels, LossReduction reduction) const {
  const Scope scope(graph_, "decoder");
  const StepResult decoded = scan(encoded.state, {written_(written)}, [&](const Values& state, const Values& element) {
    Values next = step(element[0], state, encoded);
    const Value said = next[0];
    return paoding::step(std::move(next), {said});
  });
  return cross_entropy(logits(decoded.outputs[0]), labels, {.reduction = reduction});
}

BeamSearch Seq2Seq::search(const Encoded& encoded, const BeamSearchOptions& options) const {
  const Scope scope(graph_, "search");
  return beam_search(encoded.state, options, [&](const Value& words, const Values& state) {
    Values next = step(written_(words), state, encoded);
    const Value scores = logits(next[0]);
    return Continuation{.logits = scores, .state = std::move(next)};
  });
}

}  // namespace paoding::models
