// SPDX-License-Identifier: Apache-2.0
// The stories of docs/howto/ and docs/performance/ that are commands: the output that they promise a reader is there.
#include <regex>

#include "tests/cli/cli_run.h"

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

TEST_F(Stories, LadderOfAnLstmHasOurRungsAndThoseOfPeers) {
  write("peer.sh",
        "while read -r request; do\n"
        "  case $request in *'\"steps\":5'*) echo '{\"peer\": \"another\", \"us\": 1234.5}' ;; esac\n"
        "  echo '{\"peer\": \"one that cannot\", \"why\": \"no such layer\"}'\n"
        "  echo\n"
        "done\n");
  const Ran made = run("bench lstm --device cpu --steps 5 --batch 2 --hidden 8 --quick --peer 'sh " + path("peer.sh") +
                       "' --peer false --timelines " + path("rungs") + " --json " + path("ladder.json"));
  ASSERT_EQ(made.code, 0) << made.err << made.out;
  for (const char* rung : {"op by op, each waited for", "op by op, one run", "passes, no kernel for the whole",
                           "paoding", "another", "1234", "no such layer", "ended with exit code 1"}) {
    EXPECT_TRUE(has(made.out, rung)) << rung << " is missing:\n" << made.out;
  }
  EXPECT_FALSE(has(made.out, "WRONG")) << made.out;
  EXPECT_TRUE(is_json(read_file(path("ladder.json"))));
  for (const char* work : {"forward", "training"}) {
    const auto launches = [&](const std::string& rung) {
      const std::regex row("\"work\":\"" + std::string(work) + "\",\"rung\":\"" + rung + "\".*?\"launches\":([0-9]+)");
      const std::string json = read_file(path("ladder.json"));
      std::smatch found;
      return std::regex_search(json, found, row) ? std::stoi(found[1]) : -1;
    };
    EXPECT_GT(launches("op by op, one run"), launches("passes, no kernel for the whole")) << work;
    EXPECT_GT(launches("passes, no kernel for the whole"), launches("paoding")) << work;
    EXPECT_GT(launches("paoding"), 0) << work;
    EXPECT_TRUE(is_json(read_file(path("rungs/" + std::string(work) + "_op_by_op.json")))) << work;
    EXPECT_TRUE(is_json(read_file(path("rungs/" + std::string(work) + "_paoding.json")))) << work;
  }
}

}  // namespace
}  // namespace paoding::cli_run
