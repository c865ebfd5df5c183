// SPDX-License-Identifier: Apache-2.0
#include "gpu/driver/write_memory.h"

namespace paoding::gpu {

void write_memory(CUdeviceptr to, const void* from, std::size_t bytes) {
  PD_CUDA(required_driver().cuMemcpyHtoD(to, from, bytes));
  PD_CUDA(required_driver().cuStreamSynchronize(nullptr));
}

}  // namespace paoding::gpu
