// SPDX-License-Identifier: Apache-2.0
#include "base/target.h"

#include <gtest/gtest.h>

#include "paoding/error.h"

namespace paoding {
namespace {

TEST(Target, CompilesForItsOwnInstructionsWhereTheChipHasSome) {
  EXPECT_EQ(named_target("h200").arch(), "sm_90a");
  EXPECT_EQ(named_target("b200").arch(), "sm_100a");
  EXPECT_EQ(named_target("a100").arch(), "sm_80");
  EXPECT_EQ(named_target("l40s").arch(), "sm_89");
  EXPECT_EQ(arch_name(8, 6), "sm_86");
  EXPECT_EQ(arch_name(12, 0), "sm_120");
}

TEST(Target, UnknownNameIsAnErrorThatListsTheKnownOnes) {
  try {
    named_target("h201");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::argument);
    for (const char* name : {"h201", "a100", "h200", "avx2"}) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
}

TEST(Target, DescribedGpuHasTheRatesOfTheNamedOneThatItIs) {
  const Target h200 = described_gpu("NVIDIA H200", 9, 0, 120, 1e6);
  EXPECT_EQ(h200.name, "NVIDIA H200");
  EXPECT_EQ(h200.sm_count, 120);
  EXPECT_EQ(h200.read_bytes_per_us, named_target("h200").read_bytes_per_us);
  const Target other = described_gpu("NVIDIA H200X", 9, 0, 120, 1e6);
  EXPECT_LT(other.read_bytes_per_us, 1e6);
  EXPECT_EQ(described_gpu("NVIDIA H200", 8, 0, 120, 1e6).read_bytes_per_us, other.read_bytes_per_us);
}

// Measured there: 4.6 TB/s read, copies at 3.95 and triads at 4.15 TB/s of bytes read and written.
TEST(Target, StreamsOfAnH200TakeTheMeasuredTimes) {
  const Target& h200 = named_target("h200");
  const double gigabyte = 1e9;
  EXPECT_NEAR(gigabyte / h200.stream_us(gigabyte, 0), 4.6e6, 0.01e6);
  EXPECT_NEAR(2 * gigabyte / h200.stream_us(gigabyte, gigabyte), 3.95e6, 0.03e6);
  EXPECT_NEAR(3 * gigabyte / h200.stream_us(2 * gigabyte, gigabyte), 4.15e6, 0.03e6);
}

TEST(Target, EveryNamedGpuSaysWhatTheRulesRead) {
  for (const Target& target : named_targets()) {
    SCOPED_TRACE(target.name);
    EXPECT_EQ(&named_target(target.name), &target);
    if (!target.is_gpu()) continue;
    EXPECT_GT(target.sm_count, 0);
    EXPECT_GE(target.shared_bytes, 48 << 10);
    EXPECT_GT(target.in_flight_bytes, 1 << 10);
    EXPECT_GT(target.cached_bytes_per_us, target.read_bytes_per_us);
    EXPECT_GT(target.read_bytes_per_us, target.write_bytes_per_us);
    EXPECT_GT(target.version_of("cublaslt"), 0);
    EXPECT_EQ(target.version_of("nothing"), 0);
  }
}

}  // namespace
}  // namespace paoding
