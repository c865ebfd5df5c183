// SPDX-License-Identifier: Apache-2.0
#include "base/huge_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "paoding/tensor.h"

namespace paoding {
namespace {

// The bytes from `begin` to `end` that huge pages were asked for, as the system itself reports.
std::size_t asked_between(std::uintptr_t begin, std::uintptr_t end) {
  std::ifstream maps("/proc/self/smaps");
  std::uintptr_t first = 0, last = 0;
  std::size_t bytes = 0;
  for (std::string line; std::getline(maps, line);) {
    char dash = 0;
    std::uintptr_t from = 0, to = 0;
    std::istringstream words(line);
    if (words >> std::hex >> from >> dash >> to && dash == '-') {
      first = from, last = to;
    } else if (line.starts_with("VmFlags:") && line.find(" hg") != std::string::npos) {
      const std::uintptr_t low = std::max(first, begin), high = std::min(last, end);
      if (low < high) bytes += high - low;
    }
  }
  return bytes;
}

TEST(HugePages, AreAskedForWhereWholeOnesLie) {
  constexpr std::size_t kBytes = 5 * kHugePage;
  void* made = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(made, MAP_FAILED);
  const auto begin = (reinterpret_cast<std::uintptr_t>(made) + kHugePage - 1) / kHugePage * kHugePage;
  const auto within = [&](std::uintptr_t from, std::size_t bytes) {
    prefer_huge_pages(reinterpret_cast<void*>(from), bytes);
    return asked_between(reinterpret_cast<std::uintptr_t>(made), reinterpret_cast<std::uintptr_t>(made) + kBytes);
  };
  EXPECT_EQ(within(begin + 4096, kHugePage), 0U);
  if (within(begin, kHugePage) == 0) GTEST_SKIP() << "NOT CHECKED: this system has no huge pages";
  EXPECT_EQ(within(begin + 4096, 3 * kHugePage), 3 * kHugePage) << "one as before, and the two that lie within";
  munmap(made, kBytes);
}

TEST(HugePages, LargeTensorsBeginOnOne) {
  const Tensor large(DType::f32, Shape{1 << 21}), small(DType::f32, Shape{1 << 10});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large.bytes()) % kHugePage, 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(small.bytes()) % 64, 0U);
}

}  // namespace
}  // namespace paoding
