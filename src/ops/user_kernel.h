// SPDX-License-Identifier: Apache-2.0
// Registers a kernel of a user's own where CUDA is in the build: user_kernel_gpu.cpp.
#pragma once

#include "paoding/cuda_op.h"

namespace paoding {

/// `kernel` is complete, and of an op that kernels run.
void add_user_kernel(const OpDef& op, CudaKernel kernel);

}  // namespace paoding
