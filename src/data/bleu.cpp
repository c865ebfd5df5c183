// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <unordered_map>

#include "base/check.h"
#include "data/tokenize_13a.h"
#include "paoding/data/metrics.h"

namespace paoding::data {
namespace {

constexpr std::size_t kOrders = 4;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_mark(char c) {
  // ASCII's marks but for ' , - . : those are parts of words, or of numbers.
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') ||
         (c >= ':' && c <= '@') || c == '/';
}
bool is_point(char c) { return c == '.' || c == ','; }

/// Bytes of the white space that Python's str.split() sees at the start; 0 when there is none.
std::size_t space_bytes(std::string_view text) {
  const char c = text[0];
  if ((c >= '\t' && c <= '\r') || (c >= '\x1c' && c <= ' ')) return 1;
  for (const std::string_view space :
       {"\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006", "\u2007",
        "\u2008", "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"}) {
    if (text.starts_with(space)) return space.size();
  }
  return 0;
}

using Counts = std::unordered_map<std::string, std::int64_t>;

/// How often each n-gram is there, of `order` tokens; words have no blanks, so joined by one they are still told apart.
Counts ngrams_of(const std::vector<std::string>& tokens, std::size_t order) {
  Counts counts;
  for (std::size_t i = 0; i + order <= tokens.size(); ++i) {
    std::string ngram = tokens[i];
    for (std::size_t k = 1; k < order; ++k) ngram += ' ' + tokens[i + k];
    ++counts[std::move(ngram)];
  }
  return counts;
}

}  // namespace

std::vector<std::string> tokenize_13a(std::string line) {
  line.erase(std::find_if_not(line.rbegin(), line.rend(),
                              [](char c) {
                                return space_bytes({&c, 1}) > 0;
                              })
                 .base(),
             line.end());
  replace_all(line, "<skipped>", "");
  replace_all(line, "-\n", "");
  replace_all(line, "\n", " ");
  replace_all(line, "&quot;", "\"");
  replace_all(line, "&amp;", "&");
  replace_all(line, "&lt;", "<");
  replace_all(line, "&gt;", ">");

  // Four replacements of regular expressions, each over the whole line, matches not overlapping.
  std::string marked = " ";
  for (const char c : line) {
    if (is_mark(c)) {
      marked.append({' ', c, ' '});
    } else {
      marked += c;
    }
  }
  marked += ' ';
  std::string apart;  // ([^0-9])([.,]) -> "\1 \2 "
  for (std::size_t i = 0; i < marked.size(); ++i) {
    apart += marked[i];
    if (!is_digit(marked[i]) && i + 1 < marked.size() && is_point(marked[i + 1])) {
      apart.append({' ', marked[i + 1], ' '});
      ++i;
    }
  }
  std::string joined;  // ([.,])([^0-9]) -> " \1 \2"
  for (std::size_t i = 0; i < apart.size(); ++i) {
    if (is_point(apart[i]) && i + 1 < apart.size() && !is_digit(apart[i + 1])) {
      joined.append({' ', apart[i], ' ', apart[i + 1]});
      ++i;
    } else {
      joined += apart[i];
    }
  }
  std::string dashed;  // ([0-9])(-) -> "\1 \2 "
  for (std::size_t i = 0; i < joined.size(); ++i) {
    dashed += joined[i];
    if (is_digit(joined[i]) && i + 1 < joined.size() && joined[i + 1] == '-') dashed += " - ", ++i;
  }

  std::vector<std::string> tokens;
  bool is_open = false;
  for (std::string_view rest = dashed; !rest.empty();) {
    const std::size_t space = space_bytes(rest);
    if (space == 0) {
      if (!is_open) tokens.emplace_back();
      tokens.back() += rest[0];
    }
    is_open = space == 0;
    rest.remove_prefix(std::max<std::size_t>(space, 1));
  }
  return tokens;
}

double bleu(std::span<const std::string> predicted, std::span<const std::string> references) {
  if (predicted.size() != references.size() || predicted.empty()) {
    fail(ErrorKind::argument,
         "bleu: {} predicted sentences beside {} references, there must be as many, and at least 1", predicted.size(),
         references.size());
  }
  std::array<std::int64_t, kOrders> correct{}, total{};
  std::int64_t predicted_tokens = 0, reference_tokens = 0;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    const std::vector<std::string> tokens = tokenize_13a(predicted[i]), reference = tokenize_13a(references[i]);
    predicted_tokens += std::ssize(tokens);
    reference_tokens += std::ssize(reference);
    for (std::size_t order = 1; order <= kOrders; ++order) {
      const Counts wanted = ngrams_of(reference, order);
      for (const auto& [ngram, count] : ngrams_of(tokens, order)) {
        const auto at = wanted.find(ngram);
        if (at != wanted.end()) correct[order - 1] += std::min(count, at->second);
        total[order - 1] += count;
      }
    }
  }
  if (correct[0] == 0 || total[kOrders - 1] == 0) return 0;  // nothing is right, or no sentence has 4 tokens
  double log_sum = 0, missing = 1;
  for (std::size_t i = 0; i < kOrders; ++i) {
    // The k-th order without a match counts as 2^-k matches.
    if (correct[i] == 0) missing /= 2;
    const double matches = correct[i] == 0 ? missing : static_cast<double>(correct[i]);
    log_sum += std::log(matches / static_cast<double>(total[i]));
  }
  const double ratio = static_cast<double>(reference_tokens) / static_cast<double>(predicted_tokens);
  return 100 * std::exp(std::min(0.0, 1 - ratio) + log_sum / kOrders);
}

}  // namespace paoding::data
