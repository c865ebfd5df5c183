// SPDX-License-Identifier: Apache-2.0
// Products of matrices.
#pragma once

#include "paoding/graph.h"

namespace paoding {

/// Product of matrices in the last two axes; the axes before them broadcast. a [.., M, K], b [.., K, N] give
/// [.., M, N]; `transpose_a` means a is [.., K, M], `transpose_b` that b is [.., N, K]. Floats of one dtype after
/// promotion, rank at least 2; f16 and bf16 accumulate in f32.
Value matmul(const Value& a, const Value& b, bool transpose_a = false, bool transpose_b = false);

}  // namespace paoding
