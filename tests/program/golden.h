// SPDX-License-Identifier: Apache-2.0
// What the tests of golden files share: reading and recording one, and what `paoding dump` prints for a graph.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "paoding/graph.h"
#include "tests/support/source_root.h"

namespace paoding::golden {

namespace fs = std::filesystem;

inline fs::path folder() { return source_root() / "tests" / "golden"; }
inline bool is_recording() { return std::getenv("PAODING_RECORD_GOLDEN") != nullptr; }

inline std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The output of `paoding dump FLAGS` for the graph.
inline std::string dump_of(const Graph& graph, const std::string& flags) {
  std::string pattern = (fs::temp_directory_path() / "paoding_golden_XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) return "no temporary folder";
  const fs::path folder = pattern, program = fs::read_symlink("/proc/self/exe").parent_path() / "paoding";
  std::ofstream(folder / "graph.txt") << to_text(graph);
  const std::string files = " " + folder.string() + "/graph.txt >" + folder.string() + "/out 2>&1";
  // With one thread: how images are shared out among more is a matter of their number.
  const int status = std::system(("OMP_NUM_THREADS=1 '" + program.string() + "' dump " + flags + files).c_str());
  std::string text = read_file(folder / "out");
  fs::remove_all(folder);
  if (status != 0) ADD_FAILURE() << program << " dump failed (status " << status << "; build all targets):\n" << text;
  return text;
}

/// The first line in which they differ, with its number.
inline std::string first_difference(const std::string& now, const std::string& then) {
  std::istringstream a(now), b(then);
  for (int number = 1;; ++number) {
    std::string x, y;
    const bool has_x = static_cast<bool>(std::getline(a, x)), has_y = static_cast<bool>(std::getline(b, y));
    if (!has_x && !has_y) return "";
    if (has_x != has_y || x != y) {
      return "line " + std::to_string(number) + "\n  was " + (has_y ? y : "(the end)") + "\n  is  " +
             (has_x ? x : "(the end)");
    }
  }
}

/// Compares with what the file holds; where PAODING_RECORD_GOLDEN is set, writes it there instead.
inline void compare(const fs::path& path, const std::string& now) {
  if (is_recording()) {
    std::ofstream(path, std::ios::binary) << now;
    return;
  }
  const std::string then = read_file(path);
  EXPECT_TRUE(now == then) << path.string() << " is not what is printed now, from " << first_difference(now, then)
                           << "\nIf that is meant: PAODING_RECORD_GOLDEN=1 build/paoding_tests "
                              "--gtest_filter='*Golden*', and read `git diff tests/golden`";
}

}  // namespace paoding::golden
