// SPDX-License-Identifier: Apache-2.0
// The first step of products with weights whose channels do not lie side by side.
#pragma once

#include "gpu/codegen/text_kernel.h"
#include "ops/conv/conv_shape.h"
#include "ops/conv/gpu/conv_epilogue.h"

namespace paoding {

/// Puts the weights of a convolution, or of a gradient for its image, into the workspace: as [group, column, tap,
/// channel] densely, columns being the channels made and channels those read.
gpu::TextLaunch plan_weight_pack(const KernelCall& call);

/// KernelImplementation::transposed of kernels that read weights as [o, tap, channel].
std::uint32_t transposed_weights(const KernelCall& call);

/// The weights [column, channel, h, w] of all groups as they lie in the workspace.
Layout packed_weights(const ConvShape& shape);

/// The same with columns and channels as a convolution forward has them, whatever the call is.
gpu::TextLaunch plan_forward_weight_pack(const KernelCall& call, const Epilogue* epilogue = nullptr);

}  // namespace paoding
