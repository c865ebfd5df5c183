// SPDX-License-Identifier: Apache-2.0
#include "models/language_model.h"

#include <array>

namespace paoding::models {

LanguageModel::LanguageModel(Graph& graph, const LanguageModelOptions& o)
    : graph_(graph),
      options_(o),
      embedding_(graph, "words", o.vocabulary, o.hidden, {.initial = nn::uniform(-0.1, 0.1)}),
      lstm_(graph, "lstm", o.hidden, o.hidden, {.layers = static_cast<int>(o.layers), .dropout = o.dropout}),
      bias_(graph.parameter("words/bias", f32, {o.vocabulary})) {}

Value LanguageModel::logits(const Value& h) const {
  constexpr std::array<std::int64_t, 2> kTransposed{1, 0};
  const Shape& shape = h.shape();
  const std::int64_t rows = shape.elements() / options_.hidden;
  const Value scores = matmul(reshape(h, Shape{rows, options_.hidden}), transpose(embedding_.weight, kTransposed));
  return reshape(scores + bias_, shape.with_dim(shape.rank() - 1, options_.vocabulary));
}

Value LanguageModel::loss(const Value& written, const Value& labels) const {
  const RecurrentResult read_all = [&] {
    const Scope scope(graph_, "lstm");
    return lstm_(read(written));
  }();
  const Scope scope(graph_, "output");
  return cross_entropy(logits(dropout(read_all.outputs, options_.dropout)), labels);
}

BeamSearch LanguageModel::search(const Value& written, const Value& lengths, const BeamSearchOptions& options) const {
  const Scope scope(graph_, "search");
  const std::int64_t T = written.shape()[0], B = written.shape()[1];
  // Everything but the last word makes the state; the search begins with the last word.
  const Value last = lengths - full(graph_, {}, 1, i64);
  const RecurrentResult start = lstm_(read(written), {.lengths = last});
  const Value is_last = equal(iota(graph_, Shape{T, B}, 0, i64), reshape(last, Shape{1, B}));
  BeamSearchOptions begun = options;
  begun.first = sum(select(is_last, written, full(graph_, {}, 0, i64)), std::array<std::int64_t, 1>{0});
  Values state;
  for (std::size_t layer = 0; layer < start.last_h.size(); ++layer) {
    state.insert(state.end(), {start.last_h[layer], start.last_c[layer]});
  }
  return beam_search(state, begun, [&](const Value& words, const Values& before) {
    Value x = read(words);
    Values next;
    for (std::size_t layer = 0; layer < lstm_.parameters().size(); ++layer) {
      const RecurrentParameters& p = lstm_.parameters()[layer];
      const auto [h, c] = lstm_cell(x, before[2 * layer], before[2 * layer + 1], p.w, p.u, p.b);
      next.insert(next.end(), {h, c});
      x = h;
    }
    return Continuation{.logits = logits(x), .state = std::move(next)};
  });
}

}  // namespace paoding::models
