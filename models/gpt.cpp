// SPDX-License-Identifier: Apache-2.0
#include "models/gpt.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace paoding::models {

Gpt::Gpt(Graph& graph, const GptOptions& o)
    : graph_(graph),
      options_(o),
      tokens_(graph, "tokens", o.vocabulary, o.hidden, {.dtype = o.dtype, .initial = nn::normal(0, 0.02)}),
      positions_(graph, "positions", o.context, o.hidden, o.dtype),
      norm_(graph, "norm", o.hidden, 1e-5, o.dtype) {
  const nn::TransformerOptions layer{
      .activation = nn::FeedForwardKind::gelu_tanh,
      .dropout = o.dropout,
      .norm_first = true,
      .memory = false,
      .dtype = o.dtype,
      .initial = nn::normal(0, 0.02),
      .last_initial = nn::normal(0, 0.02 / std::sqrt(2 * static_cast<double>(o.layers)))};
  for (std::int64_t i = 0; i < o.layers; ++i) {
    blocks_.emplace_back(graph, fmt::format("block{}", i), o.hidden, o.heads, layer);
  }
}

Value Gpt::scores(const Value& h) const {
  constexpr std::array<std::int64_t, 2> kTransposed{1, 0};
  const Shape& shape = h.shape();
  const Scope scope(h.graph(), "scores");
  const Value rows = reshape(h, Shape{shape.elements() / options_.hidden, options_.hidden});
  return reshape(matmul(rows, transpose(tokens_.weight, kTransposed)),
                 shape.with_dim(shape.rank() - 1, options_.vocabulary));
}

Value Gpt::logits(const Value& written) const {
  Value x = dropout(positions_(tokens_(written)), options_.dropout);
  for (const nn::TransformerDecoderLayer& block : blocks_) x = block(x);
  return scores(norm_(x));
}

Value Gpt::loss(const Value& written, const Value& labels) const {
  const Value all = logits(written);
  const Scope scope(graph_, "loss");
  return cross_entropy(all, labels);
}

// Keys and values of the texts. Those behind a text's end are of no token: the steps that follow write over them before
// they are seen.
Gpt::Start Gpt::start(const Value& written, const Value& lengths, std::int64_t steps) const {
  const std::int64_t B = written.shape()[0], T = written.shape()[1];
  const Value first = full(graph_, {}, 0, i64);
  const Value position = lengths - full(graph_, {}, 1, i64);
  Start begun;
  begun.state.push_back(position);
  Value x = positions_(tokens_(written));
  for (const nn::TransformerDecoderLayer& block : blocks_) {
    const auto made = block.step(x, block.start(graph_, B, T + steps), first);
    x = made.result;
    begun.state.insert(begun.state.end(), {made.cache.self.keys, made.cache.self.values});
  }
  const Value is_last = equal(iota(graph_, Shape{B, T}, 1, i64), reshape(position, Shape{B, 1}));
  begun.last = sum(select(is_last, written, full(graph_, {}, 0, i64)), std::array<std::int64_t, 1>{1});
  return begun;
}

// Scores of the tokens after `tokens` [R], with the state of R rows.
Continuation Gpt::step(const Value& tokens, const Values& state) const {
  const Value& position = state[0];
  const std::int64_t rows = tokens.shape()[0];
  Continuation next;
  next.state.push_back(position + full(tokens.graph(), {}, 1, i64));
  Value x = reshape(tokens_(tokens) + embedding(positions_.weight, position), Shape{rows, 1, options_.hidden});
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const auto made = blocks_[i].step(x, {.self = {state[2 * i + 1], state[2 * i + 2]}, .memory = {}}, position);
    x = made.result;
    next.state.insert(next.state.end(), {made.cache.self.keys, made.cache.self.values});
  }
  next.logits = reshape(scores(norm_(x)), Shape{rows, options_.vocabulary});
  return next;
}

BeamSearch Gpt::search(const Value& written, const Value& lengths, const BeamSearchOptions& options) const {
  const Scope scope(graph_, "search");
  const Start begun = start(written, lengths, options.steps);
  BeamSearchOptions from_last = options;
  from_last.first = begun.last;
  return beam_search(begun.state, from_last,
                     [&](const Value& tokens, const Values& state) { return step(tokens, state); });
}

BeamSearch Gpt::draw(const Value& written, const Value& lengths, const Value& uniform, const Value& temperature,
                     std::int64_t end) const {
  const Scope scope(graph_, "draw");
  const std::int64_t B = written.shape()[0], steps = uniform.shape()[0];
  const Start begun = start(written, lengths, steps);
  Values carries{begun.last, zeros(graph_, {B}), full(graph_, {B}, 0, i64)};
  carries.insert(carries.end(), begun.state.begin(), begun.state.end());
  const StepResult drawn = scan(carries, {uniform}, [&](const Values& carried, const Values& elements) {
    const Continuation next = step(carried[0], Values(carried.begin() + 3, carried.end()));
    Graph& body = next.logits.graph();
    const Value logits = cast(next.logits, f32), was_done = equal(carried[2], 1);
    // The first token up to which the probabilities add up to more than the number.
    const Value shares = cumsum(softmax(logits / temperature), 1);
    const Value is_passed = less_equal(shares, reshape(elements[0], Shape{B, 1}));
    const Value count = sum(cast(is_passed, i64), std::array<std::int64_t, 1>{1});
    const Value token = select(was_done, full(body, {}, end, i64), minimum(count, options_.vocabulary - 1));
    const Value chosen = reshape(gather_elements(log_softmax(logits), reshape(token, Shape{B, 1}), 1), Shape{B});
    Values carry{token, carried[1] + select(was_done, zeros(body, {}), chosen), cast(equal(token, end), i64)};
    carry.insert(carry.end(), next.state.begin(), next.state.end());
    return paoding::step(std::move(carry), {reshape(token, Shape{B, 1}), full(body, {B, 1}, 0, i64)});
  });
  return {.words = drawn.outputs[0], .parents = drawn.outputs[1], .totals = reshape(drawn.carries[1], Shape{B, 1})};
}

}  // namespace paoding::models
