// SPDX-License-Identifier: Apache-2.0
#include "line_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "command.h"

namespace paoding::cli {
namespace {

constexpr std::size_t kPieceBytes = 1 << 16, kMostLineBytes = 16 << 20;
constexpr int kPollMs = 200;  // a signal that comes between the check and the wait is seen after that

}  // namespace

LineReader::LineReader(const std::string& path)
    : name_(path == "-" ? "<stdin>" : path),
      descriptor_(path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) fail(ErrorKind::file, "{}: {}", name_, std::strerror(errno));
}

LineReader::~LineReader() {
  if (descriptor_ != STDIN_FILENO) ::close(descriptor_);
}

bool LineReader::is_terminal() const { return isatty(descriptor_) == 1; }
std::string LineReader::place() const { return fmt::format("{}:{}", name_, line_); }

bool LineReader::read_more() {
  while (true) {
    check_interrupted();
    pollfd waiting{.fd = descriptor_, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, kPollMs) <= 0) continue;  // nothing yet, or a signal
    char piece[kPieceBytes];
    const ssize_t count = ::read(descriptor_, piece, sizeof piece);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0) fail(ErrorKind::file, "{}: {}", name_, std::strerror(errno));
    if (count == 0) return false;
    buffer_.erase(0, at_);
    at_ = 0;
    buffer_.append(piece, static_cast<std::size_t>(count));
    return true;
  }
}

bool LineReader::next(std::string* line) {
  std::size_t looked = at_;
  while (true) {
    const std::size_t end = buffer_.find('\n', looked);
    if (end != std::string::npos) {
      *line = buffer_.substr(at_, end - at_);
      at_ = end + 1;
      break;
    }
    if (buffer_.size() - at_ > kMostLineBytes) {
      fail(ErrorKind::file, "{}:{}: the line has more than {} bytes", name_, line_ + 1, kMostLineBytes);
    }
    const std::size_t kept = buffer_.size() - at_;
    if (!read_more()) {
      if (kept == 0) return false;
      *line = buffer_.substr(at_);
      at_ = buffer_.size();
      break;
    }
    looked = kept;  // what was kept is at the beginning now
  }
  if (!line->empty() && line->back() == '\r') line->pop_back();
  line_ += 1;
  return true;
}

}  // namespace paoding::cli
