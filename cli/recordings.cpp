// SPDX-License-Identifier: Apache-2.0
#include "recordings.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/check.h"
#include "io/files.h"
#include "profile/recording.h"

namespace paoding::cli {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder(const std::string& name) {
  std::string path = (fs::temp_directory_path() / (name + "_XXXXXX")).string();
  if (mkdtemp(path.data()) == nullptr)
    fail(ErrorKind::file, "{}: cannot make the folder: {}", path, files::reason(errno));
  path_ = path;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string RecordingRequest::text(const fs::path& folder) const {
  return fmt::format("folder={};state={};detail={};steps={};cupti={}", folder.string(), state, detail, steps,
                     cupti_steps);
}

std::vector<fs::path> recordings_in(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".paoding") found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<profile::NamedTrace> read_recordings(const std::vector<fs::path>& files) {
  std::vector<profile::NamedTrace> traces;
  for (const fs::path& path : files) {
    profile::Trace trace = profile::read_recording_of_killed(path.string());
    if (trace.size() == 0 && files.size() > 1) continue;
    traces.push_back({path.stem().string(), std::move(trace)});
  }
  return traces;
}

bool is_one_program(const std::vector<profile::NamedTrace>& traces) {
  if (traces.empty()) return false;
  try {
    profile::check_mergeable(traces);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string own_program() {
  constexpr const char* kSelf = "/proc/self/exe";  // which starts it also where its file was moved or replaced
  std::error_code problem;
  const fs::path path = fs::read_symlink(kSelf, problem);
  return !problem && fs::equivalent(path, kSelf, problem) && !problem ? path.string() : kSelf;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(one->get_name());
  return names;
}

}  // namespace paoding::cli
