// SPDX-License-Identifier: Apache-2.0
// Tests of the GPU's runtime on a GPU that is not there. The library is told where its driver is before it looks.
#include <gtest/gtest.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  setenv("PAODING_CUDA_PATH", PAODING_PRETEND_FOLDER, 1);
  setenv("PAODING_CACHE_DIR", PAODING_PRETEND_FOLDER "/kernels", 1);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
