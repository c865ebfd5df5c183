// SPDX-License-Identifier: Apache-2.0
// Shadows: parameters that hold another in 16 bits, for products. The pass mixed_precision puts them into a graph by
// these names; Parameters keep them beside the parameters, where no name has them.
#pragma once

#include <string>
#include <string_view>

#include "paoding/types.h"

namespace paoding {

inline constexpr std::string_view kShadowPrefix = "shadow/";

/// "shadow/bf16/encoder/w" of "encoder/w".
inline std::string shadow_name(std::string_view parameter, DType dtype) {
  return std::string(kShadowPrefix) + std::string(to_string(dtype)) + "/" + std::string(parameter);
}

/// "encoder/w" of "shadow/bf16/encoder/w".
inline std::string shadowed(std::string_view shadow) {
  return std::string(shadow.substr(shadow.find('/', kShadowPrefix.size()) + 1));
}

}  // namespace paoding
