// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: whatever the bytes are, they give pieces that encode and decode, or Error (file).
#include <cstdint>
#include <optional>
#include <string_view>

#include "paoding/data/sentence_pieces.h"
#include "paoding/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size_bytes) {
  using paoding::data::SentencePieces;
  std::optional<SentencePieces> pieces;
  try {
    pieces = SentencePieces::load({reinterpret_cast<const char*>(bytes), size_bytes}, "fuzz");
  } catch (const paoding::Error& error) {
    if (error.kind() != paoding::ErrorKind::file) __builtin_trap();
    return 0;
  }
  std::vector<std::int64_t> numbers = pieces->encode("the cat  sat on caf\u00e9 \xff mat");
  for (const std::int64_t number : numbers) {
    if (number < 0 || number >= pieces->size()) __builtin_trap();
  }
  for (std::int64_t i = 0; i < pieces->size() && i < 100; ++i) numbers.push_back(i);
  pieces->decode(numbers);
  return 0;
}
