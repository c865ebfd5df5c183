// SPDX-License-Identifier: Apache-2.0
#include "io/files.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>
#include <system_error>

#include "base/check.h"
#include "io/temporary_file.h"
#include "paoding/cancellation.h"

namespace paoding::files {

namespace fs = std::filesystem;

// Bytes read between two looks at whether the reader was called off.
constexpr std::size_t kMostAtOnce = std::size_t{64} << 20;

std::string reason(int code) { return std::generic_category().message(code); }

std::string_view kind_of(mode_t mode) {
  return S_ISREG(mode)    ? "a regular file"
         : S_ISDIR(mode)  ? "a folder"
         : S_ISLNK(mode)  ? "a link"
         : S_ISFIFO(mode) ? "a FIFO"
         : S_ISSOCK(mode) ? "a socket"
                          : "a device";
}

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

// O_NONBLOCK: opening a pipe must fail in check_opened() instead of waiting for a writer. O_NOCTTY: nor may opening a
// terminal do anything.
InputFile::InputFile(const fs::path& path)
    : name_(path.string()), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
  check_opened();
}

InputFile::InputFile(const OpenFolder& folder, const std::string& file)
    : name_((folder.path() / file).string()),
      descriptor_(::openat(folder.fd(), file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
  check_opened();
}

void InputFile::check_opened() {
  if (!descriptor_.is_open()) fail(ErrorKind::file, "{}: cannot open: {}", name_, reason(errno));
  struct stat status {};
  if (::fstat(descriptor_.get(), &status) != 0) fail(ErrorKind::file, "{}: cannot stat: {}", name_, reason(errno));
  if (!S_ISREG(status.st_mode)) fail(ErrorKind::file, "{}: is {}, not a regular file", name_, kind_of(status.st_mode));
  size_bytes_ = static_cast<std::uint64_t>(status.st_size);
}

void InputFile::read_at(std::uint64_t offset, void* to, std::size_t size_bytes) const {
  auto* place = static_cast<std::byte*>(to);
  while (size_bytes > 0) {
    CancelScope::poll();
    const ssize_t got =
        ::pread(descriptor_.get(), place, std::min(size_bytes, kMostAtOnce), static_cast<off_t>(offset));
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

namespace {

// Checks a file open for reading: it has to be a regular file that is empty or ours.
void check_ours(const Descriptor& file, const std::string& name, IsOurs is_ours) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail(ErrorKind::file, "{}: cannot stat: {}", name, reason(errno));
  if (!S_ISREG(status.st_mode)) {
    fail(ErrorKind::file, "{}: is there and is {}, not a regular file", name, kind_of(status.st_mode));
  }
  std::string head(kHeadBytes, '\0');
  const ssize_t length = ::pread(file.get(), head.data(), head.size(), 0);
  if (length < 0) fail(ErrorKind::file, "{}: cannot read what is there: {}", name, reason(errno));
  head.resize(static_cast<std::size_t>(length));
  if (head.empty() || is_ours(head)) return;
  fail(ErrorKind::file, "{}: is there and is no such file of paoding's: give another name, or delete it", name);
}

}  // namespace

void check_replaceable(const fs::path& path, IsOurs is_ours) {
  const std::string name = path.string();
  struct stat old {};
  if (::lstat(path.c_str(), &old) != 0 || S_ISLNK(old.st_mode)) return;
  if (!S_ISREG(old.st_mode)) {
    fail(ErrorKind::file, "{}: is there and is {}, not a regular file", name, kind_of(old.st_mode));
  }
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  if (!file.is_open()) {
    if (errno == ENOENT || errno == ELOOP) return;  // since just now
    fail(ErrorKind::file, "{}: cannot see what is there: {}", name, reason(errno));
  }
  check_ours(file, name, is_ours);
}

Descriptor open_empty(const fs::path& path, IsOurs is_ours) {
  const std::string name = path.string();
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0666));
  if (!file.is_open()) fail(ErrorKind::file, "{}: cannot make the file: {}", name, reason(errno));
  check_ours(file, name, is_ours);
  if (::ftruncate(file.get(), 0) != 0) fail(ErrorKind::file, "{}: cannot be emptied: {}", name, reason(errno));
  return file;
}

AtomicFile::AtomicFile(const fs::path& path, IsOurs is_ours) : name_(path.string()), target_(path) {
  check_replaceable(path, is_ours);
  struct stat old {};
  const bool exists = ::lstat(target_.c_str(), &old) == 0;
  temporary_ = std::make_unique<TemporaryFile>(folder_of(target_), name_);
  Descriptor descriptor = temporary_->writer();
  if (exists && S_ISREG(old.st_mode)) ::fchmod(descriptor.get(), old.st_mode & 0777);  // as far as we may
  file_ = OutputFile(std::move(descriptor), name_);
}

AtomicFile::~AtomicFile() = default;

void AtomicFile::commit() {
  file_.finish();
  temporary_->move_to(target_);
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

namespace {

constexpr std::size_t kMostHolderBytes = 32;

// Opens or makes it; a link or a device under its name, which others have made, is left alone.
Descriptor open_lock(const fs::path& path) {
  struct stat status {};
  const bool is_there = ::lstat(path.c_str(), &status) == 0;
  Descriptor opened;
  if (!is_there || S_ISREG(status.st_mode)) {
    opened = Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0666));
    if (!opened.is_open() && errno != ELOOP) {
      fail(ErrorKind::file, "{}: cannot make or open the file: {}", path.string(), reason(errno));
    }
    if (!opened.is_open()) status.st_mode = S_IFLNK;  // since just now
    if (opened.is_open() && ::fstat(opened.get(), &status) != 0) {
      fail(ErrorKind::file, "{}: cannot stat: {}", path.string(), reason(errno));
    }
  }
  if (!S_ISREG(status.st_mode)) {
    fail(ErrorKind::file, "{}: is {}, must be a file that paoding made: delete it", path.string(),
         kind_of(status.st_mode));
  }
  return opened;
}

// The text that a holder wrote: its number. Nothing when it is another's file, or one by another name too.
std::optional<std::string> holder_text(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || status.st_nlink != 1) return std::nullopt;
  std::string text(kMostHolderBytes + 1, '\0');
  const ssize_t length = ::pread(descriptor, text.data(), text.size(), 0);
  if (length < 0 || length > static_cast<ssize_t>(kMostHolderBytes)) return std::nullopt;
  text.resize(static_cast<std::size_t>(length));
  if (text.find_first_not_of("0123456789\n") != std::string::npos) return std::nullopt;
  return text;
}

}  // namespace

Lock::Lock(const fs::path& path, const std::string& meaning) : descriptor_(open_lock(path)) {
  if (::flock(descriptor_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      fail(ErrorKind::file, "{}: cannot be locked, so that one process at a time {}: {}", path.string(), meaning,
           reason(errno));
    }
    long process = 0;
    const std::string holder = holder_text(descriptor_.get()).value_or("");
    std::from_chars(holder.data(), holder.data() + holder.size(), process);
    if (process == ::getpid()) fail(ErrorKind::file, "{}: this process {} already", path.string(), meaning);
    fail(ErrorKind::file, "{}: another process{} {}", path.string(),
         process > 0 ? fmt::format(" (number {})", process) : "", meaning);
  }
  if (!holder_text(descriptor_.get())) return;
  // For the message above alone, so a full disk is no error.
  const std::string own = fmt::format("{}\n", ::getpid());
  if (::ftruncate(descriptor_.get(), 0) == 0 && ::pwrite(descriptor_.get(), own.data(), own.size(), 0) < 0) return;
}

}  // namespace paoding::files
