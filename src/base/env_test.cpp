// SPDX-License-Identifier: Apache-2.0
#include "base/env.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

namespace paoding {
namespace {

TEST(Env, TellsUnsetFromEmpty) {
  unsetenv("PAODING_EXPLAIN");
  EXPECT_FALSE(env_value("PAODING_EXPLAIN").has_value());
  EXPECT_EQ(env_text("PAODING_EXPLAIN"), "");
  setenv("PAODING_EXPLAIN", "", 1);
  EXPECT_EQ(env_value("PAODING_EXPLAIN"), "");
  unsetenv("PAODING_EXPLAIN");
}

TEST(Env, FlagsTakeTheUsualWordsForNo) {
  for (const char* no : {"", "0", "false", "no", "off"}) {
    setenv("PAODING_EXPLAIN", no, 1);
    EXPECT_FALSE(env_flag("PAODING_EXPLAIN")) << no;
  }
  for (const char* yes : {"1", "true", "yes", "2"}) {
    setenv("PAODING_EXPLAIN", yes, 1);
    EXPECT_TRUE(env_flag("PAODING_EXPLAIN")) << yes;
  }
  unsetenv("PAODING_EXPLAIN");
  EXPECT_FALSE(env_flag("PAODING_EXPLAIN"));
}

TEST(Env, NamesEveryVariableOnceWithItsMeaning) {
  std::set<std::string> names;
  for (const EnvVariable& variable : env_variables()) {
    EXPECT_TRUE(names.insert(variable.name).second) << variable.name;
    EXPECT_NE(std::string(variable.meaning), "");
    EXPECT_NE(std::string(variable.fallback), "");
    EXPECT_EQ(variable.is_ours, std::string(variable.name).starts_with("PAODING_"));
  }
}

}  // namespace
}  // namespace paoding
