// SPDX-License-Identifier: Apache-2.0
// Starts a command once for every rank, on this machine, and waits for all of them.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace paoding::cli {

struct Launch {
  int ranks = 1;
  std::vector<std::string> words;                     // of the command, the program's path first
  std::map<std::string, std::string> variables = {};  // added to the environment, beside those that name the rank
  std::string folder;                                 // of the logs, rank1.log and so on; rank 0 prints where we do
};

/// Returns rank 0's exit code when all have ended well, or were interrupted. After a signal all are told to end, once.
/// When one fails, or is killed, the others have two seconds to end by themselves. Error (device) that names the first
/// that failed, with the last lines of its log; rank 0 has printed its own.
int launch_ranks(const Launch& launch);

/// The words of this process's own command.
std::vector<std::string> own_words();

/// The output of this process goes to a file from here on, in a folder that is made; `errors`: those too. Error (file).
void print_into(const std::string& path, bool errors);

}  // namespace paoding::cli
