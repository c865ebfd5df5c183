// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10: a block cipher's worth of mixing that turns a counter into random words. Salmon, Moraes, Dror, Shaw:
// "Parallel random numbers: as easy as 1, 2, 3" (2011); the same words as Random123, cuRAND and others make.
#pragma once

#include <array>
#include <cstdint>

namespace paoding {

struct Philox {
  static constexpr int kRounds = 10;
  static constexpr std::uint32_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57;  // of words 0 and 2
  static constexpr std::uint32_t kBump0 = 0x9E3779B9, kBump1 = 0xBB67AE85;          // added to the key each round

  using Words = std::array<std::uint32_t, 4>;

  static constexpr Words block(Words counter, std::array<std::uint32_t, 2> key) {
    for (int round = 0; round < kRounds; ++round) {
      const std::uint64_t a = std::uint64_t{kMultiply0} * counter[0], b = std::uint64_t{kMultiply1} * counter[2];
      counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
                 static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
      key = {key[0] + kBump0, key[1] + kBump1};
    }
    return counter;
  }
};

/// The value of Prim::random_bits: word (index mod 4) of the block with counter (index div 4, stream) and key seed.
constexpr std::uint32_t random_bits(std::uint64_t index, std::uint64_t stream, std::uint64_t seed) {
  const auto low = [](std::uint64_t a) { return static_cast<std::uint32_t>(a); };
  const auto high = [](std::uint64_t a) { return static_cast<std::uint32_t>(a >> 32); };
  const Philox::Words words =
      Philox::block({low(index >> 2), high(index >> 2), low(stream), high(stream)}, {low(seed), high(seed)});
  return words[index & 3];
}

}  // namespace paoding
