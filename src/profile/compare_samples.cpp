// SPDX-License-Identifier: Apache-2.0
#include "profile/compare_samples.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace paoding::profile {

namespace {

// The regularised incomplete beta function by its continued fraction (DLMF 8.17.22), evaluated by Lentz's method; it
// converges fast for x below (a + 1) / (a + b + 2).
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300, kEnough = 1e-16;
  const auto not_zero = [](double v) { return std::abs(v) < kTiny ? kTiny : v; };
  double c = 1, d = 1 / not_zero(1 - (a + b) * x / (a + 1)), value = d;
  for (int m = 1; m <= 10000; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / not_zero(1 + even * d), c = not_zero(1 + even / c);
    value *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / not_zero(1 + odd * d), c = not_zero(1 + odd / c);
    value *= d * c;
    if (std::abs(d * c - 1) < kEnough) break;
  }
  return value;
}

double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

struct Moments {
  double count = 0, mean = 0, variance = 0;  // of what the numbers are drawn from
};
Moments moments(const std::vector<double>& numbers) {
  Moments m;
  m.count = static_cast<double>(numbers.size());
  for (const double number : numbers) m.mean += number / m.count;
  for (const double number : numbers) m.variance += (number - m.mean) * (number - m.mean);
  m.variance = m.count > 1 ? m.variance / (m.count - 1) : 0;
  return m;
}

std::vector<double> logarithms(const std::vector<double>& times) {
  if (times.empty()) fail(ErrorKind::argument, "diff: a side has no process that was measured");
  std::vector<double> logs;
  for (const double time : times) {
    if (!(time > 0) || !std::isfinite(time)) {
      fail(ErrorKind::argument, "diff: a process took {}, needs to be a time above 0", time);
    }
    logs.push_back(std::log(time));
  }
  return logs;
}

// How far the difference of two means may be off, in standard errors and with how many degrees of freedom.
struct Doubt {
  double error = 0, degrees = std::numeric_limits<double>::infinity();
};

// Welch 1947, Satterthwaite 1946.
Doubt doubt_of(const Moments& a, const Moments& b) {
  const double of_a = a.variance / a.count, of_b = b.variance / b.count, sum = of_a + of_b;
  if (sum <= 0) return {};
  return {std::sqrt(sum), sum * sum / (of_a * of_a / (a.count - 1) + of_b * of_b / (b.count - 1))};
}

// The same where a side has one process: by the spread of the other side, or one that is assumed.
Doubt doubt_of_few(const Moments& a, const Moments& b, double assumed_spread) {
  const Moments& more = a.count > b.count ? a : b;
  const double both = 1 / a.count + 1 / b.count;
  if (more.count < 2) return {.error = assumed_spread * std::sqrt(both)};
  return {std::sqrt(more.variance * both), more.count - 1};
}

double quantile(double tail, double degrees) {
  constexpr double kAsNormal = 1e6;
  return student_t_quantile(tail, std::min(degrees, kAsNormal));
}

// Processes a side with which an interval around this difference would lie on one side of the floor.
std::size_t needed(double difference, double variance, double floor, double tail) {
  constexpr double kMost = 10000;
  const double room = std::abs(std::abs(difference) - floor);
  double n = 10;
  for (int i = 0; i < 6; ++i) {  // of t's degrees, which are those of the answer
    const double wanted = std::pow(quantile(tail, 2 * n - 2) / room, 2) * 2 * variance;
    if (!(wanted < kMost)) return 0;
    n = std::max(2.0, std::ceil(wanted));
  }
  return static_cast<std::size_t>(n);
}

}  // namespace

double student_t_tail(double t, double degrees) {
  PD_ASSERT(degrees > 0, "degrees of freedom above 0");
  const double half = 0.5 * incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t));
  return t >= 0 ? half : 1 - half;
}

double student_t_quantile(double tail, double degrees) {
  PD_ASSERT(tail > 0 && tail <= 0.5, "a tail above 0 and at most 1/2");
  double low = 0, high = 1;
  while (student_t_tail(high, degrees) > tail && high < 1e300) high *= 2;
  // Halves the interval down to the last digits of a double.
  for (double middle = (low + high) / 2; high - low > 1e-15 * high; middle = (low + high) / 2) {
    (student_t_tail(middle, degrees) > tail ? low : high) = middle;
  }
  return high;
}

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::same: return "same";
    case Verdict::faster: return "faster";
    case Verdict::slower: return "slower";
    case Verdict::inconclusive: return "inconclusive";
  }
  return "?";
}

Comparison compare_samples(const std::vector<double>& a, const std::vector<double>& b, const Rule& rule) {
  const Moments of_a = moments(logarithms(a)), of_b = moments(logarithms(b));
  const bool has_spread = of_a.count > 1 && of_b.count > 1;
  const Doubt doubt = has_spread ? doubt_of(of_a, of_b) : doubt_of_few(of_a, of_b, rule.assumed_spread);
  const double tail = (1 - rule.confidence) / 2 / std::max(rule.verdicts, 1);
  const double difference = of_b.mean - of_a.mean;
  const double half = doubt.error > 0 ? quantile(tail, doubt.degrees) * doubt.error : 0;
  Comparison c;
  c.a = std::exp(of_a.mean), c.b = std::exp(of_b.mean);
  c.a_spread = std::sqrt(of_a.variance), c.b_spread = std::sqrt(of_b.variance);
  c.ratio = std::exp(difference), c.low = std::exp(difference - half), c.high = std::exp(difference + half);
  c.confidence = 1 - 2 * tail;
  c.is_spread_assumed = of_a.count < 2 && of_b.count < 2;
  const double floor = std::log1p(rule.floor);
  if (difference - half > floor) {
    c.verdict = Verdict::slower;
  } else if (difference + half < -floor) {
    c.verdict = Verdict::faster;
  } else if (difference - half >= -floor && difference + half <= floor) {
    c.verdict = Verdict::same;
  } else if (has_spread) {
    c.needed = needed(difference, (of_a.variance + of_b.variance) / 2, floor, tail);
  }
  return c;
}

Drift find_drift(const std::vector<Measured>& in_order, const Rule& rule) {
  std::vector<double> order[2], logs[2];
  for (std::size_t i = 0; i < in_order.size(); ++i) {
    order[in_order[i].is_b].push_back(static_cast<double>(i));
    logs[in_order[i].is_b].push_back(std::log(in_order[i].time));
  }
  const auto count = static_cast<double>(in_order.size());
  if (count < 5 || order[0].size() < 2 || order[1].size() < 2) return {};
  double along = 0, across = 0, at[2];
  for (const int side : {0, 1}) {
    const double mean = moments(logs[side]).mean;
    at[side] = moments(order[side]).mean;
    for (std::size_t i = 0; i < order[side].size(); ++i) {
      along += (order[side][i] - at[side]) * (order[side][i] - at[side]);
      across += (order[side][i] - at[side]) * (logs[side][i] - mean);
    }
  }
  const double slope = across / along;
  double rest = 0;
  for (const int side : {0, 1}) {
    const double mean = moments(logs[side]).mean;
    for (std::size_t i = 0; i < order[side].size(); ++i) {
      const double off = logs[side][i] - mean - slope * (order[side][i] - at[side]);
      rest += off * off;
    }
  }
  Drift drift;
  drift.whole = std::expm1(slope * (count - 1));
  drift.in_difference = std::expm1(slope * (at[1] - at[0]));
  const double error = std::sqrt(rest / (count - 3) / along);
  const bool is_chance = error > 0 && 2 * student_t_tail(std::abs(slope) / error, count - 3) > 0.01;
  drift.is_found = !is_chance && std::abs(drift.whole) > rule.floor;
  return drift;
}

std::vector<std::size_t> looks_at(std::size_t runs, std::size_t most) {
  std::vector<std::size_t> looks;
  for (std::size_t at = runs; at < most; at *= 2) looks.push_back(at);
  looks.push_back(std::max(runs, most));
  return looks;
}

double welch_p(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() < 2 || b.size() < 2) return 1;
  const Moments of_a = moments(a), of_b = moments(b);
  const double difference = std::abs(of_b.mean - of_a.mean);
  const Doubt doubt = doubt_of(of_a, of_b);
  if (doubt.error <= 0) return difference > 0 ? 0 : 1;
  return std::min(1.0, 2 * student_t_tail(difference / doubt.error, doubt.degrees));
}

std::vector<bool> discoveries(const std::vector<double>& p_values, double rate) {
  std::vector<std::size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) { return p_values[x] < p_values[y]; });
  std::size_t believed = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const double most = rate * static_cast<double>(i + 1) / static_cast<double>(order.size());
    if (p_values[order[i]] <= most) believed = i + 1;
  }
  std::vector<bool> found(p_values.size(), false);
  for (std::size_t i = 0; i < believed; ++i) found[order[i]] = true;
  return found;
}

}  // namespace paoding::profile
