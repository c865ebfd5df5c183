// SPDX-License-Identifier: Apache-2.0
// Memory on the host that grows where it is: programs of many shapes share it by address.
#pragma once

#include <cstddef>
#include <cstdint>

namespace paoding {

/// Addresses for as much as the machine has, of which the first `size_bytes()` are memory. Growing moves nothing, and
/// pages that nobody has touched take none.
class GrowingMemory {
 public:
  explicit GrowingMemory(std::int64_t bytes);
  ~GrowingMemory();
  GrowingMemory(const GrowingMemory&) = delete;
  GrowingMemory& operator=(const GrowingMemory&) = delete;

  std::byte* bytes() const { return address_; }
  std::int64_t size_bytes() const { return size_; }
  /// False when it cannot: then it is as before.
  bool grow(std::int64_t bytes);

 private:
  std::byte* address_ = nullptr;
  std::int64_t size_ = 0, reserved_ = 0;
};

}  // namespace paoding
