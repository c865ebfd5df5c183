// SPDX-License-Identifier: Apache-2.0
// Helpers that the tests of golden files share: reading and recording one, and the text of `paoding dump` for a graph.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>

#include "paoding/graph.h"
#include "tests/support/source_root.h"
#include "tests/support/temporary_folder.h"

namespace paoding::golden {

namespace fs = std::filesystem;

inline fs::path folder() { return source_root() / "tests" / "golden"; }
inline bool is_recording() { return std::getenv("PAODING_RECORD_GOLDEN") != nullptr; }

/// The output of `paoding dump FLAGS` for the graph.
inline std::string dump_of(const Graph& graph, const std::string& flags) {
  const TemporaryFolder made;
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path() / "paoding", out = made / "out";
  const std::string files = " " + made.write("graph.txt", to_text(graph)).string() + " >" + out.string() + " 2>&1";
  // With one thread: how images are shared out among more is a matter of their number.
  const int status = std::system(("OMP_NUM_THREADS=1 '" + program.string() + "' dump " + flags + files).c_str());
  const std::string text = slurp(out);
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

/// Compares with the file's content; where PAODING_RECORD_GOLDEN is set, writes it there instead.
inline void compare(const fs::path& path, const std::string& now) {
  if (is_recording()) {
    spill(path, now);
    return;
  }
  const std::string then = slurp(path);
  EXPECT_TRUE(now == then) << path.string() << " is not what is printed now, from " << first_difference(now, then)
                           << "\nIf that is meant: PAODING_RECORD_GOLDEN=1 build/paoding_tests "
                              "--gtest_filter='*Golden*', and read `git diff tests/golden`";
}

}  // namespace paoding::golden
