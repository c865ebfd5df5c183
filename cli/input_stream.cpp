// SPDX-License-Identifier: Apache-2.0
#include "input_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"
#include "command.h"

namespace paoding::cli {
namespace {

constexpr int kInputPollMs = 200;  // a signal that comes between the check and the wait is seen after that

}  // namespace

InputStream::InputStream(const std::string& path)
    : name_(path == "-" ? "<stdin>" : path),
      opened_(path == "-" ? -1 : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY)),
      descriptor_(path == "-" ? STDIN_FILENO : opened_.get()) {
  if (descriptor_ < 0) fail(ErrorKind::file, "{}: {}", name_, files::reason(errno));
}

bool InputStream::is_terminal() const { return isatty(descriptor_) == 1; }

std::size_t InputStream::read(char* to, std::size_t size) {
  while (true) {
    check_interrupted();
    pollfd waiting{.fd = descriptor_, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, kInputPollMs) <= 0) continue;  // nothing yet, or a signal
    const ssize_t count = ::read(descriptor_, to, size);
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno != EINTR && errno != EAGAIN) fail(ErrorKind::file, "{}: {}", name_, files::reason(errno));
  }
}

}  // namespace paoding::cli
