// SPDX-License-Identifier: Apache-2.0
#include "graph/value_scope.h"

#include <set>
#include <string_view>

namespace paoding {
namespace {

// The part of the name that `around` does not end with, whole words between slashes.
std::string_view rest_of(std::string_view name, std::string_view around) {
  for (std::size_t end = name.size(); end > 0 && end != name.npos; end = name.rfind('/', end - 1)) {
    const std::string_view begin = name.substr(0, end);
    const bool is_whole = around.size() == end || (around.size() > end && around[around.size() - end - 1] == '/');
    if (around.ends_with(begin) && is_whole) return end == name.size() ? std::string_view() : name.substr(end + 1);
  }
  return name;
}

}  // namespace

ValueScope::ValueScope(std::string_view name, std::span<const Value> values) {
  std::set<Graph*> seen;
  for (const Value& value : values) {
    if (!value.valid() || !seen.insert(&value.graph()).second) continue;
    const std::string_view rest = rest_of(name, value.graph().scope.str());
    if (!rest.empty()) scopes_.emplace_back(value.graph(), rest);
  }
}

}  // namespace paoding
