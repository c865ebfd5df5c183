// SPDX-License-Identifier: Apache-2.0
#include "ops/all_kernels.h"
#include "ops/collective/ranks_kernel.h"

namespace paoding {

void register_collectives_gpu() { register_ranks_kernels(DeviceKind::cuda); }

}  // namespace paoding
