// SPDX-License-Identifier: Apache-2.0
#include "group/row_factors.h"

#include <gtest/gtest.h>

#include <cmath>

namespace paoding {
namespace {

Scalar reduced(Group* group, const Scalar& value) {
  group->reductions.push_back({value.id(), Combine::sum, 2});
  const auto index = static_cast<std::int32_t>(group->reductions.size()) - 1;
  return {&group->expr, group->expr.add({.prim = Prim::reduced, .dtype = f32, .index = index})};
}

// What the gradient of a norm has: sum(d * (x - m) * r), where m and r follow from sums of x.
Group norm_gradient(std::int64_t rows, std::int64_t columns) {
  Group group;
  group.extents = {rows, columns};
  group.loads = {{f32, {columns, 1}}, {f32, {columns, 1}}};
  const Scalar x = make_input(&group.expr, 0, f32), d = make_input(&group.expr, 1, f32);
  const Scalar c = x - reduced(&group, x) * 0.25;
  const Scalar r = rsqrt(reduced(&group, c * c));
  const Scalar total = reduced(&group, d * (c * r));
  group.outputs.push_back({f32, (d - total * c).id(), 0, Combine::none, {columns, 1}});
  return group;
}

std::vector<int> stages_of_sums(const Group& group) {
  const std::vector<int> all = stages(group);
  std::vector<int> found;
  for (const GroupReduction& sum : group.reductions) found.push_back(all[static_cast<std::size_t>(sum.value)]);
  return found;
}

TEST(RowFactors, OfASumLeaveItWhereItNeedNotWaitForThem) {
  const Group before = norm_gradient(3, 4);
  Group after = before;
  pull_row_factors(&after);
  check(after);
  EXPECT_EQ(stages_of_sums(before), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(stages_of_sums(after), (std::vector<int>{0, 1, 1}));
  std::vector<double> x(12), d(12), wanted(12), got(12);
  for (std::size_t i = 0; i < 12; ++i) x[i] = std::sin(double(i) * 1.7) * 3, d[i] = std::cos(double(i));
  run_reference(before, {x.data(), d.data(), wanted.data()});
  run_reference(after, {x.data(), d.data(), got.data()});
  for (std::size_t i = 0; i < 12; ++i) EXPECT_NEAR(got[i], wanted[i], 1e-12);
}

TEST(RowFactors, StayWhereNothingIsSaved) {
  Group group;
  group.extents = {3, 4};
  group.loads = {{f32, {4, 1}}};
  const Scalar x = make_input(&group.expr, 0, f32), m = reduced(&group, x);
  const Scalar total = reduced(&group, (x - m) * m);  // waits for m in any case
  group.outputs.push_back({f32, (x * total).id(), 0, Combine::none, {4, 1}});
  const std::string before = to_string(group);
  pull_row_factors(&group);
  EXPECT_EQ(to_string(group), before);
}

}  // namespace
}  // namespace paoding
