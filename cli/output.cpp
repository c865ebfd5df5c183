// SPDX-License-Identifier: Apache-2.0
// Everything that a user reads is written here, so that control characters in names and texts of files are escaped on
// the way: nothing else writes to a terminal.
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/env.h"
#include "command.h"
#include "interruption.h"
#include "text/printable.h"

namespace paoding::cli {
namespace {

int lost_output = 0;  // errno of the first write that failed
std::string waiting;  // for stdout

constexpr int kOutputPollMs = 200;  // for a reader that is slow; a signal that comes before the wait is seen after that

// False, with errno, when nobody takes them any more: EINTR when a signal came and nobody does within a turn. A write
// of more than there is room for would wait for a reader, whatever comes.
bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    pollfd room{.fd = descriptor, .events = POLLOUT, .revents = 0};
    const int ready = ::poll(&room, 1, kOutputPollMs);
    if (ready == 0 && interruption().is_cancelled()) {
      errno = EINTR;
      return false;
    }
    if (ready <= 0) continue;
    const ssize_t count = ::write(descriptor, bytes.data(), std::min<std::size_t>(bytes.size(), PIPE_BUF));
    if (count >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno != EINTR && errno != EAGAIN) {
      return false;
    }
  }
  return true;
}

// Writes whole lines, at most as many bytes as a pipe takes atomically: however this process ends, its output ends with
// a whole line.
void hand_over(std::string_view lines) {
  while (!lines.empty() && lost_output == 0) {
    std::size_t length = lines.size();
    if (length > PIPE_BUF) {
      std::size_t end = lines.rfind('\n', PIPE_BUF - 1);
      if (end == std::string_view::npos) end = lines.find('\n');
      if (end != std::string_view::npos) length = end + 1;
    }
    if (!write_all(STDOUT_FILENO, lines.substr(0, length))) lost_output = errno;
    lines.remove_prefix(length);
  }
}

}  // namespace

void print_text(std::string_view text) {
  static const bool is_terminal = isatty(STDOUT_FILENO) == 1;
  if (lost_output != 0 || text.empty()) return;
  waiting += printable(text);
  if (is_terminal) return flush_output();
  if (waiting.size() < PIPE_BUF) return;
  const std::size_t end = waiting.rfind('\n') + 1;  // npos + 1 is 0
  hand_over(std::string_view(waiting).substr(0, end));
  waiting.erase(0, end);
}

void print_report(std::string_view text) {
  if (isatty(STDOUT_FILENO) != 1 || !env_text("NO_COLOR").empty()) return print_text(text);
  while (!text.empty()) {
    const std::size_t length = std::min(text.find('\n'), text.size() - 1) + 1;
    const bool is_title = text.starts_with("-----");
    if (is_title) waiting += "\x1b[1m";
    waiting += printable(text.substr(0, length));
    if (is_title) waiting += "\x1b[0m";
    text.remove_prefix(length);
  }
  flush_output();
}

void print_error_text(std::string_view text) { write_all(STDERR_FILENO, printable(text)); }

std::string bounded(const std::string& message) {
  constexpr std::size_t kMostBytes = 8192, kEndBytes = 2048, kNoteBytes = 64;
  if (message.size() <= kMostBytes) return message;
  const auto is_inside_character = [&](std::size_t at) {
    return (static_cast<unsigned char>(message[at]) & 0xc0) == 0x80;
  };
  std::size_t begin = kMostBytes - kEndBytes - kNoteBytes, end = message.size() - kEndBytes;
  while (begin > 0 && is_inside_character(begin)) --begin;
  while (end < message.size() && is_inside_character(end)) ++end;
  return fmt::format("{} .. ({} bytes left out) .. {}", message.substr(0, begin), end - begin, message.substr(end));
}

void flush_output() {
  hand_over(waiting);
  waiting.clear();
}

bool output_is_lost() { return lost_output != 0; }

bool finish_output() {
  flush_output();
  if (lost_output == 0 || lost_output == EPIPE || lost_output == EINTR) return true;
  print_error("paoding: writing the output: {}\n", std::strerror(lost_output));
  return false;
}

void show_progress(std::string_view text) {
  static const bool is_terminal = isatty(STDERR_FILENO) == 1;
  static bool is_shown = false;
  if (!is_terminal || (text.empty() && !is_shown)) return;
  // A text longer than the terminal's width would wrap into a line that nothing clears.
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1) text = text.substr(0, size.ws_col - 1u);
  write_all(STDERR_FILENO, "\r\x1b[K" + printable(text, ""));
  is_shown = !text.empty();
}

}  // namespace paoding::cli
