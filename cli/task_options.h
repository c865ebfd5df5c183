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

/// The options of a task and of its training, with the user's values. A config file has a line "name = value" per
/// option; '#' begins a comment, except in quotes.
class TaskOptions {
 public:
  explicit TaskOptions(models::Task& task);

  void add_to(CLI::App& app);
  /// Checkpoint, then config file, then command line: the later one wins. Error (argument) when a value is out of
  /// range, a line of a config file is malformed, or the user changes an option that the checkpoint fixes; (file) when
  /// the file cannot be read. The message names file and line.
  void apply(const std::map<std::string, std::string>& checkpoint);
  /// "dropout was 0.1, and is 0 now": the options whose value differs from the checkpoint's.
  const std::vector<std::string>& changes() const { return changes_; }
  /// All of them, for a checkpoint.
  std::map<std::string, std::string> texts() const;

 private:
  models::Options options_;
  std::string config_path_;
  std::map<std::string, std::string> said_;  // on the command line
  std::vector<std::string> changes_;
};

}  // namespace paoding::cli
