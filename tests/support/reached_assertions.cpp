// SPDX-License-Identifier: Apache-2.0
#include "tests/support/reached_assertions.h"

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

[[maybe_unused]] const bool is_listening = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new ReachedAssertions);
  return true;
}();

}  // namespace
}  // namespace paoding
