// SPDX-License-Identifier: Apache-2.0
// paoding profile: runs a command under the profiler. paoding report: of a recording, or of another's trace, in a file.
#include "paoding/profile.h"

#include <sys/wait.h>
#include <unistd.h>
#if __has_include(<malloc.h>)
#include <malloc.h>
#endif

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <system_error>

#include "base/check.h"
#include "base/memory.h"
#include "base/one_line.h"
#include "command.h"
#include "io/files.h"
#include "profile/recording.h"
#include "profile/report.h"
#include "profile/save.h"
#include "recordings.h"
#include "report_flags.h"
#include "trace/ranks.h"

namespace paoding::cli {
namespace {

struct ProfileOptions {
  std::vector<std::string> command;
  std::string state = "all", steps, cupti_steps, path;
  ReportFlags report;
};

struct ReadOptions {
  std::vector<std::string> files;
  std::string path, state = "all";
  ReportFlags report;
};

void check_path(const std::string& path) {
  check_folder_of(path);
  if (path.empty() || profile::is_saved_as(path)) return profile::check_saveable(path);
  throw UsageError(fmt::format("--path is '{}', needs to end in .json, .json.gz, .pftrace, .paoding or .html", path));
}

// Prints its report, and writes the files that were asked for.
void show(const profile::Trace& trace, const std::string& state, const ReportFlags& flags,
          std::initializer_list<std::string> files) {
  const profile::ReportOptions options =
      profile::report_options(parse_state(state), flags.level(), flags.sort_by(), flags.layout);
  const profile::Measures measures = profile::measure(trace, options);
  print_report(profile::report(measures, options));
  for (const std::string& file : files) {
    const std::string elsewhere = profile::save(trace, measures, options, file);
    if (!elsewhere.empty()) print_error("paoding: {}\n", one_line(elsewhere));
  }
}

// Its exit code; of one that a signal ended 128 and the signal's number, as shells have it.
int run_command(const std::vector<std::string>& words, const std::string& environment) {
  flush_output();
  const pid_t child = fork();
  if (child < 0) fail(ErrorKind::device, "profile: no process can be started: {}", files::reason(errno));
  if (child == 0) {
    leave_interrupts_to_child();
    setenv("PAODING_PROFILE", environment.c_str(), 1);
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    print_error("paoding: profile: {} cannot be started: {}\n", one_line(words[0]), files::reason(errno));
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? kSignal + WTERMSIG(status) : WEXITSTATUS(status);
}

int run_profile(ProfileOptions& options, const std::vector<std::string>& own) {
  options.report.check(true, "");
  check_path(options.path);
  try {
    parse_state(options.state);
    for (const std::string& steps : {options.steps, options.cupti_steps}) {
      if (!steps.empty()) parse_steps(steps);
    }
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  std::vector<std::string> words = options.command;
  if (words.empty()) throw UsageError("profile: what is to be run is missing");
  if (std::ranges::find(own, words[0]) != own.end()) words.insert(words.begin(), own_program());
  const TemporaryFolder folder("paoding_profile");
  const RecordingRequest request{options.state, options.report.detail, options.steps, options.cupti_steps};
  const int code = run_command(words, request.text(folder.path()));
  const std::vector<std::filesystem::path> recordings = recordings_in(folder.path());
  if (recordings.empty()) {
    print_error("paoding: profile: nothing was recorded: {} is no program of paoding's, or ended before it began{}\n",
                one_line(options.command[0]), options.steps.empty() ? "" : ", or recorded itself then");
    return code == kOk ? kFailed : code;
  }
  std::vector<profile::NamedTrace> traces = read_recordings(recordings);
  if (is_one_program(traces)) {
    const profile::Trace all = profile::merge(std::move(traces));
    print("\n");
    show(all, options.state, options.report, {options.path, options.report.layout.page});
    return code;
  }
  for (const profile::NamedTrace& one : traces) {
    print("\nprocess {}\n\n", one.name);
    if (&one == &traces.front()) {
      show(one.trace, options.state, options.report, {options.path, options.report.layout.page});
    } else {
      show(one.trace, options.state, options.report, {});
    }
  }
  return code;
}

// A report of a large trace needs large arrays for a while. Once glibc has freed some it keeps ever larger ones for
// itself, in pieces: a fifth more memory in all. Smaller traces are read sooner with memory that is kept.
void give_large_memory_back([[maybe_unused]] const std::vector<std::string>& files) {
#if defined(__GLIBC__)
  constexpr std::uintmax_t kLargeTrace = std::uintmax_t{1} << 29, kPacked = 8;  // gzip makes traces smaller by more
  constexpr int kLargeArray = 1 << 20;
  std::uintmax_t bytes = 0;
  for (const std::string& file : files) {
    std::error_code problem;
    const std::uintmax_t size = std::filesystem::file_size(file, problem);
    if (!problem) bytes += file.ends_with(".gz") ? size * kPacked : size;
  }
  if (bytes >= kLargeTrace) mallopt(M_MMAP_THRESHOLD, kLargeArray);
#endif
}

int run_report(ReadOptions& options) {
  options.report.check(true, "");
  check_path(options.path);
  try {
    parse_state(options.state);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  give_large_memory_back(options.files);
  try {
    const profile::Trace trace = trace::read_traces(options.files);
    show(trace, options.state, options.report, {options.path, options.report.layout.page});
  } catch (const std::bad_alloc&) {
    fail(ErrorKind::file, "{}: not enough memory for a report of it: {}\nRaise the limit, or record fewer steps",
         options.files.front(), memory_left());
  }
  return kOk;
}

void add_path(CLI::App& sub, std::string* path, std::string* state) {
  sub.add_option("--path", *path,
                 "Also write the timeline (Chrome's trace format: .json, .json.gz; Perfetto's: .pftrace), or the\n"
                 "recording, which `paoding report` reads (.paoding), or what --html does (.html)")
      ->type_name("FILE");
  sub.add_option("--state", *state, "What is shown: cpu, gpu or all")->type_name("SIDE")->capture_default_str();
}

}  // namespace

void add_profile(CLI::App& app, Commands* commands) {
  auto options = std::make_shared<ProfileOptions>();
  CLI::App* sub = app.add_subcommand(
      "profile",
      "Run a command under the profiler, and show where its time went\n\n"
      "The command is one of paoding's (run, train, ..) or any program that is linked with libpaoding; neither has to "
      "be\n"
      "changed. Processes of one program become one report. What is recorded goes to a file meanwhile, so that of a "
      "program that crashes there is a report too. "
      "The exit\n"
      "code is the command's.");
  sub->prefix_command();
  add_path(*sub, &options->path, &options->state);
  sub->add_option("--steps", options->steps, "Record these runs of programs only, counted from 0: 2:8 is 2 to 7")
      ->type_name("FIRST:END");
  sub->add_option("--cupti-steps", options->cupti_steps, kCuptiStepsHelp)->type_name("FIRST:END");
  options->report.add_to(*sub);
  sub->footer(
      "Examples:\n"
      "  paoding profile run examples/graphs/lstm.txt --random 7 --repeat 50\n"
      "  paoding profile --steps 10:20 --path steps.pftrace train g2p --epochs 1\n"
      "  paoding profile --nest scope ./my_program with its arguments");
  commands->push_back({sub, [sub, options, &app] {
                         options->command = sub->remaining();
                         return run_profile(*options, command_names(app));
                       }});
}

void add_report(CLI::App& app, Commands* commands) {
  auto options = std::make_shared<ReadOptions>();
  CLI::App* sub = app.add_subcommand("report",
                                     "Show the Profiling Report of a recording, or of a trace of another framework\n\n"
                                     "Reads what `--profile-path FILE.paoding`, `paoding profile` or a program of "
                                     "yours wrote, and traces that others\n"
                                     "wrote: JSON of PyTorch's profiler (Kineto), of JAX (XLA), TensorFlow or whoever "
                                     "writes Chrome's trace format; XLA's\n"
                                     ".xplane.pb, Nsight Systems' SQLite, Perfetto's and rocprof's traces; packed by "
                                     "gzip or not. A file is known by its\n"
                                     "content; one that was cut off is read as far as it goes, and the line Not seen "
                                     "of the report says what is missing.\n"
                                     "Recordings of several processes of one program, ranks of a training among them, "
                                     "or a folder of them, become one\n"
                                     "report and one timeline: those of one machine on its clock, machines beside each "
                                     "other by their wall clocks; others'\n"
                                     "traces by the ends of their collectives where every rank has the same.");
  sub->add_option("FILE", options->files, "The recording or trace, one of every process, or a folder of them")
      ->type_name("")
      ->required();
  add_path(*sub, &options->path, &options->state);
  options->report.add_to(*sub);
  sub->footer(
      "Examples:\n"
      "  paoding report run.paoding --detail phases --sort max\n"
      "  paoding report run.paoding --format csv > run.csv\n"
      "  paoding report run.paoding --html run.html\n"
      "  paoding report run.paoding --path run.pftrace\n"
      "  paoding report worker0.pt.trace.json.gz --kernels --width 80\n"
      "  paoding report rank0.paoding rank1.paoding --path all.pftrace\n"
      "  paoding report traces/ --format json");
  commands->push_back({sub, [options] { return run_report(*options); }});
}

}  // namespace paoding::cli
