// SPDX-License-Identifier: Apache-2.0
#include "base/hash128.h"

#include <bit>
#include <cstring>

namespace paoding {
namespace {

std::uint64_t read_word(const char* bytes) {
  std::uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

std::uint64_t mix(std::uint64_t h) {
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdULL;
  h ^= h >> 33;
  h *= 0xc4ceb9fe1a85ec53ULL;
  return h ^ (h >> 33);
}

}  // namespace

Hash128 hash128(std::string_view bytes) {
  constexpr std::uint64_t c1 = 0x87c37b91114253d5ULL, c2 = 0x4cf5ad432745937fULL;
  const std::size_t size = bytes.size();
  const std::size_t whole = size / 16 * 16;
  std::uint64_t h1 = 0, h2 = 0;
  for (std::size_t i = 0; i < whole; i += 16) {
    h1 ^= std::rotl(read_word(bytes.data() + i) * c1, 31) * c2;
    h1 = (std::rotl(h1, 27) + h2) * 5 + 0x52dce729;
    h2 ^= std::rotl(read_word(bytes.data() + i + 8) * c2, 33) * c1;
    h2 = (std::rotl(h2, 31) + h1) * 5 + 0x38495ab5;
  }
  char tail[16] = {};
  if (size > whole) std::memcpy(tail, bytes.data() + whole, size - whole);
  h2 ^= std::rotl(read_word(tail + 8) * c2, 33) * c1;
  h1 ^= std::rotl(read_word(tail) * c1, 31) * c2;
  h1 ^= size;
  h2 ^= size;
  h1 += h2;
  h2 += h1;
  h1 = mix(h1);
  h2 = mix(h2);
  h1 += h2;
  h2 += h1;
  return {h1, h2};
}

}  // namespace paoding
