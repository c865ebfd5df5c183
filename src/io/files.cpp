// SPDX-License-Identifier: Apache-2.0
#include "io/files.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>

#include "base/check.h"

namespace paoding::files {

namespace fs = std::filesystem;

std::string reason(int code) { return std::generic_category().message(code); }

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

// ---- reading ----

OpenFolder::OpenFolder(const fs::path& path)
    : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (!descriptor_.is_open()) fail(ErrorKind::file, "{}: cannot open the folder: {}", path.string(), reason(errno));
}

bool OpenFolder::is_in_place() const {
  struct stat there {
  }, here{};
  return ::stat(path_.c_str(), &there) == 0 && ::fstat(fd(), &here) == 0 && there.st_dev == here.st_dev &&
         there.st_ino == here.st_ino;
}

// O_NONBLOCK: opening a pipe must fail in check_opened() instead of waiting for a writer.
InputFile::InputFile(const fs::path& path)
    : name_(path.string()), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  check_opened();
}

InputFile::InputFile(const OpenFolder& folder, const std::string& file)
    : name_((folder.path() / file).string()),
      descriptor_(::openat(folder.fd(), file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  check_opened();
}

void InputFile::check_opened() {
  if (!descriptor_.is_open()) fail(ErrorKind::file, "{}: cannot open: {}", name_, reason(errno));
  struct stat status {};
  if (::fstat(descriptor_.get(), &status) != 0) fail(ErrorKind::file, "{}: cannot stat: {}", name_, reason(errno));
  if (!S_ISREG(status.st_mode)) fail(ErrorKind::file, "{}: is not a regular file", name_);
  size_bytes_ = static_cast<std::uint64_t>(status.st_size);
}

void InputFile::read_at(std::uint64_t offset, void* to, std::size_t size_bytes) const {
  auto* place = static_cast<std::byte*>(to);
  while (size_bytes > 0) {
    const ssize_t got = ::pread(descriptor_.get(), place, size_bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(ErrorKind::file, "{}: cannot read at byte {}: {}", name_, offset, reason(errno));
    if (got == 0) fail(ErrorKind::file, "{}: ends at byte {}: it shrank while it was read", name_, offset);
    place += got;
    offset += static_cast<std::uint64_t>(got);
    size_bytes -= static_cast<std::size_t>(got);
  }
}

// ---- writing ----

OutputFile::OutputFile(const fs::path& path)
    : name_(path.string()), descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
  if (!descriptor_.is_open()) fail(ErrorKind::file, "{}: cannot make the file: {}", name_, reason(errno));
}

void OutputFile::write(const void* bytes, std::size_t size_bytes) {
  const char* from = static_cast<const char*>(bytes);
  while (size_bytes > 0) {
    const ssize_t written = ::write(descriptor_.get(), from, size_bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(ErrorKind::file, "{}: cannot write: {}", name_, reason(errno));
    from += written;
    size_bytes -= static_cast<std::size_t>(written);
  }
}

void OutputFile::finish() {
  if (::fsync(descriptor_.get()) != 0) {
    fail(ErrorKind::file, "{}: cannot flush to disk: {}", name_, reason(errno));
  }
  // File systems over a network may report a full disk only here.
  if (::close(descriptor_.release()) != 0) fail(ErrorKind::file, "{}: cannot close: {}", name_, reason(errno));
}

namespace {
fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }
}  // namespace

AtomicFile::AtomicFile(const fs::path& path) : name_(path.string()), target_(path) {
  std::error_code ignored;
  if (fs::is_symlink(target_, ignored)) {
    // Else the rename would replace the link. Not weakly_canonical: it leaves a dangling link alone.
    const fs::path resolved = fs::canonical(target_, ignored);
    if (ignored) fail(ErrorKind::file, "{}: cannot follow the link: {}", name_, ignored.message());
    target_ = resolved;
  }
  struct stat old {};
  const bool exists = ::stat(target_.c_str(), &old) == 0;
  if (exists && !S_ISREG(old.st_mode)) fail(ErrorKind::file, "{}: is there and is not a regular file", name_);
  Descriptor descriptor = open_beside_target();
  if (exists) ::fchmod(descriptor.get(), old.st_mode & 07777);  // as far as we may
  file_ = OutputFile(std::move(descriptor), name_);
}

AtomicFile::~AtomicFile() {
  if (!is_committed_) ::unlink(temporary_.c_str());
}

Descriptor AtomicFile::open_beside_target() {
  // Not mkstemp, which makes files that only the owner can read. The name does not grow with the target's, which
  // may be as long as names can be. Another process may have our number (containers, network folders): try on.
  static std::atomic<unsigned> counter{0};
  for (int attempt = 0; attempt < 1000; ++attempt) {
    temporary_ = folder_of(target_) / fmt::format(".paoding-{}-{}.tmp", ::getpid(), counter++);
    Descriptor opened(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (opened.is_open()) return opened;
    if (errno != EEXIST) break;
  }
  fail(ErrorKind::file, "{}: cannot make a file in its folder: {}", name_, reason(errno));
}

void AtomicFile::commit() {
  file_.finish();
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    fail(ErrorKind::file, "{}: cannot move the new file into place: {}", name_, reason(errno));
  }
  is_committed_ = true;
  flush_folder(folder_of(target_));
}

// ---- folders ----

void flush_folder(const fs::path& folder) {
  const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.is_open()) ::fsync(opened.get());
}

namespace {
void move_folder(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  fail(ErrorKind::file, "{}: cannot move {} into its place: {}", to.string(), from.string(), reason(errno));
}

bool is_there(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}
}  // namespace

void replace_folder(const fs::path& from, const fs::path& to, const fs::path& aside, bool can_exchange) {
  const bool is_exchanged =
      can_exchange && is_there(to) && ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0;
  if (!is_there(to)) {
    move_folder(from, to);
  } else if (!is_exchanged) {
    move_folder(to, aside);
    try {
      move_folder(from, to);
    } catch (const Error&) {
      ::rename(aside.c_str(), to.c_str());
      throw;
    }
  }
  flush_folder(folder_of(to));
}

void finish_replacing(const fs::path& to, const fs::path& aside) {
  if (is_there(aside) && !is_there(to)) move_folder(aside, to);
}

// ---- locks ----

Lock::Lock(const fs::path& path, const std::string& meaning)
    : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (!descriptor_.is_open())
    fail(ErrorKind::file, "{}: cannot make or open the file: {}", path.string(), reason(errno));
  char holder[32] = {};
  if (::flock(descriptor_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      fail(ErrorKind::file, "{}: cannot be locked, so that one process at a time {}: {}", path.string(), meaning,
           reason(errno));
    }
    const ssize_t length = ::pread(descriptor_.get(), holder, sizeof(holder) - 1, 0);
    long process = 0;
    for (ssize_t i = 0; i < length && holder[i] >= '0' && holder[i] <= '9' && i < 18; ++i) {
      process = process * 10 + (holder[i] - '0');
    }
    if (process == ::getpid()) fail(ErrorKind::file, "{}: this process {} already", path.string(), meaning);
    fail(ErrorKind::file, "{}: another process{} {}", path.string(),
         process > 0 ? fmt::format(" (number {})", process) : "", meaning);
  }
  // For the message above alone, so a full disk is no error.
  const std::string own = fmt::format("{}\n", ::getpid());
  if (::ftruncate(descriptor_.get(), 0) == 0 && ::pwrite(descriptor_.get(), own.data(), own.size(), 0) < 0) return;
}

}  // namespace paoding::files
