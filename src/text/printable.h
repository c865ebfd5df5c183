// SPDX-License-Identifier: Apache-2.0
// Which bytes printable() does not let through.
#pragma once

#include <cstddef>
#include <string_view>

#include "paoding/printable.h"

namespace paoding {

/// Bytes at `at` that are no text to read: 1 for the control characters below U+0020, for U+007F and for a byte that is
/// not UTF-8; 2 for U+0080 .. U+009F, which terminals obey too; 0 for everything else.
std::size_t unreadable_length(std::string_view text, std::size_t at);

}  // namespace paoding
