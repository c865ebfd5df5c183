// SPDX-License-Identifier: Apache-2.0
#include "tests/support/source_root.h"

#include <stdexcept>

namespace paoding {

namespace fs = std::filesystem;

const fs::path& source_root() {
  static const fs::path root = [] {
    for (fs::path folder = fs::current_path();; folder = folder.parent_path()) {
      if (fs::exists(folder / "tests" / "support" / "source_root.h")) return folder;
      if (folder == folder.root_path()) break;
    }
    // A build folder outside the repository: where this file was compiled.
    const fs::path compiled = fs::absolute(__FILE__).parent_path().parent_path().parent_path();
    if (fs::exists(compiled / "tests" / "support" / "source_root.h")) return compiled;
    throw std::runtime_error("run the tests from the repository or a build folder in it");
  }();
  return root;
}

namespace {
[[maybe_unused]] const bool is_current = (fs::current_path(source_root()), true);
}

}  // namespace paoding
