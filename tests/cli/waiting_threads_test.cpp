// SPDX-License-Identifier: Apache-2.0
// How long the threads of a program that links the library wait before they sleep, as the OpenMP library tells it, and
// how many there are.
#include "tests/cli/cli_run.h"

namespace paoding::cli_run {
namespace {

class WaitingThreads : public Cli {
 protected:
  // OpenMP's settings, as it prints them when it is loaded; its default spin count is 300000.
  std::string told(const std::string& environment) const {
    const Ran ran = shell("env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT OMP_DISPLAY_ENV=verbose " + environment + " " +
                          program().string() + " --help");
    EXPECT_EQ(ran.code, 0) << ran.err;
    return ran.err;
  }
};

#if !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(WaitingThreads, SpinShortlyUnlessTheUserSaysHowLong) {
  EXPECT_TRUE(has(told(""), "GOMP_SPINCOUNT = '2000'")) << told("");
  EXPECT_TRUE(has(told("GOMP_SPINCOUNT=77"), "GOMP_SPINCOUNT = '77'"));
  EXPECT_TRUE(has(told("OMP_WAIT_POLICY=passive"), "GOMP_SPINCOUNT = '0'"));
}
#endif

// An affinity of one core, as `taskset -c 0` gives it, is one thread.
TEST_F(WaitingThreads, AreNoMoreThanTheCoresThatTheProcessMayRunOn) {
  const Ran ran = shell("env -u OMP_NUM_THREADS taskset -c 0 " + program().string() + " doctor");
  EXPECT_TRUE(has(ran.out, ", 1 threads for kernels")) << ran.out;
}

}  // namespace
}  // namespace paoding::cli_run
