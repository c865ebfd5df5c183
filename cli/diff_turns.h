// SPDX-License-Identifier: Apache-2.0
// Two commands that `paoding diff` runs in turns, and what their processes measured.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "diff_files.h"
#include "profile/diff.h"

namespace paoding::cli {

struct TurnsOptions {
  std::vector<std::string> a, b;                           // the commands
  std::vector<std::string> own;                            // what stands for a command of paoding's
  std::map<std::string, std::string> variables_of_b = {};  // in its environment
  std::size_t runs = 5, most_runs = 5, warm_up = 1;
  bool records = true;  // programs of paoding's under its profiler
  bool shows_output = false;
  profile::DiffOptions diff;
};

/// What was measured, and the exit code of an interrupt that came before the end; 0 without one.
struct Turns {
  profile::Diff diff;
  int interrupted = 0;
};

/// Error (argument) when a command fails, with the end of its output. Interrupted before both have a process: throws
/// that.
Turns run_in_turns(const TurnsOptions& options);

}  // namespace paoding::cli
