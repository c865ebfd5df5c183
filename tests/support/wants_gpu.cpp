// SPDX-License-Identifier: Apache-2.0
// With PAODING_WANTS_GPU=FILE, the names of tests that asked for the CUDA driver are added to FILE, a line each,
// whether there is a GPU or not. tools/run_tests.sh compares them with tests/gpu_tests.txt, the list that
// tools/gpu_tests.sh runs on a GPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "gpu/driver/driver_use.h"

namespace paoding::gpu {
namespace {

class WantsGpu : public testing::EmptyTestEventListener {
 public:
  explicit WantsGpu(const char* path) : path_(path) {}

 private:
  // The names of tests may depend on the driver, which is then asked before any of them; a suite's use of it counts as
  // its first test's.
  void OnTestProgramStart(const testing::UnitTest&) override { take_driver_use(); }
  void OnTestEnd(const testing::TestInfo& test) override {
    if (take_driver_use()) std::ofstream(path_, std::ios::app) << test.test_suite_name() << '.' << test.name() << '\n';
  }

  const char* path_;
};

[[maybe_unused]] const bool is_listening = [] {
  const char* const path = std::getenv("PAODING_WANTS_GPU");
  if (path == nullptr) return false;
  testing::UnitTest::GetInstance()->listeners().Append(new WantsGpu(path));
  return true;
}();

}  // namespace
}  // namespace paoding::gpu
