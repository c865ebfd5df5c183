// SPDX-License-Identifier: Apache-2.0
#include "base/hash128.h"

#include <gtest/gtest.h>

namespace paoding {
namespace {

TEST(Hash128, AgreesWithPublishedMurmur3Values) {
  // MurmurHash3_x64_128 with seed 0, as in Guava's and other implementations' tests.
  EXPECT_EQ(hash128(""), (Hash128{0, 0}));
  EXPECT_EQ(hash128("hello"), (Hash128{0xcbd8a7b341bd9b02ULL, 0x5b1e906a48ae1d19ULL}));
  EXPECT_EQ(hash128("The quick brown fox jumps over the lazy dog"),
            (Hash128{0xe34bbc7bbc071b6cULL, 0x7a433ca9c49a9347ULL}));
}

}  // namespace
}  // namespace paoding
