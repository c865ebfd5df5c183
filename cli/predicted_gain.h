// SPDX-License-Identifier: Apache-2.0
// A finding's prediction beside the measurement of processes, for `paoding verify` and `paoding diff --finding`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "findings/finding.h"
#include "profile/compare_samples.h"

namespace paoding::cli {

/// A finding, as an engine that reads a trace has it, or the JSON of a report.
struct Prediction {
  int number = 0;
  std::string kind, title, op, scope;
  double gain = 0, low = 0, high = 0;  // of the step's time, that the change saves
  double high_ns = 0;                  // the same as ns, at most
  std::string change, verify;          // verify: the switch of paoding's; empty where none
};

struct Predictions {
  std::string file;
  std::vector<Prediction> list;
  std::string abstained;      // why there are none at all
  bool is_of_others = false;  // the program is not paoding's
};

Predictions predictions_of(const profile::Trace& trace, const std::string& file);
/// Reads the JSON of `paoding report --format json`, or finds them in a recording or trace, or a folder of ranks. Error
/// (file).
Predictions read_predictions(const std::string& path);
/// UsageError where there is none of the number, which says why.
const Prediction& prediction_at(const Predictions& all, int number);

enum class GainVerdict { as_predicted, less, more, inconclusive };
std::string_view to_string(GainVerdict outcome);

/// The gain of the change, as shares of the time before it.
struct MeasuredGain {
  double gain = 0, low = 0, high = 0;
  GainVerdict outcome = GainVerdict::inconclusive;
  bool is_missed_by_a_quarter = false;  // the predicted gain
};
/// Inconclusive where the verdict is; else by whether the intervals overlap.
MeasuredGain measured_gain(const Prediction& prediction, const profile::Comparison& step);

/// "predicted 6.1 [4.8, 7.0]%, measured 5.6 [5.2, 6.0]%: as predicted".
std::string gain_text(const Prediction& prediction, const MeasuredGain& measured);
/// Members of a JSON object: "number", "kind", "title", "change", "verify", "predicted", "measured", "outcome", ..
std::string gain_json(const Prediction& prediction, const MeasuredGain& measured);
/// The same without a measurement.
std::string prediction_json(const Prediction& prediction);

}  // namespace paoding::cli
