// SPDX-License-Identifier: Apache-2.0
// A recording that is asked for from outside: `paoding profile` sets PAODING_PROFILE, the library follows it when it is
// loaded, and the profiled program changes nothing. Spans go to a file during the recording, FOLDER/PID.paoding.
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>

#include "base/check.h"
#include "base/env.h"
#include "profile/recorder_state.h"

namespace paoding::profile {

namespace {

struct Asked {
  RecorderOptions options;
  StepWindow steps, by_cupti;  // of runs; all when `steps` is empty
  std::atomic<std::int64_t> runs{0};
  std::uint64_t recording = 0;  // that goes by CUPTI
  pid_t process = 0;
};

Asked& asked() {
  static auto* the_one = new Asked;
  return *the_one;
}

// "folder=/tmp/x;state=all;detail=op;steps=2:8;cupti=4:6"
void read(const std::string& text) {
  std::map<std::string, std::string> values;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(';', at), text.size()), equals = text.find('=', at);
    if (equals < end) values[text.substr(at, equals - at)] = text.substr(equals + 1, end - equals - 1);
    at = end + 1;
  }
  Asked& a = asked();
  a.options.state = parse_state(values["state"]);
  a.options.detail = parse_detail(values["detail"]);
  a.options.file = fmt::format("{}/{}.paoding", values["folder"], getpid());
  if (!values["steps"].empty()) a.steps = parse_steps(values["steps"]);
  if (!values["cupti"].empty()) a.by_cupti = parse_steps(values["cupti"]);
  a.process = getpid();
}

// The end of the program, or of its window. A program that nobody profiles by hand cannot be told of errors: they are
// in the recording, which then ends early.
template <class End>
void end_recording(const End& end) {
  if (getpid() != asked().process) return;
  try {
    end();
  } catch (const std::exception&) {
  }
}

}  // namespace

// Called before there are other threads, since it holds their open spans. Without this file a killed program's
// recording has only the spans that were written until then.
void Recorder::Recording::make_live_file(const std::string& path) {
  leave_fork();
  try {
    auto made = std::make_unique<LiveFile>(path);
    const std::scoped_lock lock(mutex, sites_mutex);
    for (const auto& [first, range] : sites) made->add_site(first, range.sites.turns, range.info);
    for (ArgumentId id = 0; id < argument_names.size(); ++id) {
      made->add_argument(id, argument_names[id].name, argument_names[id].type);
    }
    live = made.release();  // as long as the process: its memory may be written into at any time
  } catch (const Error&) {
  }
}

// Before what was made until now goes: said again when a source of GPU spans has come.
void Recorder::end_at_exit() {
  std::atexit([] { end_recording(end_from_outside); });
}

bool Recorder::follow_environment() {
  const std::string text = env_text("PAODING_PROFILE");
  if (text.empty()) return false;
  try {
    read(text);
    recording().make_live_file(asked().options.file);
    counts_runs_.store(asked().steps.end > 0 || asked().by_cupti.end > 0);
    if (asked().steps.end == 0) begin(asked().options, true);
    end_at_exit();
  } catch (const std::exception&) {
    return false;  // not written by `paoding profile`
  }
  return true;
}

void Recorder::count_run() {
  Asked& a = asked();
  const std::int64_t run = a.runs.fetch_add(1);
  const auto is_mine = [&] { return running() && getpid() == a.process; };
  try {
    if (a.steps.end > 0 && run == a.steps.first && !running()) begin(a.options, true);
    if (run == std::max(a.by_cupti.first, a.steps.first) && run < a.by_cupti.end && is_mine())
      a.recording = begin_cupti();
    if (run == a.by_cupti.end && is_mine()) end_cupti(a.recording);
  } catch (const std::exception& e) {  // as at the end: nobody is there to be told
    add_note(fmt::format("GPU spans: {}", e.what()));
  }
  if (a.steps.end > 0 && run == a.steps.end) end_recording(end_from_outside);
  if (run >= std::max(a.steps.end, a.by_cupti.end)) counts_runs_.store(false);
}

}  // namespace paoding::profile
