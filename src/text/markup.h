// SPDX-License-Identifier: Apache-2.0
// Text inside of SVG and HTML.
#pragma once

#include <string>
#include <string_view>

namespace paoding {

/// What XML and HTML let stand in text and in quoted attributes; a byte that is no text of its own becomes a question
/// mark, an end of a line only where lines are not kept.
std::string markup_text(std::string_view text, bool keeps_lines = false);

}  // namespace paoding
