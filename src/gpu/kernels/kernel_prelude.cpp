// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/kernel_prelude.h"

#include <string>

#include "base/hash.h"
#include "cuda_text.h"

namespace paoding::gpu {

std::string_view kernel_prelude() {
  static const std::string text = std::string(k_prelude_elements_cu) + k_prelude_scalars_cu + k_prelude_sums_cu;
  return text;
}

std::uint64_t hash_of_source(std::string_view source) {
  const std::string_view prelude = kernel_prelude();
  static const std::uint64_t hash_of_prelude = hash_of_text(prelude);
  const std::size_t at = source.find(prelude);
  if (at == std::string_view::npos) return hash_of_text(source);
  return hash_of_text(source.substr(at + prelude.size()), hash_of_text(source.substr(0, at), hash_of_prelude));
}

}  // namespace paoding::gpu
