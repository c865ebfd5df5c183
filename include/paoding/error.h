// SPDX-License-Identifier: Apache-2.0
// The one exception type. Building, compiling and loading throw it before any work starts; a run throws it too, for
// faults that only a run can meet (see paoding/program.h): an index out of range in a fed value, a device that fails. A
// run that throws has written no parameter.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace paoding {

enum class ErrorKind {
  shape,        // extents, ranks or axes do not fit
  dtype,        // an element type that the op does not take
  argument,     // an attribute, name or option that is out of range or unknown
  unsupported,  // legal, but no kernel or device does it
  device,       // a GPU, driver or library call failed
  file,         // a file or text from outside is missing, truncated or malformed
  cancelled,    // called off by another thread: see paoding/cancellation.h
};

std::string_view to_string(ErrorKind kind);

/// Its text reads "op: which input, its value, the value that was needed (in scope)", a hint on its own line. Any
/// thread may read it.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace paoding
