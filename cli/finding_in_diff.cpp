// SPDX-License-Identifier: Apache-2.0
#include "finding_in_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "base/one_line.h"
#include "io/json_text.h"

namespace paoding::cli {

namespace {

std::string evidence_text(const FindingInDiff& finding) {
  switch (finding.evidence) {
    case Evidence::gone: return finding.note.empty() ? "gone" : "gone: " + one_line(finding.note);
    case Evidence::there: return "still there: " + one_line(finding.note);
    case Evidence::unknown: return "not known: " + one_line(finding.note);
  }
  return "?";
}

std::string conclusion(const FindingInDiff& finding) {
  if (finding.is_confirmed()) return "confirmed";
  return finding.is_refuted() ? "not confirmed" : "inconclusive";
}

}  // namespace

bool FindingInDiff::is_confirmed() const {
  return evidence == Evidence::gone &&
         (measured.outcome == GainVerdict::as_predicted || measured.outcome == GainVerdict::more);
}

bool FindingInDiff::is_refuted() const { return evidence == Evidence::there || measured.outcome == GainVerdict::less; }

FindingInDiff find_in_diff(const Prediction& prediction, const Predictions& after, const profile::Diff& diff) {
  if (diff.rows.empty() || diff.rows[0].name != "step") {
    fail(ErrorKind::argument, "diff: --finding is about the step, and A and B have none");
  }
  FindingInDiff made;
  made.prediction = prediction;
  made.measured = measured_gain(prediction, diff.rows[0].time);
  const auto is_same = [&](const Prediction& one) {
    return std::tie(one.kind, one.op, one.scope) == std::tie(prediction.kind, prediction.op, prediction.scope);
  };
  const auto found = std::ranges::find_if(after.list, is_same);
  constexpr double kLeft = 0.1;  // of the gain that was seen before
  if (found != after.list.end() && found->high_ns < kLeft * prediction.high_ns) {
    made.evidence = Evidence::gone;
    made.note = fmt::format("finding {} is a tenth of it at most", found->number);
  } else if (found != after.list.end()) {
    made.evidence = Evidence::there;
    made.note = fmt::format("finding {}: {}", found->number, found->title);
  } else if (!after.abstained.empty()) {
    made.note = fmt::format("nothing is said about gains of {}: {}", after.file, after.abstained);
  } else {
    made.evidence = Evidence::gone;
  }
  return made;
}

std::string to_text(const FindingInDiff& finding) {
  std::string text =
      fmt::format("Finding {} of A: {}\n", finding.prediction.number, one_line(finding.prediction.title));
  text += fmt::format("  Evidence in B: {}\n", evidence_text(finding));
  text += fmt::format("  Step: {}\n", gain_text(finding.prediction, finding.measured));
  return text + fmt::format("  {}\n", conclusion(finding));
}

std::string to_markdown(const FindingInDiff& finding) {
  std::string text =
      fmt::format("**Finding {} of A**: {}\n\n", finding.prediction.number, one_line(finding.prediction.title));
  text += fmt::format("- Evidence in B: {}\n", evidence_text(finding));
  text += fmt::format("- Step: {}\n", gain_text(finding.prediction, finding.measured));
  return text + fmt::format("- **{}**\n", conclusion(finding));
}

std::string to_json(const FindingInDiff& finding) {
  std::string json = gain_json(finding.prediction, finding.measured);
  const char* const words[] = {"gone", "there", "unknown"};
  JsonObject more;
  more.add("evidence", words[static_cast<int>(finding.evidence)]).add("note", finding.note);
  more.add("conclusion", conclusion(finding));
  json.back() = ',';
  return json + more.text().substr(1);
}

}  // namespace paoding::cli
