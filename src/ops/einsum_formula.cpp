// SPDX-License-Identifier: Apache-2.0
#include "ops/einsum_formula.h"

#include <algorithm>

#include "base/check.h"
#include "base/one_line.h"

namespace paoding {
namespace {

constexpr AxisLabel kRest = 0;  // "..." until it is known how many axes it stands for

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::vector<AxisLabels> terms() {
    std::vector<AxisLabels> all(1);
    bool has_rest = false;
    while (at_ < text_.size() && !text_.substr(at_).starts_with("->")) {
      const char c = text_[at_];
      if (c == ',') {
        all.emplace_back(), has_rest = false;
      } else if (is_letter(c)) {
        all.back().push_back(c);
      } else if (text_.substr(at_).starts_with("...")) {
        if (has_rest) wrong("has a second '...' in one operand");
        has_rest = true;
        all.back().push_back(kRest);
        at_ += 2;
      } else if (c != ' ') {
        wrong(fmt::format("has '{}', which is no letter, ',', '...' or '->'", one_line(text_.substr(at_, 1))));
      }
      ++at_;
    }
    return all;
  }
  bool arrow() {
    if (at_ == text_.size()) return false;
    at_ += 2;
    return true;
  }
  [[noreturn]] void wrong(const std::string& what) const {
    fail(ErrorKind::argument, "formula '{}' {}", one_line(text_), what);
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

// "..." as `count` axes.
AxisLabels with_rest(const AxisLabels& term, int count) {
  AxisLabels labels;
  for (const AxisLabel label : term) {
    if (label != kRest) labels.push_back(label);
    for (int axis = count; label == kRest && axis > 0; --axis) labels.push_back(-axis);
  }
  return labels;
}

// Without an arrow: the axes of "...", then the letters that are there once.
AxisLabels implied(const std::vector<AxisLabels>& operands, int rest) {
  AxisLabels all;
  for (const AxisLabels& operand : operands) {
    std::copy_if(operand.begin(), operand.end(), std::back_inserter(all), [](AxisLabel label) { return label > 0; });
  }
  std::sort(all.begin(), all.end());
  AxisLabels result = with_rest({kRest}, rest);
  for (const AxisLabel label : all) {
    if (std::count(all.begin(), all.end(), label) == 1) result.push_back(label);
  }
  return result;
}

}  // namespace

bool has_label(const AxisLabels& labels, AxisLabel label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

std::string label_text(AxisLabel label) {
  return label > 0 ? std::string(1, static_cast<char>(label)) : fmt::format("... axis {}", label);
}

EinsumFormula parse_einsum(std::string_view text, const std::vector<int>& ranks) {
  Reader reader(text);
  EinsumFormula formula{reader.terms(), {}};
  if (formula.operands.size() != ranks.size()) {
    reader.wrong(fmt::format("names {} operands, but there are {}", formula.operands.size(), ranks.size()));
  }
  int rest = 0;  // the most axes that a "..." stands for
  bool has_rest = false;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    AxisLabels& labels = formula.operands[i];
    const bool is_open = has_label(labels, kRest);
    const int named = static_cast<int>(labels.size()) - (is_open ? 1 : 0);
    if (is_open ? named > ranks[i] : named != ranks[i]) {
      fail(ErrorKind::shape, "formula '{}' has {} letters for operand {}, which has {} axes", one_line(text), named, i,
           ranks[i]);
    }
    has_rest = has_rest || is_open;
    rest = std::max(rest, ranks[i] - named);
    labels = with_rest(labels, ranks[i] - named);
  }
  if (!reader.arrow()) {
    formula.result = implied(formula.operands, rest);
    return formula;
  }
  const std::vector<AxisLabels> results = reader.terms();
  if (results.size() != 1 || reader.arrow()) reader.wrong("has more than one result");
  if (has_rest && !has_label(results[0], kRest) && rest > 0)
    reader.wrong("has '...' in an operand, but none in its result");
  formula.result = with_rest(results[0], rest);
  for (const AxisLabel label : formula.result) {
    const auto has_it = [&](const AxisLabels& operand) { return has_label(operand, label); };
    if (std::none_of(formula.operands.begin(), formula.operands.end(), has_it)) {
      reader.wrong(fmt::format("has '{}' in its result, but in no operand", label_text(label)));
    }
    if (std::count(formula.result.begin(), formula.result.end(), label) > 1) {
      reader.wrong(fmt::format("has '{}' twice in its result", label_text(label)));
    }
  }
  return formula;
}

}  // namespace paoding
