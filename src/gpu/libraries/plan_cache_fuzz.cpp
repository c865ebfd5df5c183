// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: whatever the bytes are, with and without a seal that is right, parse_entry gives a choice that can
// be written and reads back to itself, or Error (file). The first line that looks like a key is the one asked for.
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/hash128.h"
#include "gpu/libraries/plan_cache.h"
#include "paoding/error.h"

namespace {

using namespace paoding;

void check_text(const std::string& text) {
  const std::size_t at = text.find("\nkey ");
  const std::string key(at == std::string::npos ? "" : text.substr(at + 5, text.find('\n', at + 1) - at - 5));
  try {
    const TimedChoice choice = gpu::parse_entry(text, key);
    if (!(gpu::parse_entry(gpu::entry_text(key, choice), key) == choice)) __builtin_trap();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::file) __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size_bytes) {
  const std::string text(reinterpret_cast<const char*>(bytes), size_bytes);
  check_text(text);
  const auto seal = hash128(text);
  char line[64];
  std::snprintf(line, sizeof(line), "seal %016llx%016llx\n", static_cast<unsigned long long>(seal[0]),
                static_cast<unsigned long long>(seal[1]));
  check_text(text + line);
  return 0;
}
