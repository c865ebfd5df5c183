// SPDX-License-Identifier: Apache-2.0
// A task's options on the command line and in a config file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/task.h"

namespace CLI {
class App;
}

namespace paoding::cli {

/// The options of a task and of its training, and what the user said about them. A config file has a line "name =
/// value" per option; '#' begins a comment.
class TaskOptions {
 public:
  explicit TaskOptions(models::Task& task);

  void add_to(CLI::App& app);
  /// Checkpoint, then config file, then command line: the later one wins. Error (argument) when a value is out of range
  /// or a config file names an option that is not there, (file) when it cannot be read; with where it says so.
  void apply(const std::map<std::string, std::string>& checkpoint);
  /// All of them, for a checkpoint.
  std::map<std::string, std::string> texts() const;

 private:
  models::Options options_;
  std::string config_path_;
  std::map<std::string, std::string> said_;  // on the command line
};

}  // namespace paoding::cli
