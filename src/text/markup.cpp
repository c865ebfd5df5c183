// SPDX-License-Identifier: Apache-2.0
#include "text/markup.h"

namespace paoding {

std::string markup_text(std::string_view text, bool keeps_lines) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 && !(keeps_lines && c == '\n') ? '?' : c;
    }
  }
  return out;
}

}  // namespace paoding
