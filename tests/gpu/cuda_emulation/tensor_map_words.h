// SPDX-License-Identifier: Apache-2.0
// The description that the emulation's TMA takes in place of a CUtensorMap, and the results of a launch of it.
#pragma once

#include <cstdint>

namespace emulation {

/// It has a CUtensorMap's size. Two numbers are of columns and of rows.
struct alignas(64) TensorMapWords {
  const char* base;
  std::uint32_t element_bytes;
  std::int32_t rank;  // less than 0: exact f32
  std::uint64_t extents[4], strides[3];
  std::uint32_t tile_rows, tile_columns;  // columns: of a part of an image, or 0
  std::uint16_t has_windows, is_plain;
  std::int32_t first[2], step[2], count[2];
};
static_assert(sizeof(TensorMapWords) == 128);

/// Where the memory lies that CTAs have in common, when their plain accesses are looked at (plain_accesses.h).
constexpr std::uintptr_t kCommonMemory = 0x600000000000, kCommonBytes = std::uintptr_t{1} << 40;

enum Ended { kDone = 0, kDeadlock = 1, kReadUnwritten = 2, kIsGone = 3, kIsUnordered = 4 };
inline const char* told_of(int ended) {
  return ended == kDone            ? "done"
         : ended == kDeadlock      ? "CTAs wait for each other in vain"
         : ended == kReadUnwritten ? "a CTA reads of others what none has written"
         : ended == kIsUnordered   ? "a CTA reads what another has stored, and nothing orders the two"
                                   : "a CTA has ended when something is sent to it or copied from it";
}

}  // namespace emulation
