// SPDX-License-Identifier: Apache-2.0
// Memory on the host that grows where it is: programs of many shapes share it by address, and so do a thread's groups.
#pragma once

#include <cstddef>
#include <cstdint>

namespace paoding {

/// Addresses for `most` bytes, of which the first `size_bytes()` are memory. Growing moves nothing, and pages that
/// nobody has touched take none.
class GrowingMemory {
 public:
  explicit GrowingMemory(std::int64_t bytes, std::int64_t most = machine_bytes());
  ~GrowingMemory();
  GrowingMemory(const GrowingMemory&) = delete;
  GrowingMemory& operator=(const GrowingMemory&) = delete;

  std::byte* bytes() const { return address_; }
  std::int64_t size_bytes() const { return size_; }
  /// False when it cannot: then it is as before.
  bool grow(std::int64_t bytes);

 private:
  static std::int64_t machine_bytes();
  std::byte* address_ = nullptr;
  std::int64_t size_ = 0, reserved_ = 0;
};

/// What tile_memory() can be at most.
inline constexpr std::int64_t kMostTileBytes = std::int64_t{1} << 34;

/// Memory of the calling thread for the registers of one group's tiles, at least `bytes`, at most kMostTileBytes: the
/// same for every group that the thread runs, so that it stays in the cache. It never moves; 4096-byte aligned.
char* tile_memory(std::int64_t bytes);

}  // namespace paoding
