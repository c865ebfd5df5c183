// SPDX-License-Identifier: Apache-2.0
// Pages of 2 MB for large memory: reading it from end to end then asks a hundredth as often where a page lies, which on
// virtual machines takes as long as the reading.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace paoding {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// Smaller memory is not worth it.
inline bool is_worth_huge_pages(std::size_t bytes) { return bytes >= 2 * kHugePage; }

/// Asks for huge pages where whole ones lie between `begin` and `begin + bytes`: it takes no more memory than before.
/// The system may decline, and nothing changes then.
inline void prefer_huge_pages(void* begin, std::size_t bytes) {
  const auto from = reinterpret_cast<std::uintptr_t>(begin), to = from + bytes;
  const std::uintptr_t first = (from + kHugePage - 1) / kHugePage * kHugePage, last = to / kHugePage * kHugePage;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

/// Room for so many values, on huge pages where it is large: the first touch of each small one costs as much as
/// filling it does.
template <class T>
void reserve_large(std::vector<T>& values, std::size_t count) {
  values.reserve(count);
  if (is_worth_huge_pages(count * sizeof(T))) prefer_huge_pages(values.data(), count * sizeof(T));
}

}  // namespace paoding
