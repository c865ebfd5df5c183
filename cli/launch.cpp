// SPDX-License-Identifier: Apache-2.0
#include "launch.h"

#include <fcntl.h>
#include <omp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/check.h"
#include "base/env.h"
#include "base/one_line.h"
#include "command.h"
#include "interruption.h"
#include "io/files.h"
#include "timed_process.h"

namespace paoding::cli {
namespace {

using LaunchClock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr auto kPollRanks = std::chrono::milliseconds(20);
constexpr auto kTimeToEnd = std::chrono::seconds(2);  // of the other ranks, when one has failed

// A folder in which the ranks find each other; it goes with this.
class MeetingPlace {
 public:
  MeetingPlace() {
    std::string path = (fs::temp_directory_path() / "paoding-ranks-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) fail(ErrorKind::file, "{}: {}", path, files::reason(errno));
    path_ = path;
  }
  ~MeetingPlace() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Rank {
  int number = 0;
  pid_t process = -1;
  bool is_over = false;
  int status = 0;  // as waitpid tells it
  std::string log = {};

  bool has_failed() const { return is_over && !(WIFEXITED(status) && ends_well(WEXITSTATUS(status))); }
  static bool ends_well(int code) { return code == kOk || code > kSignal; }
  int code() const { return WIFSIGNALED(status) ? kSignal + WTERMSIG(status) : WEXITSTATUS(status); }
  std::string end() const {
    return WIFSIGNALED(status)
               ? fmt::format("was killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)))
               : fmt::format("ended with exit code {}", WEXITSTATUS(status));
  }
};

// That of the interruption.
int signal_that_came() {
  try {
    check_interrupted();
  } catch (const Interrupted& interrupted) {
    return interrupted.code - kSignal;
  }
  return SIGTERM;
}

class Launched {
 public:
  explicit Launched(const Launch& launch) : launch_(launch) {
    std::error_code error;
    fs::create_directories(launch.folder, error);
    if (error) fail(ErrorKind::file, "{}: {}", launch.folder, error.message());
    try {
      for (int rank = 0; rank < launch.ranks; ++rank) start(rank);
    } catch (...) {
      kill_all(SIGKILL);
      throw;
    }
  }
  ~Launched() { kill_all(SIGKILL); }
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;

  int wait() {
    bool was_interrupted = false, has_killed = false;
    const Rank* first_failed = nullptr;
    LaunchClock::time_point failed_at, saved_at = LaunchClock::now();
    while (look()) {
      if (!was_interrupted && interruption().is_cancelled()) {
        was_interrupted = true;
        kill_all(signal_that_came());
      }
      for (const Rank& rank : ranks_) {
        if (!rank.has_failed() || !comes_before(rank, first_failed, has_killed)) continue;
        if (first_failed == nullptr) failed_at = LaunchClock::now();
        first_failed = &rank;
      }
      // Rank 0, which saves, may have been interrupted between two steps, of which the others wait for the next.
      if (!ranks_[0].is_over || !was_interrupted || first_failed != nullptr) saved_at = LaunchClock::now();
      const bool has_saved = was_interrupted && LaunchClock::now() - saved_at > kTimeToEnd;
      if (has_saved || (first_failed != nullptr && LaunchClock::now() - failed_at > kTimeToEnd)) {
        has_killed = true;
        kill_all(SIGKILL);
      }
      std::this_thread::sleep_for(kPollRanks);
    }
    if (was_interrupted && first_failed == nullptr) return ranks_[0].code();
    for (const Rank& rank : ranks_) {
      if (rank.has_failed() && comes_before(rank, first_failed, has_killed)) first_failed = &rank;
    }
    if (first_failed == nullptr) return ranks_[0].code();
    return told(*first_failed);
  }

 private:
  // Where several ranks are found to have failed at once, one that a signal has killed is the reason, unless
  // the signal was ours.
  static bool comes_before(const Rank& rank, const Rank* other, bool has_killed) {
    return other == nullptr || (!has_killed && WIFSIGNALED(rank.status) && !WIFSIGNALED(other->status));
  }

  void start(int number) {
    Rank rank{.number = number};
    std::vector<std::string> words = launch_.words;
    std::map<std::string, std::string> variables = launch_.variables;
    variables["RANK"] = variables["LOCAL_RANK"] = std::to_string(number);
    variables["WORLD_SIZE"] = std::to_string(launch_.ranks);
    variables["PAODING_STORE"] = "file:" + place_.path();
    std::vector<std::string> environment = environment_with(variables);
    const std::vector<char*> arguments = pointers(words), values = pointers(environment);
    files::Descriptor log;
    if (number > 0) {
      rank.log = (fs::path(launch_.folder) / fmt::format("rank{}.log", number)).string();
      log = files::Descriptor(open(rank.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
      if (!log.is_open()) fail(ErrorKind::file, "{}: {}", rank.log, files::reason(errno));
    }
    const pid_t parent = getpid();
    rank.process = fork();
    if (rank.process < 0) fail(ErrorKind::device, "ranks: no process can be started: {}", files::reason(errno));
    if (rank.process == 0) {  // only async-signal-safe calls from here to exec
      setpgid(0, 0);          // so that Ctrl-C comes once, from here
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != parent) _exit(kFailed);
      leave_interrupts_to_child();
      const int nothing = open("/dev/null", O_RDONLY);
      if (nothing >= 0) dup2(nothing, STDIN_FILENO);
      if (log.get() >= 0) dup2(log.get(), STDOUT_FILENO), dup2(log.get(), STDERR_FILENO);
      execve("/proc/self/exe", arguments.data(), values.data());
      _exit(127);
    }
    setpgid(rank.process, rank.process);
    ranks_.push_back(rank);
  }

  // Asks every process for its end; whether there is one that goes on.
  bool look() {
    bool goes_on = false;
    for (Rank& rank : ranks_) {
      if (rank.is_over) continue;
      const pid_t found = waitpid(rank.process, &rank.status, WNOHANG);
      rank.is_over = found == rank.process || (found < 0 && errno == ECHILD);
      goes_on |= !rank.is_over;
    }
    return goes_on;
  }

  void kill_all(int signal) {
    for (Rank& rank : ranks_) {
      if (!rank.is_over) kill(rank.process, signal);
      if (!rank.is_over && signal == SIGKILL) rank.is_over = waitpid(rank.process, &rank.status, 0) == rank.process;
    }
  }

  // Rank 0 has told why it ended, where it could; others have in their logs.
  int told(const Rank& failed) const {
    if (failed.number == 0 && WIFEXITED(failed.status)) return failed.code();
    std::string text =
        fmt::format("rank {} of {} {}, which ended the others", failed.number, launch_.ranks, failed.end());
    if (!failed.log.empty()) {
      const std::string lines = last_lines(failed.log);
      text += fmt::format("\nits log is {}{}{}", failed.log, lines.empty() ? "" : " and ends:\n", lines);
    }
    fail(ErrorKind::device, "{}", text);
  }

  const Launch& launch_;
  MeetingPlace place_;
  std::vector<Rank> ranks_;
};

}  // namespace

int launch_ranks(const Launch& launch) {
  const SavesWhenInterrupted waits;  // for the ranks to save
  return Launched(launch).wait();
}

std::pair<CLI::Option*, CLI::Option*> RankFlags::add_to(CLI::App& app) {
  CLI::Option* some =
      app.add_option("--ranks", ranks,
                     "Processes that work together, each on its part of every batch; on a GPU each has its own.\n"
                     "Started on this machine, unless torchrun, mpirun or srun has done so: docs/howto/several_gpus.md")
          ->check(whole_number(1, 1024))
          ->type_name("N");
  return {some, app.add_option("--gpus", gpus, "The same, on so many GPUs of this machine")
                    ->check(whole_number(1, 1024))
                    ->type_name("N")};
}

std::optional<RankPlace> RankFlags::place() const {
  if (ranks > 0 && gpus > 0 && ranks != gpus) {
    throw UsageError("--ranks and --gpus are both given, and differ: every rank has a GPU of its own");
  }
  std::optional<RankPlace> place = rank_of_environment();
  if (place && asked() > 0 && place->size != asked()) {
    throw UsageError(
        fmt::format("{} says that there are {} ranks, --ranks or --gpus {}", place->told_by, place->size, asked()));
  }
  if (place && place->size == 1) place.reset();
  return place;
}

Device RankFlags::device(const std::string& text, const std::optional<RankPlace>& place) const {
  Device device = gpus > 0 && text == "cpu" ? Device::cuda() : parse_device(text);
  if (!place) return device;
  if (text.starts_with("cuda:")) {
    throw UsageError("--device names a GPU: every rank has its own, that of its number (--device cuda)");
  }
  if (device.kind == DeviceKind::cuda) device.index = place->local_rank;
  return device;
}

int RankFlags::launch(const std::string& device, bool says_threads, const std::string& log_folder,
                      const std::vector<std::string>& more) const {
  const bool on_gpus = gpus > 0 || device.starts_with("cuda");
  if (const std::string missing = missing_for_ranks(on_gpus ? DeviceKind::cuda : DeviceKind::cpu); !missing.empty()) {
    fail(ErrorKind::unsupported, "ranks: {}", missing);
  }
  Launch launch{.ranks = static_cast<int>(asked()), .words = own_words(), .folder = log_folder};
  launch.words.insert(launch.words.end(), more.begin(), more.end());
  if (!says_threads && !env_value("OMP_NUM_THREADS")) {
    launch.variables["OMP_NUM_THREADS"] = std::to_string(std::max<std::int64_t>(1, omp_get_max_threads() / asked()));
  }
  if (!env_value("NCCL_NVLS_ENABLE")) launch.variables["NCCL_NVLS_ENABLE"] = "0";
  return launch_ranks(launch);
}

std::vector<std::string> own_words() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

void print_into(const std::string& path, bool errors) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  flush_output();
  const files::Descriptor log(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!log.is_open()) fail(ErrorKind::file, "{}: {}", path, files::reason(errno));
  dup2(log.get(), STDOUT_FILENO);
  if (errors) dup2(log.get(), STDERR_FILENO);
}

}  // namespace paoding::cli
