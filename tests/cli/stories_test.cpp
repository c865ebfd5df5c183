// SPDX-License-Identifier: Apache-2.0
// The stories of docs/cases/ that are commands: what a reader is told to see is there.
#include <regex>

#include "cli_run.h"

namespace paoding::cli_run {
namespace {

using Stories = Cli;

// Calls of all rows of a report's Event Summary together.
int calls_in(const std::string& report) {
  const std::string rows = report.substr(report.find("Event Summary"));
  const std::regex row("\\nthread0::.*?  +([0-9]+)  ");
  int calls = 0;
  for (std::sregex_iterator it(rows.begin(), rows.end(), row), end; it != end; ++it) calls += std::stoi((*it)[1]);
  return calls;
}

TEST_F(Stories, PassesLeftOutShowAsCallsAndCopies) {
  const std::string command =
      "bench g2p --quick --no-check --report --device cpu --hidden 32 --batch 4 --source 6 --target 6";
  const Ran by_default = run(command);
  const Ran without = run(command + " --no-pass fuse_groups,hoist_products,sink_products,merge_products,alias_views");
  ASSERT_EQ(by_default.code, 0) << by_default.err;
  ASSERT_EQ(without.code, 0) << without.err;
  EXPECT_GT(calls_in(without.out), 2 * calls_in(by_default.out)) << by_default.out << without.out;
  EXPECT_TRUE(has(without.out, "scan_stack")) << without.out;
  EXPECT_FALSE(has(by_default.out, "scan_stack")) << by_default.out;
}

}  // namespace
}  // namespace paoding::cli_run
