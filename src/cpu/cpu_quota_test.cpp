// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_quota.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace paoding {
namespace {

TEST(CpuQuota, NoControlGroupIsNoLimit) {
  const TemporaryFolder folder;
  EXPECT_EQ(cpu_quota(folder.path().string()), 0);
}

TEST(CpuQuota, TheContainersOwnGroupCounts) {
  const TemporaryFolder folder;
  folder.write("proc/self/cgroup", "0::/");
  folder.write("sys/fs/cgroup/cpu.max", "200000 100000");
  EXPECT_EQ(cpu_quota(folder.path().string()), 2);
  folder.write("sys/fs/cgroup/cpu.max", "max 100000");
  EXPECT_EQ(cpu_quota(folder.path().string()), 0);
}

TEST(CpuQuota, TheSmallestOfTheGroupsAroundCounts) {
  const TemporaryFolder folder;
  folder.write("proc/self/cgroup", "0::/user/session");
  folder.write("sys/fs/cgroup/user/session/cpu.max", "800000 100000");
  folder.write("sys/fs/cgroup/user/cpu.max", "350000 100000");
  EXPECT_EQ(cpu_quota(folder.path().string()), 3) << "3.5 processors keep 3 threads busy";
  folder.write("sys/fs/cgroup/user/session/cpu.max", "50000 100000");
  EXPECT_EQ(cpu_quota(folder.path().string()), 1);
}

TEST(CpuQuota, TheFirstVersionOfControlGroupsCounts) {
  for (const char* controllers : {"cpu", "cpu,cpuacct"}) {
    const TemporaryFolder folder;
    const std::string box = std::string("sys/fs/cgroup/") + controllers + "/box/";
    folder.write("proc/self/cgroup", std::string("9:memory:/a\n4:") + controllers + ":/box\n0::/");
    folder.write(box + "cpu.cfs_quota_us", "400000");
    folder.write(box + "cpu.cfs_period_us", "100000");
    EXPECT_EQ(cpu_quota(folder.path().string()), 4) << controllers;
    folder.write(box + "cpu.cfs_quota_us", "-1");
    EXPECT_EQ(cpu_quota(folder.path().string()), 0) << controllers;
  }
}

}  // namespace
}  // namespace paoding
