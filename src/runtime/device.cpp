// SPDX-License-Identifier: Apache-2.0
// Which device is the best one here.
#include "paoding/error.h"
#include "paoding/types.h"

#if PAODING_WITH_CUDA
#include "gpu/cublaslt.h"
#include "gpu/driver.h"
#include "gpu/nvrtc.h"
#endif

namespace paoding {

Device Device::best() {
#if PAODING_WITH_CUDA
  // A GPU without the compiler or the matrix library would only fail later.
  const bool has_libraries = gpu::nvrtc() != nullptr && gpu::cublaslt() != nullptr;
  if (gpu::GpuDevice::count() > 0 && has_libraries) {
    try {
      gpu::GpuDevice::get(0);
      return cuda(0);
    } catch (const Error&) {  // there, but not to be used (taken by another process, too old)
    }
  }
#endif
  return cpu();
}

}  // namespace paoding
