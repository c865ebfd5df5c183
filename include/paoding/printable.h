// SPDX-License-Identifier: Apache-2.0
// Text from files, made fit for a terminal: foreign bytes can only be read there, never control it.
#pragma once

#include <string>
#include <string_view>

namespace paoding {

/// `text` with every unreadable byte (control characters, bytes that are not UTF-8) written as \x1b; only those in
/// `kept` stay.
std::string printable(std::string_view text, std::string_view kept = "\n\t");

}  // namespace paoding
