// SPDX-License-Identifier: Apache-2.0
// Which device is the best one here.
#include "paoding/error.h"
#include "paoding/types.h"

#if PAODING_WITH_CUDA
#include "gpu/driver/driver.h"
#include "gpu/driver/nvrtc.h"
#include "gpu/libraries/cublaslt.h"
#endif

namespace paoding {

Device Device::best() {
#if PAODING_WITH_CUDA
  // A GPU without the compiler or the matrix library would only fail later. They are looked for last: where there is no
  // GPU their 100 MB of addresses and more stay free.
  if (gpu::GpuDevice::count() > 0 && gpu::nvrtc() != nullptr && gpu::cublaslt() != nullptr) {
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
