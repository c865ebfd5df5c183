// SPDX-License-Identifier: Apache-2.0
// For the tests of this folder: the data sets where they were fetched, and the texts of errors.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/env.h"
#include "paoding/error.h"
#include "tests/support/source_root.h"

namespace paoding::data {

inline std::filesystem::path test_folder() {
  const std::string given = env_text("PAODING_DATA_DIR");
  return given.empty() ? source_root() / "data" : std::filesystem::path(given);
}

/// "kind: message" of the Error that `call` throws; "" when it throws none.
template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(to_string(error.kind())) + ": " + error.what();
  }
  return "";
}

}  // namespace paoding::data

/// The result of `find` for the folder of the data sets; skips the test, saying how to get them, when it is not there.
#define FOUND_OR_SKIP(variable, ...)                                                       \
  decltype(__VA_ARGS__) variable;                                                          \
  {                                                                                        \
    const std::string missing = ::paoding::data::refusal([&] { variable = __VA_ARGS__; }); \
    if (!missing.empty()) GTEST_SKIP() << "NOT CHECKED: " << missing;                      \
  }
