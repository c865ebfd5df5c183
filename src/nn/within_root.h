// SPDX-License-Identifier: Apache-2.0
// The initial values of weights that sum over `width` inputs.
#pragma once

#include <algorithm>
#include <cmath>

#include "paoding/nn.h"

namespace paoding::nn {

/// Uniform within 1 / sqrt(width).
inline Initializer within_root(std::int64_t width) {
  const double bound = 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(width, 1)));
  return uniform(-bound, bound);
}

}  // namespace paoding::nn
