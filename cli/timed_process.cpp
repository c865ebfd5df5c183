// SPDX-License-Identifier: Apache-2.0
#include "timed_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/one_line.h"
#include "command.h"
#include "io/files.h"

namespace paoding::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kProcessPollTime = std::chrono::milliseconds(100);  // for an interrupt
constexpr auto kPatience = std::chrono::milliseconds(2000);        // with a process that was told to end

// Runs in the child, so only async-signal-safe calls are allowed (between fork and exec).
[[noreturn]] void become(char* const* arguments, char* const* environment, int output, int problem) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // without the one who measures it there is no use for it
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  if (output >= 0) dup2(output, STDOUT_FILENO), dup2(output, STDERR_FILENO);
  execvpe(arguments[0], arguments, environment);
  const int why = errno;
  [[maybe_unused]] const auto told = write(problem, &why, sizeof why);
  _exit(127);
}

// Waits on a thread of its own, so that the time of the end is that of the end, while this one looks for interrupts.
class Waiting {
 public:
  explicit Waiting(pid_t child) : child_(child), thread_([this] { wait(); }) {}
  ~Waiting() { thread_.join(); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  bool is_over(std::chrono::milliseconds at_most) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, at_most, [&] { return is_over_; });
  }
  int status() const { return status_; }
  Clock::time_point end() const { return end_; }

 private:
  void wait() {
    int status = 0;
    while (waitpid(child_, &status, 0) < 0 && errno == EINTR) {
    }
    const Clock::time_point end = Clock::now();
    const std::scoped_lock lock(mutex_);
    status_ = status, end_ = end, is_over_ = true;
    changed_.notify_one();
  }

  const pid_t child_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
  int status_ = 0;
  Clock::time_point end_;
  std::thread thread_;  // last: it uses all of them
};

}  // namespace

std::string last_lines(const std::filesystem::path& path) {
  constexpr std::streamoff kMostBytes = 4000;
  constexpr int kMostLines = 20;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const std::streamoff size = file.tellg(), from = std::max<std::streamoff>(0, size - kMostBytes);
  file.seekg(from);
  std::string text(static_cast<std::size_t>(size - from), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  while (text.ends_with('\n')) text.pop_back();
  std::size_t at = text.size();
  for (int line = 0; line < kMostLines && at != text.npos && at > 0; ++line) at = text.rfind('\n', at - 1);
  if (at != text.npos && at > 0) text.erase(0, at + 1);
  return text;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> made;
  for (std::string& text : texts) made.push_back(text.data());
  made.push_back(nullptr);
  return made;
}

std::vector<std::string> environment_with(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> all;
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string_view text = *one;
    if (!variables.contains(std::string(text.substr(0, text.find('='))))) all.emplace_back(text);
  }
  for (const auto& [name, value] : variables) all.push_back(name + "=" + value);
  return all;
}

TimedProcess run_timed(const std::vector<std::string>& words, const std::map<std::string, std::string>& variables,
                       const std::filesystem::path& output) {
  flush_output();
  std::vector<std::string> arguments = words, environment = environment_with(variables);
  const std::vector<char*> argument_pointers = pointers(arguments), environment_pointers = pointers(environment);
  int problem[2];
  if (pipe2(problem, O_CLOEXEC) != 0) fail(ErrorKind::device, "diff: no pipe: {}", files::reason(errno));
  const files::Descriptor problem_read(problem[0]);
  files::Descriptor problem_write(problem[1]), to;
  if (!output.empty()) {
    to = files::Descriptor(open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!to.is_open()) fail(ErrorKind::file, "{}: {}", output.string(), files::reason(errno));
  }
  const Clock::time_point start = Clock::now();
  const pid_t child = fork();
  if (child < 0) fail(ErrorKind::device, "diff: no process can be started: {}", files::reason(errno));
  if (child == 0) {
    leave_interrupts_to_child();
    become(argument_pointers.data(), environment_pointers.data(), to.get(), problem_write.get());
  }
  setpgid(child, child);  // here too: whoever comes first
  problem_write = files::Descriptor();
  Waiting waiting(child);
  try {
    while (!waiting.is_over(kProcessPollTime)) check_interrupted();
  } catch (const Interrupted&) {
    kill(-child, SIGTERM);
    if (!waiting.is_over(kPatience)) kill(-child, SIGKILL);
    throw;
  }
  int why = 0;
  if (read(problem_read.get(), &why, sizeof why) == sizeof why) {
    fail(ErrorKind::device, "diff: {} cannot be started: {}", one_line(words[0]), files::reason(why));
  }
  TimedProcess ran;
  ran.wall_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(waiting.end() - start).count();
  const int status = waiting.status();
  ran.code = WIFSIGNALED(status) ? kSignal + WTERMSIG(status) : WEXITSTATUS(status);
  if (!output.empty()) ran.output = last_lines(output);
  return ran;
}

}  // namespace paoding::cli
