// SPDX-License-Identifier: Apache-2.0
// Checks of the arguments of layers' constructors, in one wording.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/one_line.h"
#include "paoding/range.h"
#include "paoding/types.h"

namespace paoding::nn {

class LayerCheck {
 public:
  LayerCheck(std::string_view kind, std::string_view name) : layer_(fmt::format("{} '{}'", kind, one_line(name))) {}

  void number(const char* what, double value, const Range& range) const { check_range(layer_, what, value, range); }
  /// Counts are at least 1.
  void widths(std::initializer_list<std::pair<const char*, std::int64_t>> counts) const {
    for (const auto& [what, value] : counts) number(what, static_cast<double>(value), Range::at_least(1));
  }
  void is_float(DType dtype) const {
    if (paoding::is_float(dtype)) return;
    fail(ErrorKind::dtype, "{}: dtype is {}, needed is a float", layer_, to_string(dtype));
  }
  /// An option that only `owner` has.
  void only(bool is_right, const char* what, const char* owner) const {
    if (!is_right) fail(ErrorKind::argument, "{}: {} is an option of {} alone", layer_, what, owner);
  }

 private:
  std::string layer_;
};

}  // namespace paoding::nn
