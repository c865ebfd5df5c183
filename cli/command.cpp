// SPDX-License-Identifier: Apache-2.0
#include "command.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "base/check.h"
#include "base/env.h"
#include "passes/pass.h"
#include "text/suggest.h"

namespace paoding::cli {

// ---- printing ----

namespace {
int lost_output = 0;  // errno of the first write that failed
}

void print_text(std::string_view text) {
  if (lost_output != 0 || text.empty()) return;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) lost_output = errno == 0 ? EIO : errno;
}

void print_error_text(std::string_view text) {
  [[maybe_unused]] const std::size_t written = std::fwrite(text.data(), 1, text.size(), stderr);
}

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

// A flush that fails forgets what was to be written: the next one does not fail.
void flush_output() {
  if (lost_output == 0 && std::fflush(stdout) != 0) lost_output = errno == 0 ? EIO : errno;
}

bool output_is_lost() { return lost_output != 0; }

bool finish_output() {
  flush_output();
  if (lost_output == 0 || lost_output == EPIPE) return true;
  print_error("paoding: writing the output: {}\n", std::strerror(lost_output));
  return false;
}

void show_progress(std::string_view text) {
  static const bool is_terminal = isatty(STDERR_FILENO) == 1;
  static bool is_shown = false;
  if (!is_terminal || (text.empty() && !is_shown)) return;
  // A failed write of progress is nobody's loss.
  // What is longer than the terminal is wide would go on in a line that nothing clears.
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1) text = text.substr(0, size.ws_col - 1u);
  const std::string line = fmt::format("\r\x1b[K{}", text);
  [[maybe_unused]] const auto written = write(STDERR_FILENO, line.data(), line.size());
  is_shown = !text.empty();
}

// ---- interruption ----

namespace {

std::atomic<std::int64_t> interrupted_at = 0;  // ms of the monotonic clock; 0: not yet
std::atomic<int> interrupted_by = SIGINT;
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "a signal may only touch lock-free atomics");

std::int64_t now_ms() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

void on_interrupt(int signal) {
  constexpr char kText[] = "\npaoding: stopping; once more to stop at once\n";
  constexpr std::int64_t kSameMs = 300;  // `timeout` and terminals may send one interrupt twice
  std::int64_t first = 0;
  if (!interrupted_at.compare_exchange_strong(first, now_ms())) {
    if (now_ms() - first > kSameMs) _exit(signal == SIGTERM ? kTerminated : kInterrupted);
    return;
  }
  interrupted_by = signal;
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kText, sizeof kText - 1);
}

}  // namespace

void catch_interrupts() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void hold_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is this one.
    [[maybe_unused]] const int held = open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void check_interrupted() {
  if (interrupted_at.load() != 0) throw Interrupted{interrupted_by == SIGTERM ? kTerminated : kInterrupted};
}

// ---- what subcommands have in common ----

void CompileFlags::add_to(CLI::App& app) {
  app.add_option("--device", device, "cpu, cuda, cuda:N, or best: the first GPU that works, else the CPU")
      ->type_name("DEVICE")
      ->capture_default_str();
  app.add_option("--no-pass", no_pass, "Passes to leave out, split by commas; alias_views makes every view a copy")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAMES");
  app.add_flag("--tf32", allow_tf32, "On a GPU, f32 products may round their operands to TF32");
  app.add_flag("--explain", explain, "Print what every pass did and why kernels declined (as PAODING_EXPLAIN=1)");
}

CompileOptions CompileFlags::options() const {
  CompileOptions options;
  options.device = parse_device(device);
  check_pass_names(no_pass);
  options.disabled_passes = no_pass;
  options.allow_tf32 = allow_tf32;
  return options;
}

Device parse_device(const std::string& text) {
  if (text == "best") return Device::best();
  if (text == "cpu") return Device::cpu();
  if (text == "cuda") return Device::cuda(0);
  constexpr std::string_view kPrefix = "cuda:";
  if (text.starts_with(kPrefix) && text.size() > kPrefix.size()) {
    int index = -1;
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data() + kPrefix.size(), end, index);
    if (parsed.ec == std::errc() && parsed.ptr == end && index >= 0) return Device::cuda(index);
  }
  throw UsageError(fmt::format("--device is '{}', needs to be cpu, cuda, cuda:N or best", text));
}

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const Pass& pass : pipeline()) {
    if (std::find(names.begin(), names.end(), pass.name) == names.end()) names.push_back(pass.name);
  }
  return names;
}

void check_pass_names(const std::vector<std::string>& names) {
  const std::vector<std::string> all = pass_names();
  for (const std::string& name : names) {
    if (std::find(all.begin(), all.end(), name) != all.end()) continue;
    throw UsageError(
        fmt::format("there is no pass named '{}'{}; there are: {}", name, suggestion(name, all), fmt::join(all, ", ")));
  }
}

std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

void check_folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder)) {
    fail(ErrorKind::file, "{}: there is no folder {} to write to", path, folder.string());
  }
}

std::string read_text(const std::string& path) {
  std::FILE* file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) fail(ErrorKind::file, "{}: {}", path, std::strerror(errno));
  std::string text;
  char piece[1 << 16];
  std::size_t count = 0;
  while ((count = std::fread(piece, 1, sizeof piece, file)) > 0) text.append(piece, count);
  const bool failed = std::ferror(file) != 0;
  const int why = errno;
  if (file != stdin) std::fclose(file);
  if (failed) fail(ErrorKind::file, "{}: {}", path, std::strerror(why));
  return text;
}

std::unique_ptr<Graph> load_graph(const std::string& path) {
  const std::string text = read_text(path);
  try {
    return parse_graph(text);
  } catch (const Error& error) {
    constexpr std::string_view kPlace = "<graph text>";
    std::string message = error.what();
    const std::string name = path == "-" ? "<stdin>" : path;
    if (message.starts_with(kPlace)) {
      message = name + message.substr(kPlace.size());
    } else {
      message = name + ": " + message;
    }
    throw Error(error.kind(), message);
  }
}

void explain(const CompileFlags& flags, const CompileReport& report) {
  if (!flags.explain && !env_flag("PAODING_EXPLAIN")) return;
  for (const CompileReport::Pass& pass : report.passes) {
    print_error("pass {}: {} -> {} nodes, {:.2f} ms\n", pass.name, pass.nodes_before, pass.nodes_after,
                pass.milliseconds);
    for (const std::string& note : pass.notes) print_error("  {}\n", note);
  }
  print_error("plan: {} launches, {} bytes of arena\n", report.launches, report.arena_bytes);
  for (const std::string& note : report.plan_notes) print_error("  {}\n", note);
}

}  // namespace paoding::cli
