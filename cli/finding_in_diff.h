// SPDX-License-Identifier: Apache-2.0
// The fate of a finding: whether its evidence is gone in a later trace, and whether the step moved as it predicts.
#pragma once

#include <string>

#include "predicted_gain.h"
#include "profile/diff.h"

namespace paoding::cli {

enum class Evidence { gone, there, unknown };

struct FindingInDiff {
  Prediction prediction;
  MeasuredGain measured;
  Evidence evidence = Evidence::unknown;
  std::string note;  // the finding in the later trace, or why it is unknown

  /// Gone, and the step got shorter as predicted or more.
  bool is_confirmed() const;
  /// There still, or the step did not get shorter by as much.
  bool is_refuted() const;
};

/// The same finding is one of the same kind about the same op and scope. Error (argument) where the diff has no steps.
FindingInDiff find_in_diff(const Prediction& prediction, const Predictions& after, const profile::Diff& diff);

std::string to_text(const FindingInDiff& finding);
std::string to_markdown(const FindingInDiff& finding);
std::string to_json(const FindingInDiff& finding);

}  // namespace paoding::cli
