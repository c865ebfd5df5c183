// SPDX-License-Identifier: Apache-2.0
// The most likely continuations, as a part of the graph: one run gives them all, on any device.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "paoding/ops.h"
#include "paoding/program.h"

namespace paoding::models {

struct BeamSearchOptions {
  std::int64_t beam = 1;            // hypotheses kept per row; 1 is greedy
  std::int64_t steps = 1;           // most words of one, its end among them
  std::int64_t start = 1, end = 2;  // words
  Value first = {};                 // [B] (i64): the first word of each row, rather than `start`
};

/// The results of one step: scores of every word [R, V], and the state that follows.
struct Continuation {
  Value logits;
  Values state;
};

/// The result of a search over B rows with K hypotheses each. words and parents [T, B, K] (i64): hypothesis k of step t
/// is `words` after hypothesis `parents` of the step before. totals [B, K]: sums of log probabilities, the best first.
struct BeamSearch {
  Value words, parents, totals;
};

/// `step(words [B K], state)` is called once, in the body of a scan; `state` are values [B, ..] that become [B K, ..].
/// A hypothesis that reached its end stays, with its score.
BeamSearch beam_search(const Values& state, const BeamSearchOptions& options,
                       const std::function<Continuation(const Value& words, const Values& state)>& step);

/// Makes the fetches "words", "parents" and "totals".
void fetch(Graph& graph, const BeamSearch& search);

struct Hypothesis {
  std::vector<std::int64_t> words;  // without the end
  double log_probability = 0;
  bool is_finished = true;  // it reached its end
};
/// The hypotheses of each row after a run, the best first by log probability / (words + 1)^length_power.
std::vector<std::vector<Hypothesis>> hypotheses(Program& program, std::int64_t end, double length_power = 0);
/// Error (argument) when a log probability is not a number, or none was found: then the words mean nothing.
void check_found(const std::vector<Hypothesis>& row);

}  // namespace paoding::models
