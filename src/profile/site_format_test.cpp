// SPDX-License-Identifier: Apache-2.0
// Sites as they are written and read: a group of more ops than a file may hold is read too.
#include "profile/site_format.h"

#include <gtest/gtest.h>

namespace paoding::profile {
namespace {

SiteInfo written_and_read(const SiteInfo& info) {
  BodyWriter body;
  append_site(body, info);
  BodyReader reader(body.bytes());
  SiteInfo read;
  EXPECT_TRUE(take_site(reader, &read));
  EXPECT_TRUE(reader.is_at_end());
  return read;
}

SiteInfo group_of(std::size_t members) {
  SiteInfo info;
  info.name = "group";
  for (std::size_t m = 0; m < members; ++m)
    info.members.push_back({"op" + std::to_string(m), static_cast<std::int64_t>(m)});
  return info;
}

TEST(SiteFormat, KeepsEveryMemberUpToItsLimit) {
  const SiteInfo read = written_and_read(group_of(1 << 16));
  ASSERT_EQ(read.members.size(), std::size_t{1} << 16);
  EXPECT_EQ(read.members.back().op, "op65535");
  EXPECT_EQ(read.members.back().bytes, 65535);
}

TEST(SiteFormat, KeepsShapesAndTheLaunch) {
  SiteInfo info{.name = "matmul", .kernel = "product_1", .kind = SpanKind::kernel};
  info.shapes = "bf16[8,64], bf16[64,16] -> bf16[8,16]";
  info.launch = {.grid = {264, 2, 1}, .threads = 384, .registers = 168, .shared_bytes = 213'000};
  const SiteInfo read = written_and_read(info);
  EXPECT_EQ(read.kernel, info.kernel);
  EXPECT_EQ(read.shapes, info.shapes);
  EXPECT_EQ(read.launch, info.launch);
  info.kernel.clear();
  info.shapes.clear();
  EXPECT_EQ(written_and_read(info).launch, info.launch);
  EXPECT_EQ(to_string(info.launch), "264x2x1 CTAs of 384 threads, 168 registers, 213000 bytes shared");
}

// A file may say anything of a launch, and sums of it must not overflow.
TEST(SiteFormat, RefusesALaunchThatNoGpuHas) {
  for (const LaunchShape& launch :
       {LaunchShape{.grid = {std::int64_t{1} << 31, 1, 1}}, LaunchShape{.grid = {1, 1 << 17, 1}},
        LaunchShape{.grid = {-3, -1, 1}}, LaunchShape{.grid = {1, 1, 1}, .threads = -1},
        LaunchShape{.grid = {1, 1, 1}, .shared_bytes = std::int64_t{1} << 40}}) {
    BodyWriter body;
    append_site(body, {.name = "matmul", .launch = launch});
    BodyReader reader(body.bytes());
    SiteInfo read;
    EXPECT_FALSE(take_site(reader, &read)) << to_string(launch);
  }
}

TEST(SiteFormat, JoinsMembersBeyondItsLimitInOneWithTheirBytes) {
  constexpr std::int64_t kMembers = 70'000;
  const SiteInfo read = written_and_read(group_of(kMembers));
  ASSERT_EQ(read.members.size(), std::size_t{1} << 16);
  EXPECT_EQ(read.members[65534].op, "op65534");
  EXPECT_EQ(read.members.back().op, "other ops");
  std::int64_t bytes = 0;
  for (const SiteInfo::Member& member : read.members) bytes += member.bytes;
  EXPECT_EQ(bytes, kMembers * (kMembers - 1) / 2);
}

}  // namespace
}  // namespace paoding::profile
