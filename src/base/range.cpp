// SPDX-License-Identifier: Apache-2.0
#include "paoding/range.h"

#include "base/check.h"

namespace paoding {

std::string to_string(const Range& range) {
  std::string text;
  if (range.least > -DBL_MAX) text = fmt::format("{} {}", range.is_above ? "above" : "at least", range.least);
  if (range.most < DBL_MAX) {
    text += fmt::format("{}{} {}", text.empty() ? "" : " and ", range.is_below ? "below" : "at most", range.most);
  }
  return text.empty() ? "finite" : text;
}

void check_range(std::string_view what, std::string_view name, double value, const Range& range) {
  if (range.contains(value)) return;
  const bool is_finite = value >= -DBL_MAX && value <= DBL_MAX;
  std::string needed = to_string(range);
  if (!is_finite && needed != "finite") needed = "finite and " + needed;
  fail(ErrorKind::argument, "{}: {} = {}, needs to be {}", what, name, value, needed);
}

}  // namespace paoding
