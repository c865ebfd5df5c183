// SPDX-License-Identifier: Apache-2.0
#include "trace/decimal_time.h"

#include <algorithm>

namespace paoding::trace {

bool to_whole(std::string_view text, int exponent, std::int64_t* value) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 63;
  std::size_t at = 0;
  const bool is_negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) ++at;
  std::uint64_t digits = 0;  // the first 19 that count
  int kept = 0, dropped = 0, behind_point = 0, first_dropped = -1;
  bool is_behind = false, has_any = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '.' && !is_behind) {
      is_behind = true;
      continue;
    }
    if (c < '0' || c > '9') break;
    has_any = true;
    if (kept < 19) {
      digits = digits * 10 + static_cast<std::uint64_t>(c - '0');
      kept += digits != 0 ? 1 : 0;
    } else {
      if (dropped == 0) first_dropped = c - '0';
      ++dropped;
    }
    behind_point += is_behind ? 1 : 0;
  }
  if (!has_any) return false;
  int written = 0;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    const bool is_down = at < text.size() && text[at] == '-';
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    if (at == text.size()) return false;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at)
      written = std::min(written * 10 + (text[at] - '0'), 10000);
    if (is_down) written = -written;
  }
  if (at != text.size()) return false;
  int shift = exponent + written + dropped - behind_point;  // the power of ten that `digits` is multiplied by
  if (digits == 0) return *value = 0, true;
  bool rounds_up = false;
  for (; shift > 0; --shift) {
    if (digits > kMost / 10) return false;
    digits *= 10;
  }
  if (shift == 0 && first_dropped >= 5) rounds_up = true;
  for (; shift < 0 && (digits != 0 || rounds_up); ++shift) {
    rounds_up = digits % 10 >= 5;
    digits /= 10;
  }
  digits += rounds_up ? 1 : 0;
  if (digits >= kMost) return false;
  *value = is_negative ? -static_cast<std::int64_t>(digits) : static_cast<std::int64_t>(digits);
  return true;
}

}  // namespace paoding::trace
