// SPDX-License-Identifier: Apache-2.0
// One member of a gzip file, unpacked piece by piece: by ISA-L where the build has it, else by zlib.
#pragma once

#include <cstddef>
#include <memory>

namespace paoding::trace {

class GzipMember {
 public:
  enum class Library { best, zlib };
  /// Error (device) where no memory is left.
  static std::unique_ptr<GzipMember> make(Library library = Library::best);
  virtual ~GzipMember() = default;

  enum class State { inside, over, broken };
  struct Step {
    State state;
    std::size_t taken, made;  // bytes
  };
  /// At the beginning of another member.
  virtual void begin() = 0;
  /// Goes on: takes some of the input, and makes some of the output. With neither more is wanted. Checks the sum at the
  /// end.
  virtual Step step(const char* from, std::size_t size, char* to, std::size_t room) = 0;
};

/// Whether this build has ISA-L.
bool has_isal();

}  // namespace paoding::trace
