// SPDX-License-Identifier: Apache-2.0
// Tests of the GPU's runtime on a GPU that is not there. The library is told where its driver is before it looks.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <system_error>

namespace {

// Kernels stay compiled from run to run; a test that times products begins without those that an earlier run has timed.
void forget_timed_products(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator(folder, ignored)) {
    if (file.path().extension() == ".plan") std::filesystem::remove(file.path(), ignored);
  }
}

}  // namespace

int main(int argc, char** argv) {
  setenv("PAODING_CUDA_PATH", PAODING_PRETEND_FOLDER, 1);
  setenv("PAODING_CACHE_DIR", PAODING_PRETEND_FOLDER "/kernels", 1);
  ::testing::InitGoogleTest(&argc, argv);
  if (!testing::GTEST_FLAG(list_tests)) forget_timed_products(PAODING_PRETEND_FOLDER "/kernels");
  return RUN_ALL_TESTS();
}
