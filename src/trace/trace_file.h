// SPDX-License-Identifier: Apache-2.0
// The file that a trace is read from: its content unpacked, from the beginning on or as a whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

namespace paoding::trace {

/// One thread at a time. Error (file) where the file is none or cannot be read.
class TraceFile {
 public:
  explicit TraceFile(const std::filesystem::path& path);
  /// Of what is in memory, which must outlive it; `name` is for errors.
  TraceFile(std::string_view bytes, std::string name);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  /// Its path, where it is on a disk.
  const std::string& name() const { return name_; }
  /// Whether name() is the path that it was opened by.
  bool is_on_disk() const { return is_on_disk_; }
  /// What the content begins with, unpacked: kHeadBytes, or all of a shorter one.
  std::string_view head() const { return head_; }
  static constexpr std::size_t kHeadBytes = std::size_t{1} << 16;
  /// Whether it lies packed by gzip.
  bool is_packed() const { return is_packed_; }
  /// As it lies on the disk.
  std::uint64_t stored_bytes() const { return stored_bytes_; }

  /// Fills `to` with what of the content comes next, the head first. Fewer than `count` bytes only at the end.
  std::size_t read(char* to, std::size_t count);
  /// From the beginning again.
  void rewind();
  /// Once the end was reached: why the content is not whole ("its packed content is cut off"); empty if it is.
  const std::string& problem() const { return problem_; }
  /// All that read() has not given yet. Error (file) where that is more than `most` bytes.
  std::string rest(std::uint64_t most = std::numeric_limits<std::uint64_t>::max());

 private:
  class Bytes;
  class Unpacker;
  void begin();
  std::size_t fill(char* to, std::size_t count);

  std::string name_;
  std::unique_ptr<Bytes> bytes_;
  std::unique_ptr<Unpacker> unpacker_;  // where it is packed
  bool is_on_disk_ = false;
  bool is_packed_ = false;
  std::uint64_t stored_bytes_ = 0;
  std::string head_;
  std::size_t head_given_ = 0;
  std::string problem_;
};

}  // namespace paoding::trace
