// SPDX-License-Identifier: Apache-2.0
// How the code itself reports: fail() for errors that a user can cause, PD_ASSERT for those that only a bug can cause.
#pragma once

#include <fmt/format.h>

#include "paoding/error.h"

namespace paoding {

/// Throws Error with a formatted message.
template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

/// Thrown by PD_ASSERT: a bug in paoding, never caused by user input.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void assertion_failed(const char* condition, const char* why, const char* file, int line);

}  // namespace paoding

/// A condition that only a bug can break; `why` describes the failure.
#define PD_ASSERT(condition, why) \
  ((condition) ? (void)0 : ::paoding::assertion_failed(#condition, why, __FILE__, __LINE__))
