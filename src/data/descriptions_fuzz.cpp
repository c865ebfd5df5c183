// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: whatever a Translation index holds, it gives descriptions whose parts have words, or Error (file).
// It is paired with itself under another name, so that every path of the pairing is taken.
#include <cstdint>
#include <string>

#include "data/description_index.h"
#include "paoding/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size_bytes) {
  using namespace paoding::data;
  const std::string text(reinterpret_cast<const char*>(bytes), size_bytes);
  try {
    const std::vector<Description> source = parse_descriptions(text, "fuzz");
    std::vector<Description> target(source.rbegin(), source.rend());
    for (Description& description : target) {
      description.brief = "parola";
      for (auto& line : description.lines) {
        if (line == "one") line = "uno";
      }
    }
    for (const SentencePair& pair : pairs_of(source, target)) {
      if (pair.source.empty() || pair.target.empty() || pair.source == pair.target) __builtin_trap();
    }
  } catch (const paoding::Error& error) {
    if (error.kind() != paoding::ErrorKind::file) __builtin_trap();
  }
  return 0;
}
