// SPDX-License-Identifier: Apache-2.0
// Checks in the emulation when the guard in front of a run's writes closes, and that its report to the host is right.
#include "gpu/kernels/commit_guard.h"

#include <gtest/gtest.h>

#include "gpu/driver/nvrtc.h"
#include "tests/gpu/cuda_emulation/emulated_kernels.h"

namespace paoding::gpu {
namespace {

constexpr std::uint64_t kNone = ~std::uint64_t{0};

struct Gate {
  explicit Gate(std::int64_t fault_words) : text(plan_commit_guard(fault_words)), kernels({&text}) {
    words.assign(static_cast<std::size_t>(1 + fault_words), kNone);
    words[0] = 0;
    report.assign(static_cast<std::size_t>(2 + fault_words), 0);
  }
  void run() {
    unsigned *at_failed = &failed, *at_cancelled = &cancelled;
    std::uint64_t *at_words = words.data(), *at_report = report.data();
    LaunchScratch scratch;
    std::vector<std::uint64_t> sizes = text.sizes;
    void* arguments[] = {&at_failed, &at_cancelled, &at_words, &at_report, &scratch, sizes.data()};
    const unsigned order = 0;
    const Launch start = kernels.find(text.entry);
    ASSERT_NE(start, nullptr) << kernels.log();
    ASSERT_EQ(start(arguments, 1, text.block, &order), 0);
  }
  TextLaunch text;
  EmulatedKernels kernels;
  unsigned failed = 0, cancelled = 0;
  std::vector<std::uint64_t> words, report;
};

TEST(CommitGuardKernel, StaysOpenWhileNothingIsFound) {
  Gate guard(600);
  for (std::uint64_t run = 1; run <= 3; ++run) {
    guard.run();
    EXPECT_EQ(guard.words[0], run);
  }
  EXPECT_EQ(guard.failed, 0u);
  EXPECT_EQ(guard.report, std::vector<std::uint64_t>(602, 0));
}

TEST(CommitGuardKernel, TellsWhichRunLeftAFaultAndWhichWasTheFirstAfterIt) {
  Gate guard(600);
  guard.run();
  guard.words[1 + 599] = 7;
  guard.run();
  EXPECT_EQ(guard.failed, 1u);
  guard.words[1] = 5;  // of a run after it
  guard.run();
  guard.run();
  EXPECT_EQ(guard.report[0], 2u);
  EXPECT_EQ(guard.report[1], 3u);
  EXPECT_EQ(guard.report[2], kNone);
  EXPECT_EQ(guard.report[2 + 599], 7u);
}

TEST(CommitGuardKernel, ClosesWhenTheRunIsCalledOff) {
  Gate guard(0);
  guard.cancelled = 1;
  guard.run();
  EXPECT_EQ(guard.failed, 1u);
  EXPECT_EQ(guard.report, (std::vector<std::uint64_t>{1, 0}));
}

TEST(CommitGuardKernel, Compiles) {
  if (nvrtc() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << nvrtc_problem();
  for (const char* arch : {"sm_80", "sm_90a", "sm_100a"}) {
    EXPECT_FALSE(compile(plan_commit_guard(4).source, "commit_guard.cu", arch).empty()) << arch;
    EXPECT_FALSE(compile(plan_cancellation_poll().source, "cancellation_poll.cu", arch).empty()) << arch;
  }
}

}  // namespace
}  // namespace paoding::gpu
