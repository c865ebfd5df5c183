// SPDX-License-Identifier: Apache-2.0
// Verdicts of numbers worked out elsewhere, and of processes drawn from spreads that real ones had.
#include "profile/compare_samples.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "paoding/error.h"

namespace paoding::profile {
namespace {

// ---- Student's t: NIST/SEMATECH e-Handbook of Statistical Methods, table 1.3.6.7.2 ----

TEST(StudentT, HasTheQuantilesOfTheTables) {
  struct Entry {
    double tail, degrees, t;
  };
  for (const Entry& e :
       {Entry{0.10, 1, 3.078}, {0.05, 1, 6.314},   {0.025, 1, 12.706}, {0.01, 1, 31.821},  {0.005, 1, 63.657},
        {0.001, 1, 318.309},   {0.025, 2, 4.303},  {0.005, 2, 9.925},  {0.025, 4, 2.776},  {0.005, 4, 4.604},
        {0.10, 8, 1.397},      {0.05, 8, 1.860},   {0.025, 8, 2.306},  {0.01, 8, 2.896},   {0.005, 8, 3.355},
        {0.001, 8, 4.501},     {0.005, 18, 2.878}, {0.005, 30, 2.750}, {0.001, 60, 3.232}, {0.005, 100, 2.626}}) {
    EXPECT_NEAR(student_t_quantile(e.tail, e.degrees), e.t, 0.0006) << e.tail << " of " << e.degrees;
  }
  EXPECT_NEAR(student_t_quantile(0.005, 1e6), 2.575829, 1e-4);  // of the normal distribution
}

// Of one and of two degrees of freedom there are closed forms.
TEST(StudentT, HasTheTailsOfItsClosedForms) {
  for (const double t : {0.0, 0.1, 0.9, 1.0, 3.0, 50.0, 1e4}) {
    EXPECT_NEAR(student_t_tail(t, 1), std::atan2(1, t) / std::acos(-1), 1e-13) << t;
    EXPECT_NEAR(student_t_tail(t, 2), 1 / (t * t + 2 + t * std::sqrt(t * t + 2)), 1e-13) << t;
    EXPECT_NEAR(student_t_tail(-t, 2), 1 - student_t_tail(t, 2), 1e-13) << t;
  }
  EXPECT_DOUBLE_EQ(student_t_tail(student_t_quantile(0.003, 4.7), 4.7), 0.003);
}

// ---- one comparison ----

TEST(CompareSamples, GivesWelchsIntervalOfTheLogarithms) {
  const Comparison c = compare_samples({100, 101, 99, 100.5, 99.5}, {107, 109, 106, 108, 105});
  EXPECT_NEAR(c.ratio, std::pow(107. * 109 * 106 * 108 * 105 / (100. * 101 * 99 * 100.5 * 99.5), 0.2), 1e-12);
  double a[5] = {100, 101, 99, 100.5, 99.5}, b[5] = {107, 109, 106, 108, 105}, mean[2] = {}, square[2] = {};
  for (int i = 0; i < 5; ++i) mean[0] += std::log(a[i]) / 5, mean[1] += std::log(b[i]) / 5;
  for (int i = 0; i < 5; ++i)
    square[0] += std::pow(std::log(a[i]) - mean[0], 2), square[1] += std::pow(std::log(b[i]) - mean[1], 2);
  const double of_a = square[0] / 4 / 5, of_b = square[1] / 4 / 5;
  const double degrees = std::pow(of_a + of_b, 2) / (of_a * of_a / 4 + of_b * of_b / 4);
  // Between the table's 3.707 of 6 degrees and 3.499 of 7.
  EXPECT_GT(degrees, 6);
  EXPECT_LT(degrees, 7);
  const double half = std::log(c.high / c.low) / 2 / std::sqrt(of_a + of_b);
  EXPECT_LT(half, 3.707);
  EXPECT_GT(half, 3.499);
  EXPECT_EQ(c.verdict, Verdict::slower);
  EXPECT_DOUBLE_EQ(c.confidence, 0.99);
}

TEST(CompareSamples, TellsSameFasterSlowerAndInconclusive) {
  const std::vector<double> a = {100, 100.1, 99.9, 100.05, 99.95};
  const auto times = [&](double factor) {
    std::vector<double> b = a;
    for (double& time : b) time *= factor;
    return b;
  };
  EXPECT_EQ(compare_samples(a, a).verdict, Verdict::same);
  EXPECT_EQ(compare_samples(a, times(1.005)).verdict, Verdict::same);
  EXPECT_EQ(compare_samples(a, times(1.0101)).verdict, Verdict::inconclusive);  // at the floor
  EXPECT_EQ(compare_samples(a, times(1.02)).verdict, Verdict::slower);
  EXPECT_EQ(compare_samples(a, times(0.98)).verdict, Verdict::faster);
  EXPECT_EQ(compare_samples(a, times(1.02), {.floor = 0.05}).verdict, Verdict::same);
  // Each a tenth off: five a side cannot tell.
  const Comparison wide = compare_samples({90, 110, 100, 95, 105}, {95, 115, 105, 100, 110});
  EXPECT_EQ(wide.verdict, Verdict::inconclusive);
  EXPECT_GT(wide.needed, 20u);
}

// Nothing is known of the spread between processes where there is one a side.
TEST(CompareSamples, OfOneProcessASideSaysOnlyWhatIsBeyondTheAssumedSpread) {
  const Comparison few = compare_samples({100}, {110});
  EXPECT_TRUE(few.is_spread_assumed);
  EXPECT_EQ(few.verdict, Verdict::inconclusive);
  EXPECT_EQ(compare_samples({100}, {150}).verdict, Verdict::slower);
  EXPECT_EQ(compare_samples({100}, {110}, {.assumed_spread = 0.01}).verdict, Verdict::slower);
  // One beside five: by the spread of those.
  EXPECT_EQ(compare_samples({100}, {110, 110.1, 109.9, 110.2, 109.8}).verdict, Verdict::slower);
  EXPECT_EQ(compare_samples({100}, {110, 120, 100, 130, 90}).verdict, Verdict::inconclusive);
}

TEST(CompareSamples, WidensIntervalsForVerdictsThatAreGivenTogether) {
  const std::vector<double> a = {100, 101, 99, 100, 100}, b = {104, 105, 103, 104, 104};
  const Comparison one = compare_samples(a, b), many = compare_samples(a, b, {.verdicts = 100});
  EXPECT_LT(many.low, one.low);
  EXPECT_GT(many.high, one.high);
  EXPECT_DOUBLE_EQ(many.confidence, 0.9999);
}

TEST(CompareSamples, RefusesWhatIsNoTime) {
  for (const std::vector<double>& bad : {std::vector<double>{}, {0}, {-1}, {std::nan("")}, {INFINITY}}) {
    EXPECT_THROW(compare_samples({1}, bad), Error);
    EXPECT_THROW(compare_samples(bad, {1}), Error);
  }
}

// ---- order ----

TEST(Drift, IsFoundWhereTimesGrowOnBothSides) {
  std::vector<Measured> grows, still, apart;
  const double noise[] = {0.3, -0.2, 0.1, -0.4, 0.2, 0.1, -0.1, 0.3, -0.3, 0.0};
  for (std::size_t i = 0; i < 10; ++i) {
    const double side = is_of_b(i) ? 1.1 : 1;
    grows.push_back({is_of_b(i), side * (100 + noise[i] + static_cast<double>(i))});
    still.push_back({is_of_b(i), side * (100 + noise[i])});
    apart.push_back({i >= 5, 100 + noise[i] + static_cast<double>(i)});
  }
  const Drift drift = find_drift(grows);
  EXPECT_TRUE(drift.is_found);
  EXPECT_NEAR(drift.whole, 0.09, 0.01);
  EXPECT_LT(std::abs(drift.in_difference), 0.003);  // in turns, it is on both sides
  EXPECT_FALSE(find_drift(still).is_found);
  // All of A in front of all of B: the difference is drift, and nothing else.
  EXPECT_TRUE(find_drift(apart).is_found);
  EXPECT_NEAR(find_drift(apart).in_difference, 0.05, 0.01);
}

TEST(Turns, AreABBA) {
  std::string order;
  for (std::size_t i = 0; i < 10; ++i) order += is_of_b(i) ? 'B' : 'A';
  EXPECT_EQ(order, "ABBAABBAAB");
  EXPECT_EQ(looks_at(5, 5), (std::vector<std::size_t>{5}));
  EXPECT_EQ(looks_at(5, 20), (std::vector<std::size_t>{5, 10, 20}));
  EXPECT_EQ(looks_at(5, 30), (std::vector<std::size_t>{5, 10, 20, 30}));
}

// Benjamini and Hochberg 1995, table of section 3.2: 4 of 15 at 5%.
TEST(Discoveries, AreThoseOfTheExampleOfItsAuthors) {
  const std::vector<double> p = {0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344,
                                 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0};
  const std::vector<bool> found = discoveries(p, 0.05);
  for (std::size_t i = 0; i < p.size(); ++i) EXPECT_EQ(found[i], i < 4) << i;
  EXPECT_DOUBLE_EQ(welch_p({1, 2, 3}, {1, 2, 3}), 1);
  EXPECT_DOUBLE_EQ(welch_p({1}, {2, 3}), 1);
  EXPECT_DOUBLE_EQ(welch_p({1, 1}, {2, 2}), 0);
}

}  // namespace
}  // namespace paoding::profile
