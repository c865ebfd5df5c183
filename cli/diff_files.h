// SPDX-License-Identifier: Apache-2.0
// The files that `paoding diff` compares: recordings, traces, and rows of `paoding bench --json`.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "profile/diff.h"

namespace paoding::cli {

/// Rows of one run of `paoding bench`, by "lerp_grad/1 cold wall"; ns.
struct BenchRows {
  std::string machine;  // and device
  std::vector<std::pair<std::string, double>> rows;
  std::size_t wrong = 0;   // whose results were not right
  std::int64_t turn = -1;  // which of all processes it was; -1: not known
};
/// Error (file) when it is no such file.
BenchRows read_bench_rows(const std::filesystem::path& file);

/// The measurements of the processes of a side: all the one, or all the other.
struct SideFiles {
  std::string name;
  std::vector<profile::ProcessSteps> steps;
  std::vector<BenchRows> benches;
};
/// Each of `paths` is a file of one process, or a folder of such files; a folder of ranks is one process. Error.
SideFiles read_side(const std::vector<std::string>& paths);

/// The first process of a path as read_side() takes it: a file, or a folder of ranks. Error (file).
std::string first_process(const std::string& path);

/// UsageError where one side has recordings and the other has rows.
profile::DiffInput input_of(SideFiles a, SideFiles b);

/// Compares rows that every process of both sides has; the others are said in a note.
profile::DiffInput input_of_rows(const std::vector<BenchRows>& a, const std::vector<BenchRows>& b,
                                 const std::string& name_a, const std::string& name_b);

}  // namespace paoding::cli
