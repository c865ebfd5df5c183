// SPDX-License-Identifier: Apache-2.0
#include "ops/all_kernels.h"

namespace paoding {

void register_built_in_kernels() {
  register_matmul_cpu();
#if PAODING_WITH_CUDA
  register_matmul_gpu();
  register_index_gpu();
#endif
}

}  // namespace paoding
