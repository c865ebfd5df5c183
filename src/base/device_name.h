// SPDX-License-Identifier: Apache-2.0
// The device that a text names.
#pragma once

#include <optional>
#include <string_view>

#include "paoding/types.h"

namespace paoding {

/// "cpu", "cuda" (the first GPU) or "cuda:N": reads back the text of to_string(Device). nullopt for others.
std::optional<Device> device_named(std::string_view text);

}  // namespace paoding
