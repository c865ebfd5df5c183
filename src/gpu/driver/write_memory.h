// SPDX-License-Identifier: Apache-2.0
// Host memory copied to a GPU, and there for every stream.
#pragma once

#include <cstddef>

#include "gpu/driver/driver.h"

namespace paoding::gpu {

/// Copies bytes of the host to memory of the current GPU. When it returns they are there. cuMemcpyHtoD alone returns
/// when it has taken up to 64 KiB of memory that is not page-locked: a busy GPU stores them later, and streams that do
/// not wait for the default stream, as ours, may read the old bytes.
void write_memory(CUdeviceptr to, const void* from, std::size_t bytes);

}  // namespace paoding::gpu
