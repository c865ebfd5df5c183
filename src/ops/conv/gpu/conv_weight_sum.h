// SPDX-License-Identifier: Apache-2.0
// The last step of every kernel for gradients for weights.
#pragma once

#include "gpu/codegen/text_kernel.h"

namespace paoding {

/// Adds up the parts of a gradient for weights, [parts, o, tap, channel] of f32 in the workspace, each followed by that
/// for the bias [o] where it is wanted, in their order, and puts the sums where weights and bias lie. A tap may have
/// more channels there than weights have (0: as many), and something else may lie in front.
gpu::TextLaunch plan_weight_sum(const KernelCall& call, std::int64_t parts, std::int64_t channels_of_tap = 0,
                                std::int64_t first_byte = 0);

}  // namespace paoding
