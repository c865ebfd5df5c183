// SPDX-License-Identifier: Apache-2.0
#include "runtime/reuse.h"

#include <gtest/gtest.h>

#include <deque>

#include "cpu/last_cache.h"
#include "paoding/ops.h"
#include "paoding/program.h"

namespace paoding {
namespace {

// Launches of groups that read and write whole slots of 1,000 bytes.
struct ReusedLaunches {
  std::deque<Step> steps;
  std::vector<Launch> list;

  const Step* add(int read, int written) {
    Step& step = steps.emplace_back();
    step.reads = 1;
    step.operands.resize(2);
    step.operands[0].slot = read, step.operands[1].slot = written;
    for (Operand& operand : step.operands) operand.layout = Layout::dense({f32, Shape{250}});
    list.push_back({&step, 0, {{read, 0}, {written, 0}}});
    return &step;
  }
  bool is_far(const Step* step, std::int64_t cache_bytes) const {
    const auto far = far_results(list, cache_bytes);
    const auto found = far.find(step);
    return found != far.end() && found->second == std::vector<bool>{true};
  }
};

TEST(FarResults, AreThoseOfARunThatTouchesMoreThanTheCacheHolds) {
  ReusedLaunches launches;
  const Step* only = launches.add(0, 1);
  EXPECT_TRUE(launches.is_far(only, 1'999));  // the next run writes them again
  EXPECT_FALSE(launches.is_far(only, 2'000));
}

TEST(FarResults, AreReadLater) {
  ReusedLaunches launches;
  const Step* soon = launches.add(0, 1);
  launches.add(1, 2);
  const Step* later = launches.add(0, 3);
  for (int i = 0; i < 3; ++i) launches.add(0, 4 + i);
  launches.add(3, 7);
  EXPECT_TRUE(launches.is_far(soon, 999));
  EXPECT_FALSE(launches.is_far(soon, 1'000)) << "2,000 bytes";
  EXPECT_TRUE(launches.is_far(later, 2'499));
  EXPECT_FALSE(launches.is_far(later, 2'500)) << "slot 0 four times, and four others: 5,000 bytes";
}

TEST(FarResults, AreNotWhatTheStepItselfReads) {
  ReusedLaunches launches;
  const Step* in_place = launches.add(1, 1);
  const Step* other = launches.add(0, 2);
  EXPECT_FALSE(launches.is_far(in_place, 1'000));
  EXPECT_TRUE(launches.is_far(other, 2'999));
  EXPECT_FALSE(launches.is_far(other, 3'000));
}

TEST(FarResults, AreFarInEveryTurnOfALoop) {
  ReusedLaunches launches;
  const Step* each = launches.add(0, 1);
  for (int i = 0; i < 3; ++i) launches.add(0, 2 + i);
  launches.list.push_back(launches.list.front());
  launches.list.push_back(launches.list.front());  // right after
  EXPECT_FALSE(launches.is_far(each, 2'000)) << "though 5,000 bytes lie between the first two";
  launches.list.pop_back();
  EXPECT_FALSE(launches.is_far(each, 2'000)) << "the next run begins with it";
  launches.add(0, 6);
  EXPECT_TRUE(launches.is_far(each, 2'000));
}

TEST(FarResults, AreNotThoseOfLoopsThatJump) {
  ReusedLaunches launches;
  const Step* in_front = launches.add(0, 1);
  const Step* inside = launches.add(0, 2);
  launches.add(0, 3);
  launches.list.back().kind = Launch::Kind::jump;
  launches.list.back().targets = {1};
  EXPECT_TRUE(launches.is_far(in_front, 1'000));
  EXPECT_FALSE(launches.is_far(inside, 1'000)) << "the next turn may be what comes next";
}

TEST(FarResults, OfAProgramAreWhatTheyWouldBeInACache) {
  const std::int64_t n = last_cache_bytes() / 8 + 37;  // of three tensors, one and a half caches
  Graph g;
  const Value x = g.input("x", f32, {n});
  g.fetch("twice", 2 * x + 1);
  g.fetch("sum", sum(cast(x, f64)));
  g.fetch("less", x - 3);
  Program program(g);
  Tensor values(f32, {n});
  double total = 0;
  for (std::int64_t i = 0; i < n; ++i) total += values.data<float>()[i] = static_cast<float>(i % 1000);
  for (int run = 0; run < 2; ++run) {
    const auto got = program.run({{"x", values}});
    EXPECT_EQ(*got.at("sum").data<double>(), total);
    const float *twice = got.at("twice").data<float>(), *less = got.at("less").data<float>();
    for (std::int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(twice[i], 2 * static_cast<float>(i % 1000) + 1) << i;
      ASSERT_EQ(less[i], static_cast<float>(i % 1000) - 3) << i;
    }
  }
}

}  // namespace
}  // namespace paoding
