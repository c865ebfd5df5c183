// SPDX-License-Identifier: Apache-2.0
// Groups, their canonical form and the reference, against loops written out by hand.
#include "group/group.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace paoding {
namespace {

GroupOutput output(std::int32_t value, std::uint32_t mask, std::vector<std::int64_t> strides, bool accumulate = false) {
  return {f32, value, mask, mask ? Combine::sum : Combine::none, accumulate, std::move(strides)};
}

// z = x * y over the given space.
Group product(std::vector<std::int64_t> extents, std::vector<std::int64_t> x, std::vector<std::int64_t> y) {
  Group group;
  group.extents = std::move(extents);
  group.loads = {{f32, std::move(x)}, {f32, std::move(y)}};
  Scalar a = make_input(&group.expr, 0, f32), b = make_input(&group.expr, 1, f32);
  group.outputs.push_back(output((a * b).id(), 0, {}));
  std::vector<std::int64_t>& strides = group.outputs[0].strides;
  std::int64_t step = 1;
  for (std::size_t axis = group.extents.size(); axis-- > 0; step *= group.extents[axis]) {
    strides.insert(strides.begin(), step);
  }
  return group;
}

TEST(Group, CountsPointsAndBytes) {
  Group group = product({16, 100}, {100, 1}, {0, 1});
  EXPECT_EQ(group.points(), 1600);
  EXPECT_EQ(group.min_bytes(), 1600 * 4 + 100 * 4 + 1600 * 4);
  group.outputs[0] = output(2, 1, {0, 1});
  EXPECT_EQ(group.min_bytes(), 1600 * 4 + 100 * 4 + 100 * 4);
  group.outputs[0].accumulate = true;
  EXPECT_EQ(group.min_bytes(), 1600 * 4 + 100 * 4 + 2 * 100 * 4);
  group.extents = {0, 100};
  EXPECT_EQ(group.points(), 0);
  EXPECT_EQ(group.min_bytes(), 2 * 100 * 4);
}

TEST(Group, PrintsItself) {
  Group group = product({2, 3}, {3, 1}, {0, 1});
  group.outputs.push_back(output(2, 1, {0, 1}, true));
  EXPECT_EQ(to_string(group),
            "space [2, 3]\nload 0 f32 (3, 1)\nload 1 f32 (0, 1)\noutput 0 f32 (3, 1) = %2\n"
            "output 1 f32 (0, 1) += sum over {0} of %2\n"
            "%0 = input(0) f32\n%1 = input(1) f32\n%2 = mul(%0, %1) f32\n");
}

TEST(Canonical, MergesDenseAxesIntoOne) {
  const Group merged = canonical(product({4, 1, 5, 6}, {30, 7, 6, 1}, {0, 0, 0, 0}));
  EXPECT_EQ(merged.extents, (std::vector<std::int64_t>{120}));
  EXPECT_EQ(merged.loads[0].strides, (std::vector<std::int64_t>{1}));
  EXPECT_EQ(merged.loads[1].strides, (std::vector<std::int64_t>{0}));
}

TEST(Canonical, KeepsAxesApartWhereAStrideOrMaskDiffers) {
  EXPECT_EQ(canonical(product({4, 5}, {5, 1}, {0, 1})).extents, (std::vector<std::int64_t>{4, 5}));
  Group group = product({4, 5}, {5, 1}, {5, 1});
  group.outputs.push_back(output(2, 1, {0, 1}));
  EXPECT_EQ(canonical(group).extents, (std::vector<std::int64_t>{4, 5}));
  group.outputs[1] = output(2, 3, {0, 0});
  EXPECT_EQ(canonical(group).extents, (std::vector<std::int64_t>{20})) << "both axes are summed";
}

TEST(Canonical, ATransposedLoadDoesNotWinOverTwoContiguousOperands) {
  const Group one = canonical(product({32, 64}, {64, 1}, {1, 32}));
  EXPECT_EQ(one.loads[0].strides, (std::vector<std::int64_t>{64, 1}));
  EXPECT_EQ(one.loads[1].strides, (std::vector<std::int64_t>{1, 32}));
  const Group both = canonical(product({32, 64}, {1, 32}, {1, 32}));
  EXPECT_EQ(both.extents, (std::vector<std::int64_t>{64, 32}));
  EXPECT_EQ(both.outputs[0].strides, (std::vector<std::int64_t>{1, 64}));
}

TEST(Canonical, WhollyTransposedGroupBecomesOneAxis) {
  Group group = product({32, 64}, {1, 32}, {1, 32});
  group.outputs[0].strides = {1, 32};
  EXPECT_EQ(canonical(group).extents, (std::vector<std::int64_t>{2048}));
}

TEST(Canonical, RowSumKeepsTheContiguousAxisInnermost) {
  Group group = product({64, 32}, {1, 64}, {1, 64});
  group.outputs[0] = output(2, 2, {1, 0});  // sums the axis that is outer in memory
  const Group result = canonical(group);
  EXPECT_EQ(result.extents, (std::vector<std::int64_t>{32, 64}));
  EXPECT_EQ(result.outputs[0].reduce_mask, 1u);
}

TEST(Canonical, SumOverUnitAxesIsAStore) {
  Group group = product({1, 6}, {6, 1}, {0, 1});
  group.outputs[0] = output(2, 1, {0, 1});
  const Group result = canonical(group);
  EXPECT_EQ(result.outputs[0].reduce_mask, 0u);
  EXPECT_EQ(result.outputs[0].combine, Combine::none);
}

TEST(Reference, MatchesLoopsForSumsOverDifferentAxes) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  std::vector<double> x(60), w(5), full(60), rows(12, 9.0), columns(5, 2.0);
  for (double& v : x) v = normal(random);
  for (double& v : w) v = normal(random);
  Group group = product({3, 4, 5}, {20, 5, 1}, {0, 0, 1});
  group.outputs.push_back(output(2, 4, {4, 1, 0}));
  group.outputs.push_back(output(2, 3, {0, 0, 1}, true));
  std::vector<double> want_rows(12, 0.0), want_columns(5, 2.0), want(60);
  for (int i = 0; i < 12; ++i) {
    for (int j = 0; j < 5; ++j) {
      const double p = x[i * 5 + j] * w[j];
      want[i * 5 + j] = p, want_rows[i] += p, want_columns[j] += p;
    }
  }
  run_reference(group, {x.data(), w.data(), full.data(), rows.data(), columns.data()});
  EXPECT_EQ(full, want);
  for (int i = 0; i < 12; ++i) EXPECT_NEAR(rows[i], want_rows[i], 1e-14);
  for (int j = 0; j < 5; ++j) EXPECT_NEAR(columns[j], want_columns[j], 1e-14);
}

TEST(Reference, EmptySumIsZeroAndEmptyAccumulationLeavesTheOutput) {
  Group group = product({0, 3}, {3, 1}, {0, 1});
  group.outputs = {output(2, 1, {0, 1}), output(2, 1, {0, 1}, true)};
  std::vector<double> none(3), sum(3, 7.0), kept(3, 7.0);
  run_reference(group, {none.data(), none.data(), sum.data(), kept.data()});
  EXPECT_EQ(sum, std::vector<double>(3, 0.0));
  EXPECT_EQ(kept, std::vector<double>(3, 7.0));
}

TEST(Reference, SumsAreCompensatedAndKeepInfinity) {
  Group group = product({4}, {1}, {0});
  group.outputs = {output(2, 1, {0})};
  std::vector<double> x{1.0, 1e100, 1.0, -1e100}, one{1.0}, sum{0.0};
  run_reference(group, {x.data(), one.data(), sum.data()});
  EXPECT_EQ(sum[0], 2.0);
  x = {1.0, std::numeric_limits<double>::infinity(), 1.0, 2.0};
  run_reference(group, {x.data(), one.data(), sum.data()});
  EXPECT_EQ(sum[0], std::numeric_limits<double>::infinity());
}

TEST(Reference, RankZeroIsOnePointAndInPlaceWorks) {
  Group group = product({}, {}, {});
  double x = 3, y = 4;
  run_reference(group, {&x, &y, &x});
  EXPECT_EQ(x, 12.0);
}

// Random spaces, strides and masks: the canonical group must compute what the group as written computes.
TEST(Canonical, ComputesTheSameForRandomGroups) {
  std::mt19937 random(7);
  auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int trial = 0; trial < 500; ++trial) {
    Group group;
    const int rank = pick(5);
    for (int axis = 0; axis < rank; ++axis) group.extents.push_back(pick(20) == 0 ? 0 : 1 + pick(4));
    std::vector<std::size_t> order(static_cast<std::size_t>(rank));
    // Dense strides over the axes that `kept` names, in a random axis order.
    auto strides = [&](std::uint32_t kept, bool shuffled) {
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
      if (shuffled) std::shuffle(order.begin(), order.end(), random);
      std::vector<std::int64_t> result(order.size(), 0);
      std::int64_t step = pick(4) == 0 ? 2 : 1;
      for (std::size_t i = order.size(); i-- > 0;) {
        if (!((kept >> order[i]) & 1u)) continue;
        result[order[i]] = step;
        step *= std::max<std::int64_t>(group.extents[order[i]], 1);
      }
      return result;
    };
    const std::uint32_t all = (1u << rank) - 1;
    for (int i = 0; i < 2; ++i) group.loads.push_back({f32, strides(pick(2) ? all : random() & all, pick(2))});
    const Scalar a = make_input(&group.expr, 0, f32), b = make_input(&group.expr, 1, f32);
    const std::int32_t value = (a * b + a).id();
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t mask = pick(2) ? 0 : random() & all;
      group.outputs.push_back(output(value, mask, strides(all & ~mask, pick(2)), pick(2)));
    }
    std::vector<std::vector<double>> memory(4, std::vector<double>(2000));
    for (auto& m : memory) {
      for (double& v : m) v = pick(1000);
    }
    auto again = memory;
    const Group other = canonical(group);
    ASSERT_LE(other.rank(), group.rank());
    ASSERT_EQ(other.points(), group.points());
    for (const std::int64_t extent : other.extents) ASSERT_NE(extent, 1);
    run_reference(group, {memory[0].data(), memory[1].data(), memory[2].data(), memory[3].data()});
    run_reference(other, {again[0].data(), again[1].data(), again[2].data(), again[3].data()});
    ASSERT_EQ(memory, again) << "trial " << trial << "\n" << to_string(group) << to_string(other);
    ASSERT_EQ(to_string(canonical(other)), to_string(other)) << "canonical is not a fixed point";
  }
}

}  // namespace
}  // namespace paoding
