// SPDX-License-Identifier: Apache-2.0
#include "models/masked_model.h"

#include <fmt/format.h>

#include <cmath>

#include "paoding/ops.h"

namespace paoding::models {

MaskedModel::MaskedModel(Graph& graph, const MaskedModelOptions& o)
    : graph_(graph),
      options_(o),
      tokens_(graph, "tokens", o.vocabulary, o.hidden, {.dtype = o.dtype, .initial = nn::normal(0, 0.02)}),
      positions_(graph, "positions", o.context, o.hidden, o.dtype),
      norm_(graph, "norm", o.hidden, 1e-5, o.dtype),
      bias_(graph.parameter("scores/bias", o.dtype, {o.vocabulary})) {
  const nn::TransformerOptions layer{
      .activation = nn::FeedForwardKind::gelu,
      .dropout = o.dropout,
      .norm_first = true,
      .dtype = o.dtype,
      .initial = nn::normal(0, 0.02),
      .last_initial = nn::normal(0, 0.02 / std::sqrt(2 * static_cast<double>(o.layers)))};
  for (std::int64_t i = 0; i < o.layers; ++i) {
    layers_.emplace_back(graph, fmt::format("layer{}", i), o.hidden, o.heads, layer);
  }
}

Value MaskedModel::logits(const Value& written, const Value& lengths) const {
  Value x = dropout(positions_(tokens_(written)), options_.dropout);
  for (const nn::TransformerEncoderLayer& layer : layers_) x = layer(x, {.lengths = lengths});
  const Shape shape = x.shape();
  const Value h = norm_(x);
  const Scope scope(graph_, "scores");
  const Value rows = reshape(h, Shape{shape[0] * shape[1], options_.hidden});
  return reshape(matmul(rows, tokens_.weight, false, true) + bias_, shape.with_dim(2, options_.vocabulary));
}

Value MaskedModel::loss_of(const Value& written, const Value& texts, const Value& lengths, const Value& chosen) const {
  const Shape& shape = texts.shape();
  const Value is_text = less(iota(graph_, shape, 1, i64), reshape(lengths, Shape{shape[0], 1}));
  const Value labels = select(logical_and(chosen, is_text), texts, full(graph_, {}, -1, i64));
  const Value all = logits(written, lengths);
  const Scope scope(graph_, "loss");
  return cross_entropy(all, labels);
}

Value MaskedModel::loss(const Value& texts, const Value& lengths, const Value& chosen) const {
  return loss_of(select(chosen, full(graph_, {}, mask(), i64), texts), texts, lengths, chosen);
}

Value MaskedModel::training_loss(const Value& texts, const Value& lengths) const {
  const Shape& shape = texts.shape();
  const Value chosen = random_bernoulli(graph_, shape, 0.15), kind = random_uniform(graph_, shape);
  const Value any = cast(random_uniform(graph_, shape, 0, static_cast<double>(mask())), i64);
  const Value hidden = select(less(kind, 0.8), full(graph_, {}, mask(), i64), select(less(kind, 0.9), any, texts));
  return loss_of(select(chosen, hidden, texts), texts, lengths, chosen);
}

}  // namespace paoding::models
