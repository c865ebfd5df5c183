// SPDX-License-Identifier: Apache-2.0
// Evidence of a finding: spans, how much time is lost at each, and some of them as examples, which are of all kinds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "findings/finding.h"
#include "findings/steps.h"

namespace paoding::findings {

/// The steps in which something happens, and how long they take; most texts are about those alone.
struct Affected {
  std::size_t steps = 0, of = 0;  // of: all that are looked at
  double step_ns = 0;             // one of them, on average
  /// All but a tenth at most: it is said of a step, on average of all of them.
  bool are_all() const;
  /// The part of one affected step in a sum over all steps.
  double each(double sum) const;
  /// "a step", or "in each of those".
  std::string_view a_step() const { return are_all() ? "a step" : "in each of those"; }
  /// "A step has", or "4 of 39 steps have".
  std::string have() const;
  /// "", or "In 4 of 39 steps: ".
  std::string in_steps() const;
  /// "9.81 ms of a step of 25.7 ms", or "9.81 ms of each of those (28.8 ms on average)".
  std::string part(double sum) const;
};
/// `in`: their places, in any order, repeats among them.
Affected affected(const Steps& steps, std::vector<std::size_t> in);

/// Spans that belong together, and how much time is lost at each.
class Evidence {
 public:
  void add(SpanId span, double ns) { all_.push_back({ns, span}), sum_ += ns; }
  /// All of another too.
  void add(const Evidence& more);
  double sum() const { return sum_; }
  std::size_t count() const { return all_.size(); }
  double longest() const;
  /// The steps in which time is lost.
  Affected affected(const Steps& steps) const;
  /// The span at which most is lost comes first; then the worst of every other name, those names first that most is
  /// lost at; then those of other steps.
  Examples examples(const Steps& steps) const;

 private:
  struct Lost {
    double ns;
    SpanId span;
  };
  std::vector<Lost> all_;
  double sum_ = 0;
};

}  // namespace paoding::findings
