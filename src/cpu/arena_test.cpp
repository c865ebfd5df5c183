// SPDX-License-Identifier: Apache-2.0
#include "cpu/arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>

#include "tests/support/program_check.h"

namespace paoding {
namespace {

TEST(GrowingMemory, KeepsItsAddressAndWhatIsInIt) {
  if (has_address_limit()) GTEST_SKIP() << "NOT CHECKED: addresses are limited, and no more of them taken than needed";
  GrowingMemory memory(1000);
  std::byte* const address = memory.bytes();
  std::memset(address, 7, 1000);
  ASSERT_TRUE(memory.grow(50'000'000));
  EXPECT_EQ(memory.bytes(), address);
  EXPECT_EQ(address[999], std::byte{7});
  std::memset(address, 9, 50'000'000);
  EXPECT_GE(memory.size_bytes(), 50'000'000);
  EXPECT_TRUE(memory.grow(10));  // never shrinks
  EXPECT_GE(memory.size_bytes(), 50'000'000);
}

TEST(GrowingMemory, SaysWhenThereIsNoMore) {
  GrowingMemory memory(0);
  const std::int64_t before = memory.size_bytes();
  EXPECT_FALSE(memory.grow(std::int64_t{1} << 60));
  EXPECT_EQ(memory.size_bytes(), before);
}

TEST(GrowingMemory, IsRefusedWhereNoMachineHasSoMuch) {
  const std::int64_t wanted = 2 * machine_bytes();
  const std::string message = testing_program::message_of([&] { GrowingMemory memory(wanted); });
  EXPECT_NE(message.find("needs " + size_text(wanted)), std::string::npos) << message;
  EXPECT_NE(message.find(memory_left().substr(memory_left().find(" of "))), std::string::npos) << message;
}

TEST(TileMemory, IsOnePlaceForAllGroupsOfAThreadAndAnotherForEachThread) {
  char* const first = tile_memory(100);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 4096, 0u);
  EXPECT_EQ(tile_memory(1000), first);
  char* const grown = tile_memory(3'000'000);  // elsewhere, perhaps
  std::memset(grown, 1, 3'000'000);
  char* other = nullptr;
  std::thread([&] { other = tile_memory(100); }).join();
  EXPECT_EQ(tile_memory(1), grown);
  EXPECT_NE(other, grown);
}

}  // namespace
}  // namespace paoding
