// SPDX-License-Identifier: Apache-2.0
// Lines of a file or of stdin, as they come: waiting for a terminal or a pipe ends when the program is interrupted.
#pragma once

#include <cstdint>
#include <string>

#include "input_stream.h"

namespace paoding::cli {

class LineReader {
 public:
  /// "-" is stdin. Error (file) when it cannot be opened.
  explicit LineReader(const std::string& path) : stream_(path) {}

  /// False at the end. Without the line's end, be it LF or CR LF; a last line needs none. Error (file) when it cannot
  /// be read, or a line has more than 16 MiB; Interrupted after a signal.
  bool next(std::string* line);
  /// "words.txt:7", "<stdin>:7": the line that next() gave.
  std::string place() const;
  bool is_terminal() const { return stream_.is_terminal(); }

 private:
  bool read_more();
  InputStream stream_;
  std::string buffer_;
  std::size_t at_ = 0;  // offset in buffer_ of the next line
  std::int64_t line_ = 0;
};

}  // namespace paoding::cli
