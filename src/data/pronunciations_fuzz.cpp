// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: whatever the text is, it gives words that each have phonemes, or Error (file).
#include <cstdint>
#include <string>

#include "data/pronunciations.h"
#include "paoding/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size_bytes) {
  const std::string text(reinterpret_cast<const char*>(bytes), size_bytes);
  try {
    for (const paoding::data::Pronunciations& word : paoding::data::parse_pronunciations(text, "fuzz")) {
      if (word.word.empty() || word.ways.empty()) __builtin_trap();
      for (const auto& way : word.ways) {
        if (way.empty()) __builtin_trap();
      }
    }
  } catch (const paoding::Error& error) {
    if (error.kind() != paoding::ErrorKind::file) __builtin_trap();
  }
  return 0;
}
