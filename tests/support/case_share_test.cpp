// SPDX-License-Identifier: Apache-2.0
#include "tests/support/case_share.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace paoding {
namespace {

struct InShare {
  explicit InShare(const char* text) : was_(std::getenv("PAODING_CASE_SHARE")), before_(was_ == nullptr ? "" : was_) {
    setenv("PAODING_CASE_SHARE", text, 1);
  }
  ~InShare() { was_ == nullptr ? unsetenv("PAODING_CASE_SHARE") : setenv("PAODING_CASE_SHARE", before_.c_str(), 1); }
  const char* was_;
  std::string before_;
};

std::vector<int> share_of(const char* text, int count) {
  const InShare in(text);
  std::vector<int> cases(static_cast<std::size_t>(count));
  std::iota(cases.begin(), cases.end(), 0);
  keep_share(&cases, [](int i) { return "case " + std::to_string(i); });
  return cases;
}

TEST(CaseShare, HasEachCaseOnceAndAboutAsManyOfThem) {
  std::multiset<int> all;
  for (const char* share : {"1/3", "2/3", "3/3"}) {
    const std::vector<int> cases = share_of(share, 300);
    EXPECT_GT(cases.size(), 70u) << share;
    EXPECT_LT(cases.size(), 130u) << share;
    all.insert(cases.begin(), cases.end());
  }
  for (int i = 0; i < 300; ++i) EXPECT_EQ(all.count(i), 1u) << i;
}

TEST(CaseShare, IsEverythingWhereNoneIsAsked) { EXPECT_EQ(share_of("", 40).size(), 40u); }

TEST(CaseShare, LeavesATestSomethingToDo) {
  for (const char* share : {"1/3", "2/3", "3/3"}) EXPECT_EQ(share_of(share, 1).size(), 1u);
}

TEST(CaseShare, RefusesWhatIsNone) {
  for (const char* text : {"0/3", "4/3", "2", "2/3x", "third"}) {
    const InShare in(text);
    EXPECT_THROW(CaseShare::asked(), std::invalid_argument) << text;
  }
}

}  // namespace
}  // namespace paoding
