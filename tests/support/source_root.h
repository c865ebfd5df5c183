// SPDX-License-Identifier: Apache-2.0
// Where the repository lies: tests read examples, docs and recorded numbers from it, from whatever folder they are run.
#pragma once

#include <filesystem>

namespace paoding {

/// The nearest folder from the current one upwards, else where the tests were compiled. It is the current one while
/// tests run.
const std::filesystem::path& source_root();

}  // namespace paoding
