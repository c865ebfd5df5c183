// SPDX-License-Identifier: Apache-2.0
// A process's part in which kernel runs a call, beside the program and the target: its switches, and the kernels that
// were timed. It is given to whoever compiles and comes with every call (KernelCall::environment), so
// two programs of one process may have two. runtime/kernel_environment.h makes the process's own.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "paoding/communicator.h"

namespace paoding {

/// A library's kernel and ours, timed on the device; or, of a product, the algorithm of a library that was fastest and
/// the one that it names first.
struct TimedChoice {
  bool is_library = false;  // it was the faster
  std::string engine;       // its best, or empty: it has none
  double library_us = 0, own_us = 0;

  friend bool operator==(const TimedChoice&, const TimedChoice&) = default;
};

/// Choices that were timed, by a text of everything that decides the answer (KernelImplementation::timing_key). Threads
/// share one.
class TimedChoices {
 public:
  virtual ~TimedChoices() = default;
  /// The entry of the key, if known. If there is something that is no entry for the key, `ignored` says so.
  virtual std::optional<TimedChoice> find(const std::string& key, std::string* ignored = nullptr) = 0;
  virtual void keep(const std::string& key, const TimedChoice& choice) = 0;
};

/// The entry of one call, as it was when the call's kernel was decided.
struct TimedEntry {
  std::string key;
  std::optional<TimedChoice> choice;  // none: it was not timed
  std::string ignored;                // why an entry that is there is none
};

struct KernelEnvironment {
  std::string cta_group = {};                     // PAODING_CTA_GROUP
  bool tells_phases = false;                      // PAODING_PHASES
  std::shared_ptr<TimedChoices> timed = nullptr;  // nothing was timed
  /// CompileOptions::communicator, on which the program's collectives run.
  std::shared_ptr<Communicator> communicator = nullptr;

  friend bool operator==(const KernelEnvironment&, const KernelEnvironment&) = default;
};
using KernelEnvironmentPtr = std::shared_ptr<const KernelEnvironment>;

/// No switches, and nothing timed.
const KernelEnvironmentPtr& no_environment();

}  // namespace paoding
