// SPDX-License-Identifier: Apache-2.0
// Bytes of a file, a pipe or a terminal as they come: waiting for them ends when the program is interrupted.
#pragma once

#include <cstddef>
#include <string>

#include "io/files.h"

namespace paoding::cli {

class InputStream {
 public:
  /// "-" is stdin. Error (file) when it cannot be opened.
  explicit InputStream(const std::string& path);

  /// At least one byte and at most `size` of them; 0 at the end. Error (file) when it cannot be read; Interrupted after
  /// a signal.
  std::size_t read(char* to, std::size_t size);
  /// The name that errors use: its path, or "<stdin>".
  const std::string& name() const { return name_; }
  bool is_terminal() const;

 private:
  std::string name_;
  files::Descriptor opened_;  // none of stdin
  int descriptor_;
};

}  // namespace paoding::cli
