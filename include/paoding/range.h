// SPDX-License-Identifier: Apache-2.0
// The numbers that an argument may be; ops have one for each attribute, layers and optimizers for their options.
#pragma once

#include <cfloat>
#include <string>
#include <string_view>

namespace paoding {

/// From `least` to `most`, either with or without itself. NaN and infinities are in no range.
struct Range {
  double least = -DBL_MAX;
  double most = DBL_MAX;
  bool is_above = false;  // without `least`
  bool is_below = false;  // without `most`

  static constexpr Range at_least(double least) { return {.least = least}; }
  static constexpr Range above(double least) { return {.least = least, .is_above = true}; }
  static constexpr Range between(double least, double most) { return {.least = least, .most = most}; }
  static constexpr Range from_up_to(double least, double most) {
    return {.least = least, .most = most, .is_below = true};
  }

  constexpr bool contains(double value) const {
    return (is_above ? value > least : value >= least) && (is_below ? value < most : value <= most);
  }
};

/// "at least 0 and below 1", "above 0", "finite".
std::string to_string(const Range& range);
/// Error (argument) "what: name = value, needs to be at least 0" unless the range contains the value.
void check_range(std::string_view what, std::string_view name, double value, const Range& range);

}  // namespace paoding
