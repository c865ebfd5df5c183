// SPDX-License-Identifier: Apache-2.0
// FNV-1a: names for texts, seeds from names; and a faster hash of long texts. Not for data that an attacker chooses.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace paoding {

inline constexpr std::uint64_t kFnvStart = 0xcbf29ce484222325;

/// The hash of one more unit.
constexpr std::uint64_t fnv1a(std::uint64_t hash, std::uint64_t unit) { return (hash ^ unit) * 0x100000001b3; }

/// The hash of a text's bytes, continued from `hash`, that of the bytes before.
constexpr std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = kFnvStart) {
  for (const char c : text) hash = fnv1a(hash, static_cast<unsigned char>(c));
  return hash;
}

/// A hash of long texts, eight bytes at a time: folded 128-bit products, as in wyhash (Wang Yi, public domain). Its
/// values may differ from one version to the next.
inline std::uint64_t hash_of_text(std::string_view text, std::uint64_t hash = kFnvStart) {
  const auto fold = [](std::uint64_t a, std::uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  };
  constexpr std::uint64_t kOdd[] = {0xa0761d6478bd642f, 0xe7037ed1a0b428db, 0x8ebc6af09c88c6e3};
  hash ^= kOdd[2] ^ text.size();
  while (!text.empty()) {
    std::uint64_t words[2] = {0, 0};
    const std::size_t count = std::min(text.size(), sizeof words);
    std::memcpy(words, text.data(), count);
    hash = fold(words[0] ^ kOdd[0], words[1] ^ kOdd[1] ^ hash);
    text.remove_prefix(count);
  }
  return fold(hash ^ kOdd[0], kOdd[1]);
}

}  // namespace paoding
