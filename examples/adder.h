// SPDX-License-Identifier: Apache-2.0
// The model that 06 trains and 07 uses: a GRU that adds two numbers as children do, digit by digit from the right. It
// sees one pair of digits a step and has to keep the carry in its state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <random>
#include <vector>

#include "paoding/paoding.h"

namespace adder {

namespace pd = paoding;

constexpr int kHidden = 32, kWidth = 16;

/// pairs [digits, sums] of numbers 10 a + b, one for each pair of digits, to logits [digits, sums, 10] of the digits of
/// the sums.
inline pd::Value add_digits(pd::Graph& g, const pd::Value& pairs) {
  const pd::nn::Embedding embedding(g, "pairs", 100, kWidth);
  const pd::nn::Gru gru(g, "gru", kWidth, kHidden);
  const pd::nn::Linear digit(g, "digit", kHidden, 10);
  return digit(gru(embedding(pairs)).outputs);
}

struct Sums {
  std::vector<std::int64_t> first, second;
  pd::Tensor pairs, digits;  // i32 [digits, sums], the lowest digit first
};

/// Sums of random numbers that have at most `digits` digits, the result too.
inline Sums random_sums(int digits, int count, std::mt19937_64& random) {
  Sums sums{{}, {}, pd::Tensor(pd::i32, {digits, count}), pd::Tensor(pd::i32, {digits, count})};
  std::int64_t limit = 1;
  for (int i = 0; i < digits; ++i) limit *= 10;
  for (int i = 0; i < count; ++i) {
    std::int64_t a = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit / 2));
    std::int64_t b = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit / 2));
    sums.first.push_back(a);
    sums.second.push_back(b);
    std::int64_t sum = a + b;
    for (int place = 0; place < digits; ++place, a /= 10, b /= 10, sum /= 10) {
      const auto at = static_cast<std::size_t>(place * count + i);
      sums.pairs.values<std::int32_t>()[at] = static_cast<std::int32_t>(10 * (a % 10) + b % 10);
      sums.digits.values<std::int32_t>()[at] = static_cast<std::int32_t>(sum % 10);
    }
  }
  return sums;
}

/// Where the checkpoints are, unless the command line says.
inline std::filesystem::path folder_of(int argc, char** argv) {
  return argc > 1 ? std::filesystem::path(argv[1]) : std::filesystem::temp_directory_path() / "paoding_adder";
}

}  // namespace adder
