// SPDX-License-Identifier: Apache-2.0
// Words of PAODING_RUN: those that are switches, and others.
#include "base/run_switches.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "paoding/error.h"

namespace paoding {
namespace {

TEST(RunSwitches, AreWhatTheirWordsSay) {
  const RunSwitches made = run_switches("read_ahead=3;;fetch_later=0;pinned_feeds=1;double_buffered_feeds=0");
  EXPECT_EQ(made.read_ahead, 3);
  EXPECT_EQ(made.fetch_later, false);
  EXPECT_EQ(made.pinned_feeds, true);
  EXPECT_EQ(made.double_buffered_feeds, false);
  const RunSwitches none = run_switches("");
  EXPECT_FALSE(none.read_ahead || none.fetch_later || none.pinned_feeds || none.double_buffered_feeds);
  EXPECT_EQ(run_switches("pinned_feeds=0;pinned_feeds=1").pinned_feeds, true) << "the last word counts";
}

TEST(RunSwitches, RefuseOtherWords) {
  for (const char* words : {"read_ahead", "read_ahead=-1", "read_ahead=1e3", "read_ahead=99999999999999999999",
                            "fetch_later=yes", "pinned=1", "pinned_feeds=", "=1"}) {
    EXPECT_THROW(run_switches(words), Error) << words;
  }
}

TEST(RunSwitches, ComeFromTheEnvironment) {
  ::setenv("PAODING_RUN", "read_ahead=5", 1);
  EXPECT_EQ(run_switches().read_ahead, 5);
  ::unsetenv("PAODING_RUN");
  EXPECT_FALSE(run_switches().read_ahead);
}

}  // namespace
}  // namespace paoding
