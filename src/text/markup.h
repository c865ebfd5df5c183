// SPDX-License-Identifier: Apache-2.0
// Text inside of SVG and HTML.
#pragma once

#include <string>
#include <string_view>

namespace paoding {

/// `text` with the characters escaped that XML and HTML give a meaning, also inside quoted attributes. A control
/// character becomes a question mark; with `keeps_lines` line ends stay.
std::string markup_text(std::string_view text, bool keeps_lines = false);

}  // namespace paoding
