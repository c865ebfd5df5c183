// SPDX-License-Identifier: Apache-2.0
// Memory on the host that grows where it is: programs of many shapes share it by address, and so do a thread's groups.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/memory.h"

namespace paoding {

/// Addresses for `most` bytes, of which the first `size_bytes()` are memory. Growing moves nothing, and pages that
/// nobody has touched take none. Error (device) without memory for `bytes`.
class GrowingMemory {
 public:
  explicit GrowingMemory(std::int64_t bytes, std::int64_t most = machine_bytes());
  ~GrowingMemory();
  GrowingMemory(const GrowingMemory&) = delete;
  GrowingMemory& operator=(const GrowingMemory&) = delete;

  std::byte* bytes() const { return address_; }
  std::int64_t size_bytes() const { return size_; }
  /// False when it cannot: then it is as before. Where addresses are limited (ulimit -v) that is soon: who needs more
  /// makes another.
  bool grow(std::int64_t bytes);

 private:
  std::byte* address_ = nullptr;
  std::int64_t size_ = 0, reserved_ = 0;
};

/// Memory of the calling thread for the registers of one group's tiles, at least `bytes`: the same for every group that
/// the thread runs, so that it stays in the cache, until one needs more. Its contents are lost then. 4096-byte aligned.
/// Error (device) when there is none.
char* tile_memory(std::int64_t bytes);

/// Starts the threads that regions of the calling thread have, with so much tile memory each, unless they have it: so a
/// run's memory is there before it begins. Error (device) when it is not to be had.
void reserve_tiles(std::int64_t bytes);

}  // namespace paoding
