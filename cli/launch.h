// SPDX-License-Identifier: Apache-2.0
// Starts a command once for every rank, on this machine, and waits for all of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "paoding/distributed.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace paoding::cli {

struct Launch {
  int ranks = 1;
  std::vector<std::string> words;                     // of the command, the program's path first
  std::map<std::string, std::string> variables = {};  // added to the environment, beside those that name the rank
  std::string folder = {};                            // of the logs, rank1.log and so on; rank 0 prints where we do
};

/// Returns rank 0's exit code when all have ended well, or were interrupted. After a signal all are told to end, once.
/// When one fails, or is killed, the others have two seconds to end by themselves. Error (device) that names the first
/// that failed, with the last lines of its log; rank 0 has printed its own.
int launch_ranks(const Launch& launch);

/// --ranks and --gpus, of a command that several processes may run together.
struct RankFlags {
  std::int64_t ranks = 0, gpus = 0;

  std::pair<CLI::Option*, CLI::Option*> add_to(CLI::App& app);
  /// How many ranks are asked for; 0: nothing is said.
  std::int64_t asked() const { return ranks > gpus ? ranks : gpus; }
  /// The place of this process, where somebody started it as one of several ranks. UsageError when the options
  /// contradict each other or the environment.
  std::optional<RankPlace> place() const;
  /// The device that --device names, of this rank. UsageError when it names one GPU for all.
  Device device(const std::string& text, const std::optional<RankPlace>& place) const;
  /// Starts this process's own command, with `more` words, once for every rank, and returns the exit code. Cores are
  /// shared out unless `says_threads`. Error (unsupported) without the library for it.
  int launch(const std::string& device, bool says_threads, const std::string& log_folder,
             const std::vector<std::string>& more = {}) const;
};

/// The words of this process's own command.
std::vector<std::string> own_words();

/// The output of this process goes to a file from here on, in a folder that is made; `errors`: those too. Error (file).
void print_into(const std::string& path, bool errors);

}  // namespace paoding::cli
