// SPDX-License-Identifier: Apache-2.0
// Names of the error kinds, and the message of a failed assertion.
#include "paoding/error.h"

#include "base/check.h"

namespace paoding {

std::string_view to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::shape: return "shape";
    case ErrorKind::dtype: return "dtype";
    case ErrorKind::argument: return "argument";
    case ErrorKind::unsupported: return "unsupported";
    case ErrorKind::device: return "device";
    case ErrorKind::file: return "file";
    case ErrorKind::cancelled: return "cancelled";
  }
  return "?";
}

void assertion_failed(const char* condition, const char* why, const char* file, int line) {
  throw InternalError(fmt::format("paoding bug: {} ({} at {}:{})", why, condition, file, line));
}

}  // namespace paoding
