// SPDX-License-Identifier: Apache-2.0
// Commands that run others under the profiler share these: where recordings go, how they are asked for and read.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "profile/trace_merge.h"

namespace CLI {
class App;
}

namespace paoding::cli {

/// A folder that is gone with this. Error (file).
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// The value of PAODING_PROFILE by which a program of paoding's records itself (src/profile/from_environment.cpp).
struct RecordingRequest {
  std::string state = "all", detail = "op", steps = {}, cupti_steps = {};
  std::string text(const std::filesystem::path& folder) const;
};

/// The recordings of a folder, sorted by name.
std::vector<std::filesystem::path> recordings_in(const std::filesystem::path& folder);
/// Recordings of a command and of its child processes; without processes that only started others.
std::vector<profile::NamedTrace> read_recordings(const std::vector<std::filesystem::path>& files);
/// One, or several processes of the same.
bool is_one_program(const std::vector<profile::NamedTrace>& traces);

/// This program as a command, by the path that it has: a process is called by the last part of that.
std::string own_program();
/// Subcommands, with which a command line may begin instead of `paoding`: "run", "train", ..
std::vector<std::string> command_names(const CLI::App& app);

}  // namespace paoding::cli
