// SPDX-License-Identifier: Apache-2.0
// Ends the arguments of a user's formula, composition or rule with an invalid value: one that takes more arguments than
// there are gets an error and does not read past the end.
#pragma once

#include <type_traits>
#include <vector>

namespace paoding {

/// Puts some of `none` into the memory after the list, which stays as long as it is.
template <class Each>
void follow_by_none(std::vector<Each>* list, Each none = {}) {
  static_assert(std::is_trivially_destructible_v<Each>);
  constexpr std::size_t kBehind = 16;
  const std::size_t count = list->size();
  list->resize(count + kBehind, none);
  list->resize(count);  // which leaves the memory as it is
}

}  // namespace paoding
