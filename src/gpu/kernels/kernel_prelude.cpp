// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/kernel_prelude.h"

#include <string>

#include "cuda_text.h"

namespace paoding::gpu {

std::string_view kernel_prelude() {
  static const std::string text = std::string(k_prelude_elements_cu) + k_prelude_scalars_cu + k_prelude_sums_cu;
  return text;
}

}  // namespace paoding::gpu
