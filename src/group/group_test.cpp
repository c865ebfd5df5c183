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

GroupOutput output(std::int32_t value, std::uint32_t mask, std::vector<std::int64_t> strides) {
  return {f32, value, mask, mask ? Combine::sum : Combine::none, std::move(strides)};
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
  group.extents = {0, 100};
  EXPECT_EQ(group.points(), 0);
  EXPECT_EQ(group.min_bytes(), 100 * 4);
}

TEST(Group, PrintsItself) {
  Group group = product({2, 3}, {3, 1}, {0, 1});
  group.outputs.push_back(output(2, 1, {0, 1}));
  EXPECT_EQ(to_string(group),
            "space [2, 3]\nload 0 f32 (3, 1)\nload 1 f32 (0, 1)\noutput 0 f32 (3, 1) = %2\n"
            "output 1 f32 (0, 1) = sum over {0} of %2\n"
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
  group.outputs.push_back(output(2, 3, {0, 0, 1}));
  std::vector<double> want_rows(12, 0.0), want_columns(5, 0.0), want(60);
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

TEST(Reference, EmptySumIsZero) {
  Group group = product({0, 3}, {3, 1}, {0, 1});
  group.outputs = {output(2, 1, {0, 1})};
  std::vector<double> none(3), sum(3, 7.0);
  run_reference(group, {none.data(), none.data(), sum.data()});
  EXPECT_EQ(sum, std::vector<double>(3, 0.0));
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

TEST(Reference, CombinesMaximaMinimaAndProductsAndTheirIdentities) {
  for (const std::int64_t rows : {3, 0}) {
    Group group;
    group.extents = {2, rows};
    group.loads = {{f32, {rows, 1}}};
    const std::int32_t x = make_input(&group.expr, 0, f32).id();
    for (const Combine combine : {Combine::max, Combine::min, Combine::prod}) {
      group.outputs.push_back({f32, x, 2, combine, {1, 0}});
    }
    std::vector<double> values{2, -3, 0.5, 1, std::nan(""), 4}, max(2), min(2), prod(2);
    run_reference(group, {values.data(), max.data(), min.data(), prod.data()});
    EXPECT_EQ(max[0], rows ? 2 : -std::numeric_limits<double>::infinity());
    EXPECT_EQ(min[0], rows ? -3 : std::numeric_limits<double>::infinity());
    EXPECT_EQ(prod[0], rows ? -3 : 1);
    EXPECT_EQ(std::isnan(max[1]) && std::isnan(min[1]) && std::isnan(prod[1]), rows != 0) << "a NaN wins";
  }
  EXPECT_EQ(identity_of(Combine::max, boolean), 0);
  EXPECT_EQ(identity_of(Combine::min, boolean), 1);
  EXPECT_EQ(identity_of(Combine::max, i32), std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(identity_of(Combine::min, i32), std::numeric_limits<std::int32_t>::max());
}

std::int32_t add_leaf(Group* group, Prim prim, std::int32_t index, DType dtype) {
  return group->expr.add({.prim = prim, .dtype = dtype, .index = index});
}

// Row-wise softmax over axis 1 of [rows, columns]: y, and log(sum) + max once per row.
Group softmax(std::int64_t rows, std::int64_t columns) {
  Group group;
  group.extents = {rows, columns};
  group.loads = {{f32, {columns, 1}}};
  Expr* expr = &group.expr;
  const Scalar x = make_input(expr, 0, f32);
  group.reductions.push_back({x.id(), Combine::max, 2});
  const Scalar max(expr, add_leaf(&group, Prim::reduced, 0, f32));
  const Scalar e = exp(x - max);
  group.reductions.push_back({e.id(), Combine::sum, 2});
  const Scalar sum(expr, add_leaf(&group, Prim::reduced, 1, f32));
  group.outputs.push_back({f32, (e / sum).id(), 0, Combine::none, {columns, 1}});
  group.outputs.push_back({f32, (log(sum) + max).id(), 2, Combine::none, {1, 0}});
  return group;
}

TEST(Reference, RunsReductionsThatTheGroupReadsInStages) {
  const Group group = softmax(3, 4);
  check(group);
  EXPECT_EQ(stages(group), (std::vector<int>{0, 1, 1, 1, 2, 2, 2, 2}));
  EXPECT_EQ(varies_along(group, 2), (std::vector<bool>{true, false, true, true, false, true, false, false}));
  std::vector<double> x(12), y(12), row(3);
  for (int i = 0; i < 12; ++i) x[i] = std::sin(i * 1.7) * 3;
  const std::vector<double> in = x;
  run_reference(group, {x.data(), x.data(), row.data()});  // in place
  for (int r = 0; r < 3; ++r) {
    double total = 0;
    for (int c = 0; c < 4; ++c) total += std::exp(in[r * 4 + c]);
    for (int c = 0; c < 4; ++c) EXPECT_NEAR(x[r * 4 + c], std::exp(in[r * 4 + c]) / total, 1e-15);
    EXPECT_NEAR(row[r], std::log(total), 1e-14);
  }
}

TEST(Reference, IndicesFollowFromThePoint) {
  Group group;
  group.extents = {2, 3};
  group.indices = {{i64, 5, {10, -1}}};
  group.outputs.push_back({i64, add_leaf(&group, Prim::index, 0, i64), 0, Combine::none, {3, 1}});
  std::vector<double> y(6);
  run_reference(group, {y.data()});
  EXPECT_EQ(y, (std::vector<double>{5, 4, 3, 15, 14, 13}));
  EXPECT_EQ(to_string(group), "space [2, 3]\nindex 0 i64 5 + (10, -1)\noutput 0 i64 (3, 1) = %0\n%0 = index(0) i64\n");
}

TEST(Group, PrintsItsReductions) {
  const std::string text = to_string(softmax(3, 4));
  EXPECT_NE(text.find("reduced 0 = max over {1} of %0\nreduced 1 = sum over {1} of %3\n"), std::string::npos) << text;
  EXPECT_NE(text.find("output 1 f32 (1, 0) = once over {1} of %7\n"), std::string::npos) << text;
  EXPECT_NE(text.find("%1 = reduced(0) f32\n"), std::string::npos) << text;
}

TEST(Canonical, ReductionsOverUnitAxesAreTheValuesThemselves) {
  const Group result = canonical(softmax(3, 1));
  EXPECT_TRUE(result.reductions.empty());
  check(result);
  std::vector<double> x{1, 2, 3}, y(3), row(3);
  run_reference(result, {x.data(), y.data(), row.data()});
  EXPECT_EQ(y, std::vector<double>(3, 1.0));
  EXPECT_EQ(row, x);
}

TEST(Canonical, KeepsAxesApartWhereAReductionOrAnIndexDiffers) {
  Group group = product({4, 5}, {5, 1}, {5, 1});
  EXPECT_EQ(canonical(group).rank(), 1);
  group.indices = {{i64, 0, {1, 0}}};
  EXPECT_EQ(canonical(group).rank(), 2);
  group.indices[0].strides = {5, 1};
  EXPECT_EQ(canonical(group).rank(), 1);
  EXPECT_EQ(canonical(group).indices[0].strides, (std::vector<std::int64_t>{1}));
  group.reductions = {{2, Combine::max, 2}};
  EXPECT_EQ(canonical(group).rank(), 2);
}

// Random spaces, strides and masks: the canonical group must compute the same as the group as written.
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
    Scalar value = a * b + a;
    if (pick(2)) {
      GroupIndex index{i64, pick(9), {}};
      for (int axis = 0; axis < rank; ++axis) index.strides.push_back(pick(3) - 1);
      if (pick(2)) index.strides = strides(all, false);
      group.indices.push_back(index);
      value = value + convert(Scalar(&group.expr, add_leaf(&group, Prim::index, 0, i64)), f32);
    }
    const Combine combines[] = {Combine::sum, Combine::max, Combine::min};
    const std::uint32_t rows = pick(2) ? 0 : random() & all;
    for (int i = 0; rows != 0 && i < 2; ++i) {
      group.reductions.push_back({value.id(), combines[pick(3)], rows});
      value = value * 2.0 - Scalar(&group.expr, add_leaf(&group, Prim::reduced, i, f32));
    }
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t mask = pick(2) ? 0 : random() & all;
      group.outputs.push_back(output(value.id(), mask, strides(all & ~mask, pick(2))));
      if (mask != 0) group.outputs.back().combine = combines[pick(3)];
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
