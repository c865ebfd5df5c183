// SPDX-License-Identifier: Apache-2.0
// What a formula, a composition or a rule of somebody else's is given: one that takes more than there is must be told
// so, and not read what happens to lie there.
#pragma once

#include <type_traits>
#include <vector>

namespace paoding {

/// Puts some of `none` into the memory behind the list, which stays as long as it is.
template <class Each>
void follow_by_none(std::vector<Each>* list, Each none = {}) {
  static_assert(std::is_trivially_destructible_v<Each>);
  constexpr std::size_t kBehind = 16;
  const std::size_t count = list->size();
  list->resize(count + kBehind, none);
  list->resize(count);  // which leaves the memory as it is
}

}  // namespace paoding
