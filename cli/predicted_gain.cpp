// SPDX-License-Identifier: Apache-2.0
#include "predicted_gain.h"

#include <simdjson.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/one_line.h"
#include "command.h"
#include "io/files.h"
#include "io/json_text.h"
#include "trace/ranks.h"

namespace paoding::cli {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostReportBytes = std::uint64_t{1} << 28;

std::string text_at(simdjson::dom::element object, const char* key) {
  std::string_view text;
  return object[key].get(text) == simdjson::SUCCESS ? std::string(text) : std::string();
}

// False where it is none.
bool read_report(const std::string& path, Predictions* all) {
  const files::InputFile file(path);
  char first = 0;
  if (file.size_bytes() > 0) file.read_at(0, &first, 1);
  if (first != '{' || file.size_bytes() > kMostReportBytes) return false;
  simdjson::padded_string text(static_cast<std::size_t>(file.size_bytes()));
  file.read_at(0, text.data(), text.size());
  simdjson::dom::parser parser;
  simdjson::dom::element report, findings;
  simdjson::dom::array list;
  if (parser.parse(text).get(report) != simdjson::SUCCESS) return false;
  if (report["findings"].get(findings) != simdjson::SUCCESS) {
    if (report["overhead"].error() != simdjson::SUCCESS) return false;
    fail(ErrorKind::file, "{}: it is a report without findings; `paoding report --format json` writes one with them",
         path);
  }
  if (findings["list"].get(list) != simdjson::SUCCESS) fail(ErrorKind::file, "{}: its findings have no list", path);
  all->abstained = text_at(findings, "abstained");
  all->is_of_others = !text_at(report, "recorded_by").empty();
  for (const simdjson::dom::element one : list) {
    Prediction made{.kind = text_at(one, "kind"),
                    .title = text_at(one, "title"),
                    .op = text_at(one, "op"),
                    .scope = text_at(one, "scope"),
                    .change = text_at(one, "change"),
                    .verify = text_at(one, "verify")};
    std::int64_t number = 0;
    simdjson::dom::array share, gain;
    if (one["gain_ns"].get(gain) == simdjson::SUCCESS && gain.at(1).get(made.high_ns) != simdjson::SUCCESS) {
      fail(ErrorKind::file, "{}: a finding of it has a gain that is no number", path);
    }
    if (one["number"].get(number) != simdjson::SUCCESS || one["share"].get(share) != simdjson::SUCCESS ||
        share.at(0).get(made.low) != simdjson::SUCCESS || share.at(1).get(made.high) != simdjson::SUCCESS ||
        one["predicted_share"].get(made.gain) != simdjson::SUCCESS) {
      fail(ErrorKind::file, "{}: a finding of it has no number or no share of the step", path);
    }
    made.number = static_cast<int>(number);
    all->list.push_back(std::move(made));
  }
  return true;
}

std::string share_text(double share) { return fmt::format("{:.1f}", 100 * share); }
std::string interval_text(double middle, double low, double high) {
  return fmt::format("{} [{}, {}]%", share_text(middle), share_text(low), share_text(high));
}

JsonObject prediction_object(const Prediction& prediction) {
  JsonObject object, predicted;
  predicted.add("gain", prediction.gain).add("low", prediction.low).add("high", prediction.high);
  object.add("number", prediction.number).add("kind", prediction.kind).add("title", prediction.title);
  object.add("op", prediction.op).add("scope", prediction.scope);
  object.add("change", prediction.change).add("verify", prediction.verify);
  return object.add_json("predicted", predicted.text());
}

}  // namespace

Predictions predictions_of(const profile::Trace& trace, const std::string& file) {
  const findings::Findings found = findings::find(trace);
  Predictions all{.file = file, .list = {}, .abstained = found.abstained};
  for (const profile::Process& process : trace.processes())
    all.is_of_others |= process.source != profile::Source::paoding;
  for (const findings::Finding& one : found.found) {
    all.list.push_back({.number = one.number,
                        .kind = std::string(findings::to_string(one.kind)),
                        .title = one.title,
                        .op = one.op,
                        .scope = one.scope,
                        .gain = one.share,
                        .low = one.share_low,
                        .high = one.share_high,
                        .high_ns = static_cast<double>(one.gain_high_ns),
                        .change = one.change,
                        .verify = one.verify});
  }
  return all;
}

Predictions read_predictions(const std::string& path) {
  Predictions all{.file = path, .list = {}, .abstained = {}};
  std::error_code unknown;
  if (!fs::is_directory(path, unknown) && read_report(path, &all)) return all;
  return predictions_of(trace::read_traces({path}), path);
}

const Prediction& prediction_at(const Predictions& all, int number) {
  const auto found = std::ranges::find(all.list, number, &Prediction::number);
  if (found != all.list.end()) return *found;
  const std::string file = one_line(all.file);
  if (!all.abstained.empty()) {
    throw UsageError(fmt::format("{}: nothing is said about gains: {}", file, one_line(all.abstained)));
  }
  throw UsageError(all.list.empty()
                       ? fmt::format("{}: it has no finding", file)
                       : fmt::format("{}: it has no finding {}, there are 1 to {}", file, number, all.list.size()));
}

std::string_view to_string(GainVerdict outcome) {
  switch (outcome) {
    case GainVerdict::as_predicted: return "as predicted";
    case GainVerdict::less: return "less than predicted";
    case GainVerdict::more: return "more than predicted";
    case GainVerdict::inconclusive: return "inconclusive";
  }
  return "?";
}

MeasuredGain measured_gain(const Prediction& prediction, const profile::Comparison& step) {
  MeasuredGain measured{.gain = 1 - step.ratio, .low = 1 - step.high, .high = 1 - step.low};
  if (step.verdict != profile::Verdict::inconclusive) {
    measured.outcome = measured.high < prediction.low   ? GainVerdict::less
                       : measured.low > prediction.high ? GainVerdict::more
                                                        : GainVerdict::as_predicted;
  }
  constexpr double kQuarter = 0.25;
  measured.is_missed_by_a_quarter = std::abs(prediction.gain - measured.gain) > kQuarter * std::abs(measured.gain);
  return measured;
}

std::string gain_text(const Prediction& prediction, const MeasuredGain& measured) {
  return fmt::format("predicted {}, measured {}: {}", interval_text(prediction.gain, prediction.low, prediction.high),
                     interval_text(measured.gain, measured.low, measured.high), to_string(measured.outcome));
}

std::string prediction_json(const Prediction& prediction) { return prediction_object(prediction).text(); }

std::string gain_json(const Prediction& prediction, const MeasuredGain& measured) {
  JsonObject gain;
  gain.add("gain", measured.gain).add("low", measured.low).add("high", measured.high);
  JsonObject all = prediction_object(prediction);
  all.add_json("measured", gain.text()).add("outcome", to_string(measured.outcome));
  all.add("missed_by_a_quarter", measured.is_missed_by_a_quarter);
  return all.text();
}

}  // namespace paoding::cli
