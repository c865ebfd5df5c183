// SPDX-License-Identifier: Apache-2.0
// Whether one program is faster than another, from the times of several processes of each. docs/reference/diff.md has
// the reasons for the method.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace paoding::profile {

// ---- Student's t ----

/// How likely Student's t with so many degrees of freedom (any number above 0) is above `t`.
double student_t_tail(double t, double degrees);
/// The value that it exceeds with this probability, which is above 0 and at most 1/2.
double student_t_quantile(double tail, double degrees);

// ---- the verdict ----

enum class Verdict { same, faster, slower, inconclusive };
std::string_view to_string(Verdict verdict);

/// When a difference counts.
struct Rule {
  double floor = 0.01;           // a smaller change of the time is none
  double confidence = 0.99;      // of all verdicts together
  int verdicts = 1;              // so many share the probability of error: rows of a table, looks at one that grows
  double assumed_spread = 0.05;  // between processes, where there is one process a side and it cannot be known
};

/// The time of B beside that of A.
struct Comparison {
  double a = 0, b = 0;                // geometric means of the processes' times
  double a_spread = 0, b_spread = 0;  // standard deviations between processes, as shares of the time
  double ratio = 1;                   // b / a
  double low = 0, high = 0;           // the interval that ratio is in, with `confidence`
  double confidence = 0;              // of this interval
  bool is_spread_assumed = false;
  Verdict verdict = Verdict::inconclusive;
  std::size_t needed = 0;  // of inconclusive: about so many processes a side would tell; 0 where that is not known
};
/// Uses Welch's interval of the logarithms. Every value is the time of one process: above 0 and finite, at least one a
/// side; else Error (argument).
Comparison compare_samples(const std::vector<double>& a, const std::vector<double>& b, const Rule& rule = {});

// ---- the order ----

/// One process.
struct Measured {
  bool is_b = false;
  double time = 0;
};
/// A trend over the order in which processes were measured, which is none of A's and B's.
struct Drift {
  bool is_found = false;
  double whole = 0;          // of the time, from the first process to the last
  double in_difference = 0;  // its share of the difference between B and A
};
/// Found where it is beyond the floor and chance makes one like it in at most 1 of 100 series.
Drift find_drift(const std::vector<Measured>& in_order, const Rule& rule = {});

/// Whether process `i` of the order A B B A A B B A .. runs B.
inline bool is_of_b(std::size_t i) { return i % 4 == 1 || i % 4 == 2; }

/// Where a series that may grow is looked at, in processes a side: `runs`, twice that, and so on, `most` last.
std::vector<std::size_t> looks_at(std::size_t runs, std::size_t most);

// ---- many at once ----

/// How likely chance makes means as far apart as these, of equal ones: Welch's test, two-sided. 1 where a side has
/// fewer than two numbers.
double welch_p(const std::vector<double>& a, const std::vector<double>& b);
/// Which of them to believe so that at most a share `rate` of those is expected to be wrong (Benjamini, Hochberg 1995).
std::vector<bool> discoveries(const std::vector<double>& p_values, double rate);

}  // namespace paoding::profile
