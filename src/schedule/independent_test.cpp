// SPDX-License-Identifier: Apache-2.0
#include "schedule/independent.h"

#include <gtest/gtest.h>

#include <deque>

namespace paoding {
namespace {

// Launches of groups that read 4 floats at one place of a single slot and write 4 at another.
struct IndependentLaunches {
  std::deque<Step> steps;
  std::vector<Launch> list;
  std::vector<std::byte> memory = std::vector<std::byte>(4096);

  void add(std::int64_t read, std::int64_t write, Step::Kind kind = Step::Kind::group) {
    Step& step = steps.emplace_back();
    step.kind = kind;
    step.reads = 1;
    step.operands.resize(2);
    for (Operand& operand : step.operands) operand.layout = Layout::dense({f32, Shape{4}});
    list.push_back({&step, 0, {{0, read}, {0, write}}});
  }
  std::vector<std::pair<std::size_t, std::size_t>> segments(std::size_t most = 64) {
    return independent_segments(list, {memory.data()}, most);
  }
};

using Segments = std::vector<std::pair<std::size_t, std::size_t>>;

TEST(IndependentSegments, EndWhereAResultIsReadOrWrittenAgain) {
  IndependentLaunches launches;
  launches.add(0, 16);
  launches.add(0, 32);
  launches.add(0, 48);   // reads the same as the others: no matter
  launches.add(32, 64);  // reads the second's result
  launches.add(80, 96);
  launches.add(112, 64 + 4);  // writes over a part of it
  EXPECT_EQ(launches.segments(), (Segments{{0, 3}, {3, 5}}));
}

TEST(IndependentSegments, EndWhereSomethingReadIsWritten) {
  IndependentLaunches launches;
  launches.add(0, 16);
  launches.add(32, 0);
  EXPECT_EQ(launches.segments(), Segments{});
}

TEST(IndependentSegments, EndWhereABranchLeads) {
  IndependentLaunches launches;
  for (int i = 0; i < 6; ++i) launches.add(0, 16 + 16 * i);
  launches.list[1].kind = Launch::Kind::jump;
  launches.list[1].targets = {4};
  EXPECT_EQ(launches.segments(), (Segments{{2, 4}, {4, 6}}));
}

TEST(IndependentSegments, EndAtKernelsAtTheLimitAndWhereAStepComesAgain) {
  IndependentLaunches launches;
  for (int i = 0; i < 3; ++i) launches.add(0, 16 + 16 * i);
  launches.add(0, 512, Step::Kind::kernel);
  for (int i = 0; i < 2; ++i) launches.add(0, 128 + 16 * i);
  launches.list.push_back({launches.list.back().step, 1, {{0, 0}, {0, 256}}});
  EXPECT_EQ(launches.segments(), (Segments{{0, 3}, {4, 6}}));
  EXPECT_EQ(launches.segments(2), (Segments{{0, 2}, {4, 6}}));
}

TEST(IndependentSegments, GoOnWhereAnEmptyResultHasTheAddressOfAnother) {
  IndependentLaunches launches;
  launches.add(0, 16);
  launches.add(32, 16);
  launches.steps.back().operands[1].layout = Layout::dense({f32, Shape{0}});
  EXPECT_EQ(launches.segments(), (Segments{{0, 2}}));
}

TEST(IndependentSegments, GoOnOverKernelsWhoseCtasStayOnFewSms) {
  IndependentLaunches launches;
  launches.add(0, 16);
  for (int i = 1; i < 4; ++i) {
    launches.add(0, 16 + 16 * i, Step::Kind::kernel);
    launches.steps.back().may_be_grouped = i < 3;
  }
  EXPECT_EQ(launches.segments(), (Segments{{0, 3}}));
}

}  // namespace
}  // namespace paoding
