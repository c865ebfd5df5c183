// SPDX-License-Identifier: Apache-2.0
// A small convolutional network of any size as a case: rows of section B, and `paoding bench conv_net`.
#pragma once

#include "cli/bench/case.h"

namespace paoding::cli::bench {

struct ConvNetSize {
  std::int64_t batch = 128, image_channels = 1, size = 28, classes = 10;
  std::vector<std::int64_t> channels = {16, 32, 32};
};

Case conv_net_case(const ConvNetSize& size, bool is_training, DType dtype, bool tf32);

}  // namespace paoding::cli::bench
