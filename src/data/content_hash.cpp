// SPDX-License-Identifier: Apache-2.0
#include "paoding/data/content_hash.h"

#include <fmt/format.h>

#include "base/hash128.h"

namespace paoding::data {

// The hash of a part has its length in it, and the next state that of the state before.
void ContentHash::add(std::string_view part) {
  const std::array<std::uint64_t, 2> its = hash128(part);
  const std::array<std::uint64_t, 4> both = {state_[0], state_[1], its[0], its[1]};
  state_ = hash128({reinterpret_cast<const char*>(both.data()), sizeof(both)});
}

std::string ContentHash::text() const { return fmt::format("{:016x}{:016x}", state_[0], state_[1]); }

}  // namespace paoding::data
