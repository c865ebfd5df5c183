// SPDX-License-Identifier: Apache-2.0
// Text from files, made fit for a terminal: what is foreign can say nothing to it but what is read.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace paoding {

/// Bytes at `at` that are no text to read: 1 for the control characters below U+0020, for U+007F and for a byte that is
/// not UTF-8; 2 for U+0080 .. U+009F, which terminals obey too; 0 for everything else.
std::size_t unreadable_length(std::string_view text, std::size_t at);

/// `text` with every unreadable byte written as \x1b; only those in `kept` stay.
std::string printable(std::string_view text, std::string_view kept = "\n\t");

}  // namespace paoding
