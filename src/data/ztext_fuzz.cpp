// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: whatever the three files of a testament hold, they give verses, or Error (file). The input begins
// with the sizes of .bzs and .bzv in two bytes each; .bzz is the rest.
#include <cstdint>
#include <string>
#include <string_view>

#include "data/ztext.h"
#include "paoding/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size_bytes) {
  if (size_bytes < 4) return 0;
  const std::size_t blocks = bytes[0] | bytes[1] << 8, verses = bytes[2] | bytes[3] << 8;
  const std::string_view file(reinterpret_cast<const char*>(bytes) + 4, size_bytes - 4);
  if (blocks + verses > file.size()) return 0;
  // Strings of their own, so that a sanitizer sees a read past the end of any.
  const std::string bzs(file.substr(0, blocks)), bzv(file.substr(blocks, verses)), bzz(file.substr(blocks + verses));
  try {
    for (const std::string& verse : paoding::data::ztext_verses({bzs, bzv, bzz}, "fuzz")) {
      if (paoding::data::without_markup(verse, "fuzz").size() > verse.size()) __builtin_trap();
    }
  } catch (const paoding::Error& error) {
    if (error.kind() != paoding::ErrorKind::file) __builtin_trap();
  }
  return 0;
}
