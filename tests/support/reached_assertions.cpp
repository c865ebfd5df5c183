// SPDX-License-Identifier: Apache-2.0
#include "tests/support/reached_assertions.h"

#include <cstdlib>

namespace paoding {
namespace {

class ReachedAssertions : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { is_assertion_reached = false; }
  void OnTestPartResult(const testing::TestPartResult&) override { is_assertion_reached = true; }
  void OnTestEnd(const testing::TestInfo& test) override {
    if (!is_assertion_reached && !test.result()->Skipped()) {
      ADD_FAILURE() << "no assertion was reached: this test cannot fail (tests/support/reached_assertions.h)";
    }
  }
};

// Errors of passes are found behind the pass that made them (base/env.h).
[[maybe_unused]] const bool verifies_each_pass = ::setenv("PAODING_VERIFY", "1", 0) == 0;

[[maybe_unused]] const bool is_listening = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new ReachedAssertions);
  return true;
}();

}  // namespace
}  // namespace paoding
