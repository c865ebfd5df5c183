// SPDX-License-Identifier: Apache-2.0
// Normalisation of groups of channels.
#pragma once

#include <cstdint>

#include "paoding/graph.h"

namespace paoding {

/// layer_norm of each group of channels of each image by itself: x [N, C, ..], `groups` of C / groups channels, gamma
/// and beta [C], 1 and 0 where absent (Wu, He 2018). One group is a layer norm over all but N, C groups an instance
/// norm. Floats. Error (shape) when something does not fit, (argument) unless groups divide C.
Value group_norm(const Value& x, std::int64_t groups, const Value& gamma = {}, const Value& beta = {},
                 double epsilon = 1e-5);

}  // namespace paoding
