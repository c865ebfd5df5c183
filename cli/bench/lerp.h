// SPDX-License-Identifier: Apache-2.0
// The interpolation of section L in every variant: `paoding bench lerp_grad`.
#pragma once

#include "cli/bench/case.h"

namespace paoding::cli::bench {

struct LerpShapes {
  int number;
  Shape x, y, w, out;
  DType dtype;
};
enum class LerpResult { both, dx, dy, forward };

/// Both gradients, one of them, and the forward pass; w a scalar, one axis or full; f32, f64 and bf16.
Cases lerp_variants(bool all);

}  // namespace paoding::cli::bench
