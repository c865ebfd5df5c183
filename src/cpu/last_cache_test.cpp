// SPDX-License-Identifier: Apache-2.0
#include "cpu/last_cache.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace paoding {
namespace {

bool any(int) { return true; }

// A processor with a first, a second and, where `shared` says with whom, a third cache of 32 MB.
void add_processor(const TemporaryFolder& folder, int number, const std::string& shared) {
  const std::string caches = "sys/devices/system/cpu/cpu" + std::to_string(number) + "/cache/index";
  const auto add = [&](int index, const char* level, const char* type, const char* size, const std::string& sharers) {
    const std::string cache = caches + std::to_string(index) + "/";
    folder.write(cache + "level", level);
    folder.write(cache + "type", type);
    folder.write(cache + "size", size);
    folder.write(cache + "shared_cpu_list", sharers);
  };
  add(0, "1", "Data", "32K", std::to_string(number));
  add(1, "1", "Instruction", "32K", std::to_string(number));
  add(2, "2", "Unified", "1024K", std::to_string(number));
  if (!shared.empty()) add(3, "3", "Unified", "32768K", shared);
}

TEST(LastCache, IsNothingWhereTheSystemSaysNothing) {
  const TemporaryFolder folder;
  EXPECT_EQ(last_cache_bytes(any, folder.path().string()), 0);
  EXPECT_GT(last_cache_bytes(), 0);
}

TEST(LastCache, CountsOnceWhatProcessorsShare) {
  const TemporaryFolder folder;
  for (int i = 0; i < 4; ++i) add_processor(folder, i, i < 2 ? "0-1" : "2-3");
  EXPECT_EQ(last_cache_bytes(any, folder.path().string()), 64 << 20);
}

TEST(LastCache, IsThatOfProcessorsInUse) {
  const TemporaryFolder folder;
  for (int i = 0; i < 4; ++i) add_processor(folder, i, i < 2 ? "0-1" : "2-3");
  EXPECT_EQ(last_cache_bytes([](int processor) { return processor == 3; }, folder.path().string()), 32 << 20);
}

TEST(LastCache, IsTheSecondWhereThereIsNoThird) {
  const TemporaryFolder folder;
  for (int i = 0; i < 2; ++i) add_processor(folder, i, "");
  EXPECT_EQ(last_cache_bytes(any, folder.path().string()), 2 << 20);
}

TEST(SecondCache, IsNoLargerThanTheLast) {
  EXPECT_GE(second_cache_bytes(), 0);
  EXPECT_LE(second_cache_bytes(), last_cache_bytes());
}

}  // namespace
}  // namespace paoding
