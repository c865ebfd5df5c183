// SPDX-License-Identifier: Apache-2.0
#include "models/beam_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "models/task.h"
#include "paoding/error.h"

namespace paoding::models {
namespace {

constexpr double kImpossible = -1e30;  // finite: differences of two stay numbers

// [B, ..] with each row `times` over: [B times, ..].
Value repeated(const Value& x, std::int64_t times) {
  if (times == 1) return x;
  const Shape& shape = x.shape();
  return reshape(expand(unsqueeze(x, 1), shape.with_inserted(1, times)), shape.with_dim(0, shape[0] * times));
}

}  // namespace

BeamSearch beam_search(const Values& state, const BeamSearchOptions& options,
                       const std::function<Continuation(const Value&, const Values&)>& step) {
  Graph& graph = state[0].graph();
  const std::int64_t B = state[0].shape()[0], K = options.beam, R = B * K;

  // At the start only the first of a row's hypotheses is possible, so that they come to differ.
  const Value rank = iota(graph, Shape{B, K}, 1, i64);
  const Value first = equal(rank, full(graph, {}, 0, i64));
  const Value begin = options.first.valid() ? repeated(options.first, K) : full(graph, {R}, options.start, i64);
  Values carries{begin, select(first, zeros(graph, {B, K}), full(graph, {}, kImpossible)), full(graph, {R}, 0, i64)};
  for (const Value& value : state) carries.push_back(repeated(value, K));
  // The rows of hypothesis 0, to which parents are added.
  const Value row_starts = iota(graph, Shape{B, K}, 0, i64) * K;
  const Value steps = iota(graph, Shape{options.steps}, 0, i64);

  const StepResult searched = scan(carries, {steps}, [&](const Values& carried, const Values&) {
    const Value &words = carried[0], &totals = carried[1], &is_done = carried[2];
    Continuation next = step(words, Values(carried.begin() + 3, carried.end()));
    Graph& body = next.logits.graph();
    const std::int64_t V = next.logits.shape()[1];
    // After an end there is nothing but the end, for certain.
    const Value is_end = equal(iota(body, Shape{1, V}, 1, i64), full(body, {}, options.end, i64));
    const Value after_end = select(is_end, zeros(body, {}), full(body, {}, kImpossible));
    const Value done = equal(reshape(is_done, Shape{R, 1}), full(body, {}, 1, i64));
    const Value scores = select(done, after_end, log_softmax(cast(next.logits, f32)));
    const Value candidates = reshape(totals, Shape{B, K, 1}) + reshape(scores, Shape{B, K, V});
    const Sorted best = topk(reshape(candidates, Shape{B, K * V}), K);
    const Value parents = floor_divide(best.indices, V), chosen = remainder(best.indices, V);
    const Value rows = reshape(parents + row_starts, Shape{R}), chosen_rows = reshape(chosen, Shape{R});
    Values carry{chosen_rows, best.values, cast(equal(chosen_rows, full(body, {}, options.end, i64)), i64)};
    for (const Value& value : next.state) carry.push_back(K == 1 ? value : gather(value, rows));
    return paoding::step(std::move(carry), {chosen, parents});
  });
  return {.words = searched.outputs[0], .parents = searched.outputs[1], .totals = searched.carries[1]};
}

void fetch(Graph& graph, const BeamSearch& search) {
  graph.fetch("words", search.words);
  graph.fetch("parents", search.parents);
  graph.fetch("totals", search.totals);
}

std::vector<std::vector<Hypothesis>> hypotheses(Program& program, std::int64_t end, double length_power) {
  const Tensor words = program.fetch(program.fetch_index("words"));
  const Tensor parents = program.fetch(program.fetch_index("parents"));
  const Tensor totals = program.fetch(program.fetch_index("totals"));
  const std::int64_t T = words.shape()[0], B = words.shape()[1], K = words.shape()[2];
  std::vector<std::vector<Hypothesis>> rows(static_cast<std::size_t>(B));
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t k = 0; k < K; ++k) {
      const double total = totals.data<float>()[b * K + k];
      if (total < kImpossible / 2) continue;  // fewer words than hypotheses
      Hypothesis made{.words = {}, .log_probability = total, .is_finished = false};
      for (std::int64_t t = T - 1, at = k; t >= 0; --t) {
        const std::int64_t place = (t * B + b) * K + at, word = words.data<std::int64_t>()[place];
        if (word == end) {
          made.is_finished = true;
        } else {
          made.words.push_back(word);
        }
        at = parents.data<std::int64_t>()[place];
        if (at < 0 || at >= K) {  // a model file's graph may say anything
          throw Error(ErrorKind::argument, fmt::format("a hypothesis goes on from hypothesis {} of {}", at, K));
        }
      }
      std::reverse(made.words.begin(), made.words.end());
      rows[static_cast<std::size_t>(b)].push_back(std::move(made));
    }
  }
  const auto score = [&](const Hypothesis& h) {
    return h.log_probability / std::pow(static_cast<double>(h.words.size() + 1), length_power);
  };
  for (auto& row : rows) {
    std::stable_sort(row.begin(), row.end(),
                     [&](const Hypothesis& a, const Hypothesis& b) { return score(a) > score(b); });
  }
  return rows;
}

void check_found(const std::vector<Hypothesis>& row) {
  constexpr const char* kWhat = "the log probability of a prediction";
  if (row.empty()) check_number(-std::numeric_limits<double>::infinity(), kWhat);
  for (const Hypothesis& hypothesis : row) check_number(hypothesis.log_probability, kWhat);
}

}  // namespace paoding::models
