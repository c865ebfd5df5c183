// SPDX-License-Identifier: Apache-2.0
// Times that a file writes as decimal text, in whole nanoseconds: never by way of a double, which is off by 256 ns
// where times count from 1970.
#pragma once

#include <cstdint>
#include <string_view>

namespace paoding::trace {

/// Digits, perhaps with a sign, a point and an exponent, times 10^`exponent`, rounded to the nearest whole number, away
/// from 0 in the middle. False where it is no number or too large.
bool to_whole(std::string_view text, int exponent, std::int64_t* value);

/// Of microseconds.
inline bool to_ns(std::string_view microseconds, std::int64_t* ns) { return to_whole(microseconds, 3, ns); }

}  // namespace paoding::trace
