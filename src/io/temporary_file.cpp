// SPDX-License-Identifier: Apache-2.0
#include "io/temporary_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/check.h"

namespace paoding::files {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kBegin = ".paoding-", kEnd = ".tmp";

// Names that a signal's handler can read: no memory is taken or given back. More files than there are places are only
// found by remove_stale_files().
struct Noted {
  enum State { free, taken, is_there };
  std::atomic<int> state = free;
  std::array<char, PATH_MAX> path = {};
};
std::array<Noted, 8> noted_files;
static_assert(std::atomic<int>::is_always_lock_free, "a signal may only touch lock-free atomics");

// ".paoding-123-4.tmp"
bool is_ours(std::string_view name) {
  if (name.size() <= kBegin.size() + kEnd.size() || !name.starts_with(kBegin) || !name.ends_with(kEnd)) return false;
  name.remove_prefix(kBegin.size());
  name.remove_suffix(kEnd.size());
  return name.find_first_not_of("0123456789-") == std::string_view::npos;
}

bool has_name(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && status.st_nlink > 0;
}

// Whether nobody writes it. Where files cannot be locked nothing is known.
bool is_stale(const Descriptor& file) {
  struct stat status {};
  if (!file.is_open() || ::fstat(file.get(), &status) != 0) return false;
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid()) return false;
  return ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 && has_name(file.get());
}

}  // namespace

void remove_stale_files(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code problem;
  for (fs::directory_iterator it(folder, problem), end; !problem && it != end; it.increment(problem)) {
    if (is_ours(it->path().filename().native())) found.push_back(it->path());
  }
  for (const fs::path& path : found) {
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
    if (is_stale(file)) ::unlink(path.c_str());
  }
}

TemporaryFile::TemporaryFile(const fs::path& folder, const std::string& name) : name_(name) {
  remove_stale_files(folder);
  // Not mkstemp, which makes files that only the owner can read. The name does not grow with the target's, which
  // may be as long as names can be. Another process may have our number (containers, network folders): try on.
  static std::atomic<unsigned> counter{0};
  for (int attempt = 0; attempt < 1000; ++attempt) {
    if (take_name(folder / fmt::format("{}{}-{}{}", kBegin, ::getpid(), counter++, kEnd))) {
      note();
      return;
    }
    if (errno != EEXIST) break;
  }
  fail(ErrorKind::file, "{}: cannot make a file in its folder: {}", name_, reason(errno));
}

bool TemporaryFile::take_name(const fs::path& path) {
  descriptor_ = Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!descriptor_.is_open()) return false;
  // Another process may take it for stale before it is locked, and delete it.
  const bool is_others = ::flock(descriptor_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (is_others || !has_name(descriptor_.get())) {
    errno = EEXIST;
    return false;
  }
  path_ = path;
  return true;
}

void TemporaryFile::note() {
  const std::string& path = path_.native();
  if (path.size() >= PATH_MAX) return;
  for (std::size_t i = 0; i < noted_files.size(); ++i) {
    int expected = Noted::free;
    if (!noted_files[i].state.compare_exchange_strong(expected, Noted::taken)) continue;
    std::memcpy(noted_files[i].path.data(), path.c_str(), path.size() + 1);
    noted_files[i].state = Noted::is_there;
    noted_ = static_cast<int>(i);
    return;
  }
}

TemporaryFile::~TemporaryFile() {
  if (!is_moved_ && !path_.empty()) ::unlink(path_.c_str());
  if (noted_ >= 0) noted_files[static_cast<std::size_t>(noted_)].state = Noted::free;
}

Descriptor TemporaryFile::writer() const {
  // Another number of the same open file: closing it tells of a full disk, and the lock stays.
  Descriptor copy(::fcntl(descriptor_.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.is_open()) fail(ErrorKind::file, "{}: cannot be opened: {}", name_, reason(errno));
  return copy;
}

void TemporaryFile::move_to(const fs::path& path) {
  if (::rename(path_.c_str(), path.c_str()) != 0) {
    fail(ErrorKind::file, "{}: cannot move the new file into place: {}", name_, reason(errno));
  }
  is_moved_ = true;
}

void remove_temporary_files() noexcept {
  for (const Noted& file : noted_files) {
    if (file.state == Noted::is_there) ::unlink(file.path.data());
  }
}

}  // namespace paoding::files
