// SPDX-License-Identifier: Apache-2.0
// The names of entries in a run's folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace paoding::checkpoints {

inline constexpr std::string_view kStepPrefix = "step-";
/// Held by the CheckpointFolder of the run.
inline constexpr std::string_view kLockFile = ".lock";
/// Prefixes of a checkpoint's name: one that is being written, one that is being deleted, and one that another takes
/// the place of. Whoever holds the lock may delete the first two.
inline constexpr std::string_view kNewPrefix = ".new-", kDroppedPrefix = ".dropped-", kReplacedPrefix = ".replaced-";

/// "step-00001200".
std::string name_of(std::int64_t step);
/// The step of a folder with such a name; -1 for others.
std::int64_t step_of(const std::filesystem::path& path);

/// The checkpoints in a run's folder, the one of the fewest steps first. Error (file) when the folder cannot be read.
std::vector<std::filesystem::path> all_in(const std::filesystem::path& run);
/// Empty when there is none.
std::filesystem::path latest_in(const std::filesystem::path& run);
/// Like CheckpointFolder::best; checkpoints whose manifest cannot be read are an error unless `skip_damaged`.
std::filesystem::path best_in(const std::filesystem::path& run, bool skip_damaged);

}  // namespace paoding::checkpoints
