// SPDX-License-Identifier: Apache-2.0
// paoding profile: runs a command under the profiler. paoding report: of a recording, or of another's trace, in a file.
#include "paoding/profile.h"

#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "base/check.h"
#include "base/one_line.h"
#include "command.h"
#include "io/files.h"
#include "profile/recording.h"
#include "profile/report.h"
#include "profile/save.h"
#include "profile/trace_merge.h"
#include "report_flags.h"
#include "trace/ranks.h"

namespace paoding::cli {
namespace {

namespace fs = std::filesystem;

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
  throw UsageError(fmt::format("--path is '{}', needs to end in .json, .json.gz, .pftrace or .paoding", path));
}

std::string report_of(const profile::Trace& trace, const std::string& state, const ReportFlags& flags) {
  return profile::report(trace,
                         profile::report_options(parse_state(state), flags.level(), flags.sort_by(), flags.layout));
}

void save_trace(const profile::Trace& trace, const std::string& path) {
  if (const std::string elsewhere = profile::save(trace, path); !elsewhere.empty()) {
    print_error("paoding: {}\n", one_line(elsewhere));
  }
}

// A folder for the recordings of the command and of those that it starts; gone with this.
class RecordingFolder {
 public:
  RecordingFolder() {
    std::string name = (fs::temp_directory_path() / "paoding_profile_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr)
      fail(ErrorKind::file, "{}: cannot make the folder: {}", name, files::reason(errno));
    path_ = name;
  }
  ~RecordingFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  RecordingFolder(const RecordingFolder&) = delete;
  RecordingFolder& operator=(const RecordingFolder&) = delete;

  const fs::path& path() const { return path_; }
  std::vector<fs::path> recordings() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(path_)) {
      if (entry.path().extension() == ".paoding") found.push_back(entry.path());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

 private:
  fs::path path_;
};

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

// One, or several processes of the same.
bool is_one_program(const std::vector<profile::NamedTrace>& traces) {
  if (traces.empty()) return false;
  try {
    profile::check_mergeable(traces);
    return true;
  } catch (const Error&) {
    return false;
  }
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
  if (std::find(own.begin(), own.end(), words[0]) != own.end()) words.insert(words.begin(), "/proc/self/exe");
  const RecordingFolder folder;
  const int code =
      run_command(words, fmt::format("folder={};state={};detail={};steps={};cupti={}", folder.path().string(),
                                     options.state, options.report.detail, options.steps, options.cupti_steps));
  const std::vector<fs::path> recordings = folder.recordings();
  if (recordings.empty()) {
    print_error("paoding: profile: nothing was recorded: {} is no program of paoding's, or ended before it began{}\n",
                one_line(options.command[0]), options.steps.empty() ? "" : ", or recorded itself then");
    return code == kOk ? kFailed : code;
  }
  std::vector<profile::NamedTrace> traces;
  for (const fs::path& path : recordings) {
    profile::Trace trace = profile::read_recording_of_killed(path.string());
    if (trace.size() == 0 && recordings.size() > 1) continue;  // one that only started others
    traces.push_back({path.stem().string(), std::move(trace)});
  }
  if (is_one_program(traces)) {
    const profile::Trace all = profile::merge(std::move(traces));
    print_report("\n" + report_of(all, options.state, options.report));
    save_trace(all, options.path);
    return code;
  }
  for (const profile::NamedTrace& one : traces) {
    print("\nprocess {}\n", one.name);
    print_report("\n" + report_of(one.trace, options.state, options.report));
    if (&one == &traces.front()) save_trace(one.trace, options.path);
  }
  return code;
}

int run_report(ReadOptions& options) {
  options.report.check(true, "");
  check_path(options.path);
  try {
    parse_state(options.state);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  const profile::Trace trace = trace::read_traces(options.files);
  save_trace(trace, options.path);
  print_report(report_of(trace, options.state, options.report));
  return kOk;
}

void add_path(CLI::App& sub, std::string* path, std::string* state) {
  sub.add_option("--path", *path,
                 "Also write the timeline (Chrome's trace format: .json, .json.gz; Perfetto's: .pftrace), or the\n"
                 "recording, which `paoding report` reads (.paoding)")
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
                         std::vector<std::string> own;
                         for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; })) {
                           own.push_back(one->get_name());
                         }
                         options->command = sub->remaining();
                         return run_profile(*options, own);
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
      "  paoding report run.paoding --path run.pftrace\n"
      "  paoding report worker0.pt.trace.json.gz --kernels --width 80\n"
      "  paoding report rank0.paoding rank1.paoding --path all.pftrace\n"
      "  paoding report traces/ --format json");
  commands->push_back({sub, [options] { return run_report(*options); }});
}

}  // namespace paoding::cli
