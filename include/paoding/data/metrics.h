// SPDX-License-Identifier: Apache-2.0
// How good predictions are.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace paoding::data {

/// The least number of insertions, deletions and replacements that makes one sequence of the other (Levenshtein 1966).
std::int64_t edit_distance(std::span<const std::int64_t> a, std::span<const std::int64_t> b);

/// The BLEU score of translations with one reference each, in 0 .. 100: sentences are split as `sacrebleu --tokenize
/// 13a` does; n-grams up to 4, exponential smoothing of counts of 0, brevity penalty over the corpus (Papineni et al.
/// 2002; Post 2018). Error (argument) when the counts differ or there is nothing.
double bleu(std::span<const std::string> predicted, std::span<const std::string> references);

}  // namespace paoding::data
