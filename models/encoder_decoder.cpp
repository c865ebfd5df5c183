// SPDX-License-Identifier: Apache-2.0
#include "models/encoder_decoder.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace paoding::models {
namespace {

// [T, B] of ids as layers want them: [B, T].
Value rows_first(const Value& ids) {
  constexpr std::array<std::int64_t, 2> kExchanged{1, 0};
  return transpose(ids, kExchanged);
}

// [B, ..] with each row `times` over: [B times, ..].
Value each_row_again(const Value& x, std::int64_t times) {
  if (times == 1) return x;
  const Shape& shape = x.shape();
  return reshape(expand(unsqueeze(x, 1), shape.with_inserted(1, times)), shape.with_dim(0, shape[0] * times));
}

}  // namespace

EncoderDecoder::EncoderDecoder(Graph& graph, const EncoderDecoderOptions& o)
    : graph_(graph),
      options_(o),
      source_(table("source", o.source_vocabulary, o.source_positions)),
      target_(table("target", o.target_vocabulary, o.target_positions)),
      encoder_norm_(graph, "encoder/norm", o.hidden, 1e-5, o.dtype),
      decoder_norm_(graph, "decoder/norm", o.hidden, 1e-5, o.dtype) {
  const double layers = static_cast<double>(o.layers);
  nn::TransformerOptions layer{.feed_forward = o.feed_forward,
                               .activation = nn::FeedForwardKind::relu,
                               .dropout = o.dropout,
                               .norm_first = true,
                               .dtype = o.dtype,
                               .initial = nn::xavier_uniform(),
                               .last_initial = nn::xavier_uniform(1 / std::sqrt(2 * layers))};
  for (std::int64_t i = 0; i < o.layers; ++i) {
    encoder_.emplace_back(graph, fmt::format("encoder/layer{}", i), o.hidden, o.heads, layer);
  }
  layer.last_initial = nn::xavier_uniform(1 / std::sqrt(3 * layers));
  for (std::int64_t i = 0; i < o.layers; ++i) {
    decoder_.emplace_back(graph, fmt::format("decoder/layer{}", i), o.hidden, o.heads, layer);
  }
}

EncoderDecoder::Table EncoderDecoder::table(const char* name, std::int64_t vocabulary, std::int64_t positions) {
  const nn::EmbeddingOptions words{.dtype = options_.dtype, .initial = nn::normal(0, 0.02)};
  return {{graph_, name, vocabulary, options_.hidden, words},
          {graph_, fmt::format("{}/places", name), positions, options_.hidden, options_.dtype}};
}

Value EncoderDecoder::encoded(const Value& source, const Value& lengths) const {
  const Scope scope(graph_, "encoder");
  Value x = dropout(source_.places(source_.words(rows_first(source))), options_.dropout);
  for (const nn::TransformerEncoderLayer& layer : encoder_) x = layer(x, {.lengths = lengths});
  return encoder_norm_(x);
}

Value EncoderDecoder::scores(const Value& h) const {
  const Scope scope(h.graph(), "scores");
  const Shape& shape = h.shape();
  const Value rows = reshape(h, Shape{shape.elements() / options_.hidden, options_.hidden});
  return reshape(matmul(rows, target_.words.weight, false, true),
                 shape.with_dim(shape.rank() - 1, options_.target_vocabulary));
}

Value EncoderDecoder::loss(const Value& source, const Value& lengths, const Value& written, const Value& labels,
                           LossReduction reduction) const {
  const Value memory = encoded(source, lengths);
  const Scope scope(graph_, "decoder");
  Value x = dropout(target_.places(target_.words(rows_first(written))), options_.dropout);
  for (const nn::TransformerDecoderLayer& layer : decoder_) x = layer(x, memory, {.lengths = lengths});
  return cross_entropy(scores(decoder_norm_(x)), rows_first(labels), {.reduction = reduction});
}

// The memory is projected once, and lies beside the loop: all hypotheses of a row see the same.
BeamSearch EncoderDecoder::search(const Value& source, const Value& lengths, const BeamSearchOptions& options) const {
  const Value memory = encoded(source, lengths);
  const Scope scope(graph_, "search");
  const std::int64_t B = source.shape()[1], K = options.beam;
  const Value seen = each_row_again(lengths, K);
  std::vector<nn::TransformerDecoderLayer::Cache> caches;
  Values state;
  for (const nn::TransformerDecoderLayer& layer : decoder_) {
    auto& cache = caches.emplace_back(layer.start(graph_, B, options.steps, memory));
    cache.memory = {each_row_again(cache.memory.keys, K), each_row_again(cache.memory.values, K)};
    state.insert(state.end(), {cache.self.keys, cache.self.values});
  }
  return beam_search(state, options, [&](const Value& words, const Values& carried) {
    const Value position = step_index(words.graph());
    Continuation next;
    Value x = target_.places(reshape(target_.words(words), Shape{B * K, 1, options_.hidden}), position);
    for (std::size_t i = 0; i < decoder_.size(); ++i) {
      const nn::TransformerDecoderLayer::Cache cache{{carried[2 * i], carried[2 * i + 1]}, caches[i].memory};
      const auto made = decoder_[i].step(x, cache, position, {.lengths = seen});
      x = made.result;
      next.state.insert(next.state.end(), {made.cache.self.keys, made.cache.self.values});
    }
    next.logits = reshape(scores(decoder_norm_(x)), Shape{B * K, options_.target_vocabulary});
    return next;
  });
}

}  // namespace paoding::models
