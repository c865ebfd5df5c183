// SPDX-License-Identifier: Apache-2.0
// A program run once from start to end, with its time and the last lines of its output.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace paoding::cli {

struct TimedProcess {
  std::int64_t wall_ns = 0;
  int code = 0;        // its exit code; 128 and the signal's number of one that a signal ended
  std::string output;  // the last lines of it, as they may be printed; empty where it was shown
};

/// `variables` are added to its environment. Its output goes to the file `output`, or to ours where that is empty; it
/// reads nothing. Interrupted: with all that it started it is told to end, and 2 s later ended. Error (device) when it
/// cannot be started.
TimedProcess run_timed(const std::vector<std::string>& words, const std::map<std::string, std::string>& variables,
                       const std::filesystem::path& output);

// ---- parts of starting a process, for those who start one in another way ----

/// The texts as exec() takes them, which must outlive the result.
std::vector<char*> pointers(std::vector<std::string>& texts);
/// The environment of this process, with these variables in place of those of their names.
std::vector<std::string> environment_with(const std::map<std::string, std::string>& variables);
/// The last lines of a file; empty where there is none.
std::string last_lines(const std::filesystem::path& path);

}  // namespace paoding::cli
