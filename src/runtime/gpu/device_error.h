// SPDX-License-Identifier: Apache-2.0
// Errors of a GPU say in which program's run they came.
#pragma once

#include <string>

#include "base/check.h"

namespace paoding {

/// Calls `call`; an error of the device that it throws begins with the program's name.
template <class Call>
void in_run_of(const std::string& program, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::device) throw;
    fail(ErrorKind::device, "{}: {}", program, error.what());
  }
}

}  // namespace paoding
