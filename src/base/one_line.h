// SPDX-License-Identifier: Apache-2.0
// Names in messages, notes and plans. They may come from a file, and must not break the line that they stand in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "paoding/printable.h"

namespace paoding {

/// `name` with characters that would end its line, or move the text after it, as \x0a.
inline std::string one_line(std::string_view name) { return printable(name, ""); }

/// "w, b", or "none".
inline std::string one_line(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + one_line(name);
  return text.empty() ? "none" : text;
}

/// " (in encoder/l0)"; nothing without a scope.
inline std::string in_scope(std::string_view scope) { return scope.empty() ? "" : " (in " + one_line(scope) + ")"; }

}  // namespace paoding
