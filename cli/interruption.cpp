// SPDX-License-Identifier: Apache-2.0
// Ctrl-C, SIGTERM and the terminal's end. One of them ends every command within a second: at the next
// check_interrupted(), or from a timer when none comes.
#include "interruption.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>

#include "command.h"
#include "io/temporary_file.h"

namespace paoding::cli {
namespace {

constexpr std::int64_t kSameMs = 300;  // `timeout` and terminals may send one interrupt twice
constexpr int kGraceMs = 500;          // to come to a check_interrupted(), and to the end from there

std::atomic<int> interrupted_by = 0;           // the first signal
std::atomic<std::int64_t> interrupted_at = 0;  // ms of the monotonic clock
std::atomic<int> savers = 0;                   // objects of SavesWhenInterrupted
const Cancellation called_off;
std::atomic<bool> is_terminal = false;  // stderr
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "a signal may only touch lock-free atomics");

std::int64_t now_ms() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

// To stderr from a handler, which must not wait for a reader that does not read.
void say(const char* text, std::size_t length) {
  pollfd room{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (::poll(&room, 1, 0) != 1) return;
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, length);
}

[[noreturn]] void end_at_once(int signal) {
  files::remove_temporary_files();
  _exit(kSignal + signal);
}

void start_grace() {
  const itimerval grace = {.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = kGraceMs * 1000}};
  setitimer(ITIMER_REAL, &grace, nullptr);  // on Linux a system call and no more, as a handler needs it
}

void on_interrupt(int signal) {
  constexpr char kSaving[] = "\npaoding: stopping; once more to stop at once\n";
  const int error = errno;
  int none = 0;
  if (interrupted_by.compare_exchange_strong(none, signal)) {
    interrupted_at = now_ms();
    called_off.cancel();
    savers > 0 ? say(kSaving, sizeof kSaving - 1) : start_grace();
  } else if (signal != SIGHUP) {  // a terminal that closes, and its shell, send several of these
    const std::int64_t first = interrupted_at;
    if (first != 0 && now_ms() - first > kSameMs) end_at_once(signal);
  }
  errno = error;
}

void on_grace_over(int) {
  constexpr char kText[] = "\r\x1b[Kpaoding: interrupted\n";
  constexpr std::size_t kControl = 4;  // the bytes that clear the line of show_progress()
  const std::size_t from = is_terminal ? 0 : kControl;
  say(kText + from, sizeof kText - 1 - from);
  end_at_once(interrupted_by);
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

}  // namespace

void catch_interrupts() {
  is_terminal = isatty(STDERR_FILENO) == 1;
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  handle(SIGALRM, on_grace_over);
  handle(SIGINT, on_interrupt);
  handle(SIGTERM, on_interrupt);
  struct sigaction hangup = {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) handle(SIGHUP, on_interrupt);  // nohup
  sigset_t caught;
  sigemptyset(&caught);
  for (const int signal : {SIGALRM, SIGINT, SIGTERM, SIGHUP}) sigaddset(&caught, signal);
  pthread_sigmask(SIG_UNBLOCK, &caught, nullptr);  // whatever the parent had blocked
}

void leave_interrupts_to_child() {
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_DFL);
}

void hold_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is this one.
    [[maybe_unused]] const int held = open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void check_interrupted() {
  if (const int signal = interrupted_by; signal != 0) throw Interrupted{kSignal + signal};
}

Cancellation interruption() { return called_off; }

SavesWhenInterrupted::SavesWhenInterrupted() {
  savers += 1;
  if (interrupted_by == 0) return;
  savers -= 1;  // there is nothing to save yet
  check_interrupted();
}

SavesWhenInterrupted::~SavesWhenInterrupted() {
  savers -= 1;
  if (interrupted_by != 0) start_grace();
}

}  // namespace paoding::cli
