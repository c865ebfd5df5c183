// SPDX-License-Identifier: Apache-2.0
// Evidence of a finding: spans, how much time is lost at each, and some of them as examples, which are of all kinds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "findings/finding.h"
#include "findings/steps.h"

namespace paoding::findings {

/// Spans that belong together, and how much time is lost at each.
class Evidence {
 public:
  void add(SpanId span, double ns) { all_.push_back({ns, span}), sum_ += ns; }
  /// All of another too.
  void add(const Evidence& more);
  double sum() const { return sum_; }
  std::size_t count() const { return all_.size(); }
  double longest() const;
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
