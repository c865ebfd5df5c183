// SPDX-License-Identifier: Apache-2.0
// Files and folders as the operating system has them: whole on disk or not there at all. Every failure is Error (file)
// that names the file.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace paoding::files {

/// The message for errno: "No space left on device".
std::string reason(int code);
/// The kind in the mode of a stat(): "a FIFO".
std::string_view kind_of(mode_t mode);

/// A number that the operating system gave for something open; closed with the object.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  /// Gives it up without closing it.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

/// A folder held open: it stays this one when its path is given to another.
class OpenFolder {
 public:
  explicit OpenFolder(const std::filesystem::path& path);
  int fd() const { return descriptor_.get(); }
  const std::filesystem::path& path() const { return path_; }
  /// Whether its path still leads to it.
  bool is_in_place() const;

 private:
  std::filesystem::path path_;
  Descriptor descriptor_;
};

/// A regular file open for reading.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  InputFile(const OpenFolder& folder, const std::string& file);
  const std::string& name() const { return name_; }
  std::uint64_t size_bytes() const { return size_bytes_; }
  /// Fills `to` with `size_bytes` bytes from `offset` on. Error when there are fewer.
  void read_at(std::uint64_t offset, void* to, std::size_t size_bytes) const;

 private:
  void check_opened();
  std::string name_;
  Descriptor descriptor_;
  std::uint64_t size_bytes_ = 0;
};

/// A file under construction, called `name` in errors.
class OutputFile {
 public:
  OutputFile(Descriptor descriptor, std::string name) : name_(std::move(name)), descriptor_(std::move(descriptor)) {}
  /// Makes the file. Error when there is one.
  explicit OutputFile(const std::filesystem::path& path);
  void write(const void* bytes, std::size_t size_bytes);
  /// Flushes it to disk and closes it.
  void finish();

 private:
  std::string name_;
  Descriptor descriptor_;
};

class TemporaryFile;  // io/temporary_file.h

/// Whether a file that begins so is of the kind that is about to be written. It is given the first kHeadBytes bytes, or
/// all of a shorter file.
using IsOurs = bool (*)(std::string_view head);
inline constexpr std::size_t kHeadBytes = 256;

/// Asked before every write of a file at a path of the caller's. Error (file) when something is there that must stay:
/// no regular file, or one that is neither empty nor ours. A link is not followed: it will be replaced itself, so that
/// nothing outside the folder changes.
void check_replaceable(const std::filesystem::path& path, IsOurs is_ours);
/// The same, and opens an empty file there that is seen while it grows; a link is an error then.
Descriptor open_empty(const std::filesystem::path& path, IsOurs is_ours);

/// A new file that replaces the one at `path`, where that is replaceable, on commit(), and goes away when it is
/// destroyed before. An existing file's permissions are kept.
class AtomicFile {
 public:
  AtomicFile(const std::filesystem::path& path, IsOurs is_ours);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();
  void write(const void* bytes, std::size_t size_bytes) { file_.write(bytes, size_bytes); }
  void commit();

 private:
  std::string name_;
  std::filesystem::path target_;
  std::unique_ptr<TemporaryFile> temporary_;
  OutputFile file_{Descriptor(), {}};
};

/// Makes names in the folder that were made, changed or removed survive a power failure. Folders that may not be read,
/// or file systems that cannot do it, are no reason to report the write as failed.
void flush_folder(const std::filesystem::path& folder);

/// Moves the folder `from` to `to`, both in one folder; the old `to` is then at `from` or at `aside`, which must be
/// free. Readers find one or the other at `to`. Where the file system cannot exchange two folders (or when not
/// `can_exchange`) there is a moment in which `to` is missing and `aside` has it: see finish_replacing.
void replace_folder(const std::filesystem::path& from, const std::filesystem::path& to,
                    const std::filesystem::path& aside, bool can_exchange = true);
/// Ends a replace_folder that was cut off: `to` is there again, the old one or the new one.
void finish_replacing(const std::filesystem::path& to, const std::filesystem::path& aside);

/// A lock that one process at a time may hold; let go when it ends, however it ends. Two of one process exclude each
/// other too. Error (file) when it is held, and when its path is no file: a link is not followed. Only a file that a
/// Lock made is written to.
class Lock {
 public:
  /// `meaning` tells others the holder's activity: "trains into runs/g2p".
  Lock(const std::filesystem::path& path, const std::string& meaning);

 private:
  Descriptor descriptor_;
};

}  // namespace paoding::files
