// SPDX-License-Identifier: Apache-2.0
// Keeps on disk which kernel, and which engine of a library, was measured to be fastest for a call on a target. The key
// is a text of everything that decides the answer; versions of libraries and of our own kernels are in it, so an update
// finds nothing and changes nothing.
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "ops/kernel_environment.h"

namespace paoding::gpu {

/// An entry as it is in its file: lines, and a seal over them.
std::string entry_text(const std::string& key, const TimedChoice& choice);
/// Error (file) that says why the text is no entry for the key.
TimedChoice parse_entry(std::string_view text, const std::string& key);

/// A file per key. Safe to use from several threads, and from several processes at once: each writes a file of its own
/// and gives it the name when it is whole.
class PlanCache : public TimedChoices {
 public:
  /// An empty folder keeps choices in memory only, and so does one that cannot be written.
  explicit PlanCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// The process's cache, in the folder of compiled kernels; kernels are decided with it where a program is compiled
  /// with the process's environment (runtime/kernel_environment.h), and nowhere else.
  static PlanCache& shared();

  /// The entry of the key, if known; its file is read once. If there is a file that is no entry for the key, `ignored`
  /// says so.
  std::optional<TimedChoice> find(const std::string& key, std::string* ignored = nullptr) override;
  void keep(const std::string& key, const TimedChoice& choice) override;
  /// The file that has, or would have, the entry.
  std::filesystem::path file_of(const std::string& key) const;

 private:
  struct Known {
    std::optional<TimedChoice> choice;
    std::string ignored;
  };
  Known read(const std::string& key) const;

  const std::filesystem::path folder_;
  std::mutex mutex_;  // guards the members below
  std::map<std::string, Known> known_;
};

}  // namespace paoding::gpu
