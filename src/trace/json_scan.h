// SPDX-License-Identifier: Apache-2.0
// Steps through a text of JSON. Behind the text stand kScanPadding zeros, where every step ends at last. A step gives
// where it ended, or nullptr where the text is none; what is within strings and numbers is not looked at.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace paoding::trace {

inline constexpr std::size_t kScanPadding = 64;

class JsonScan {
 public:
  JsonScan(const char* begin, const char* end) : begin_(begin), end_(end) {}

  const char* begin() const { return begin_; }
  const char* end() const { return end_; }

  static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
  static const char* space(const char* at) {
    while (is_space(*at)) ++at;
    return at;
  }
  static bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

  /// From behind the opening quote to the closing one.
  const char* string(const char* at) const {
    for (;;) {
#if defined(__SSE2__)
      const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
      const __m128i found =
          _mm_or_si128(_mm_cmpeq_epi8(text, _mm_set1_epi8('"')), _mm_cmpeq_epi8(text, _mm_set1_epi8('\\')));
      const auto mask = static_cast<unsigned>(_mm_movemask_epi8(found));
      if (mask == 0) {
        at += 16;
        if (at >= end_) return nullptr;
        continue;
      }
      at += std::countr_zero(mask);
#else
      while (*at != '"' && *at != '\\' && at < end_) ++at;
#endif
      if (at >= end_) return nullptr;
      if (*at == '"') return at;
      at += 2;
      if (at >= end_) return nullptr;
    }
  }

  /// Behind a value of any kind.
  const char* value(const char* at) const {
    if (*at == '"') {
      at = string(at + 1);
      return at == nullptr ? nullptr : at + 1;
    }
    return *at == '{' || *at == '[' ? nested(at) : scalar(at);
  }

  /// Behind a number or a word, true ones or not: NaN and N/A are some.
  const char* scalar(const char* at) const {
    const char* from = at;
    while (*at != ',' && *at != '}' && *at != ']' && !is_space(*at) && *at != '"' && *at != '{' && *at != '[' &&
           *at != ':' && at < end_) {
      ++at;
    }
    return at == from ? nullptr : at;
  }

 private:
  const char* nested(const char* at) const {
    std::size_t depth = 0;
    for (;;) {
#if defined(__SSE2__)
      // Of brackets and braces only the bit by which [ and {, ] and } differ is cleared.
      const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
      const __m128i folded = _mm_andnot_si128(_mm_set1_epi8(0x20), text);
      const __m128i found = _mm_or_si128(
          _mm_cmpeq_epi8(text, _mm_set1_epi8('"')),
          _mm_or_si128(_mm_cmpeq_epi8(folded, _mm_set1_epi8('[')), _mm_cmpeq_epi8(folded, _mm_set1_epi8(']'))));
      const auto mask = static_cast<unsigned>(_mm_movemask_epi8(found));
      if (mask == 0) {
        at += 16;
        if (at >= end_) return nullptr;
        continue;
      }
      at += std::countr_zero(mask);
#endif
      if (at >= end_) return nullptr;
      switch (*at) {
        case '"':
          at = string(at + 1);
          if (at == nullptr) return nullptr;
          break;
        case '{':
        case '[': ++depth; break;
        case '}':
        case ']':
          if (--depth == 0) return at + 1;
          break;
        default: break;
      }
      ++at;
    }
  }

  const char* begin_;
  const char* end_;
};

/// Where an object begins that is an element of an array behind another object: at most from `from` on, or nullptr.
/// In JSON nothing inside of a string looks like it: a brace, a quote and a letter behind each other.
inline bool is_element(const char* begin, const char* brace, const char* end) {
  const char* at = brace + 1;
  while (at < end && JsonScan::is_space(*at)) ++at;
  if (at + 1 >= end || *at != '"') return false;
  const char letter = at[1];
  if (!((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z'))) return false;
  const auto back = [&](const char* from) {
    while (from > begin && JsonScan::is_space(from[-1])) --from;
    return from;
  };
  const char* before = back(brace);
  if (before == begin || before[-1] != ',') return false;
  before = back(before - 1);
  return before > begin && before[-1] == '}';
}

}  // namespace paoding::trace
