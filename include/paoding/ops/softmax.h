// SPDX-License-Identifier: Apache-2.0
// Softmax and its logarithm.
#pragma once

#include <cstdint>

#include "paoding/graph.h"

namespace paoding {

/// e^a over the sum of e^a along `axis`, which is negative to count from the end; the largest element of a row is taken
/// out first, so nothing overflows. Gradient y (g - sum(g y)). Floats of rank at least 1; f16 and bf16 in f32 inside.
Value softmax(const Value& a, std::int64_t axis = -1);
/// log(softmax(a)), without taking the logarithm of a number that underflowed. Gradient g - e^y sum(g). As softmax.
Value log_softmax(const Value& a, std::int64_t axis = -1);

}  // namespace paoding
