// SPDX-License-Identifier: Apache-2.0
// Tells whether data has changed, without keeping a copy of it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace paoding::data {

/// 128 bits of the parts that were added and their order: other bytes, or the same parted otherwise, have others. At
/// the speed of memory; no protection from somebody who wants two to be alike. One thread at a time.
class ContentHash {
 public:
  void add(std::string_view part);
  /// 32 hexadecimal digits.
  std::string text() const;

 private:
  std::array<std::uint64_t, 2> state_{};
};

}  // namespace paoding::data
