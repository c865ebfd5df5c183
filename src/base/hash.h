// SPDX-License-Identifier: Apache-2.0
// FNV-1a: names for texts, seeds from names. Not for data that an attacker chooses.
#pragma once

#include <cstdint>
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

}  // namespace paoding
