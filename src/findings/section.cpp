// SPDX-License-Identifier: Apache-2.0
// Findings as a section of a report: text for people, JSON for programs and the page.
#include <fmt/format.h>

#include <algorithm>

#include "base/one_line.h"
#include "findings/words.h"
#include "io/json_text.h"
#include "profile/report.h"
#include "profile/text_table.h"

namespace paoding::findings {

using namespace profile;

namespace {

std::string gain_text(const Finding& one) {
  const auto percent = [](double share) { return fmt::format("{:.3g}%", 100 * share); };
  const auto time = [](std::int64_t ns) { return ns == 0 ? "0" : time_text(static_cast<double>(ns)); };
  return fmt::format("about {} of a step ({}); {} to {}", time(one.replayed_high_ns), percent(one.share),
                     time(one.gain_low_ns), time(one.gain_high_ns));
}

void append_finding(const Finding& one, int width, std::string* out) {
  const auto add = [&](std::string_view name, const std::string& text) {
    if (!text.empty()) append_words(*out, fmt::format("  {}{}", name, text), width);
  };
  append_words(*out, fmt::format("{}. {}: {}", one.number, one_line(one.title), gain_text(one)), width);
  add("", one_line(one.text));
  std::string where;
  for (const auto& [name, text] :
       {std::pair("Op: ", one.op), std::pair("Scope: ", one.scope), std::pair("Line: ", one.line)}) {
    if (!text.empty()) where += fmt::format("{}{}{}", where.empty() ? "" : ", ", name, one_line(text));
  }
  add("", where);
  add("Change: ", one_line(one.change));
  *out += '\n';
}

std::string text_of(const Findings& all, int width) {
  std::string out;
  if (!all.abstained.empty()) {
    append_words(out, fmt::format("Nothing is said about gains: {}", one_line(all.abstained)), width);
    return out;
  }
  append_words(
      out,
      fmt::format(
          "{} steps ({}), {} at the median until their work on GPUs has ended; replaying them unchanged is off by {}",
          all.steps, one_line(all.stepped_by), time_text(static_cast<double>(all.step_ns)),
          all.replay_error < 1e-4 ? "less than 0.01%" : fmt::format("{:.2f}%", 100 * all.replay_error)),
      width);
  if (all.found.empty()) {
    append_words(out, "Nothing that was looked for costs 1% of a step", width);
  } else {
    out += '\n';
  }
  for (const Finding& one : all.found) append_finding(one, width, &out);
  std::string silent;
  for (const Silence& one : all.silent)
    silent += fmt::format("{}{}: {}", silent.empty() ? "" : "; ", to_string(one.kind), one_line(one.why));
  if (!silent.empty()) append_words(out, "Not looked for: " + silent, width);
  return out;
}

std::string json_of(const Findings& all, const Trace& trace) {
  std::vector<std::string> found, silent;
  for (const Finding& one : all.found) {
    std::vector<std::string> places;
    for (const SpanId i : one.evidence) {
      JsonObject place;
      place.add("start_ns", trace.start(i) - trace.window_start()).add("end_ns", trace.end(i) - trace.window_start());
      place.add("track", trace.track_name(trace.track_id(i)))
          .add("track_number", static_cast<std::int64_t>(trace.track_id(i)));
      places.push_back(place.add("name", trace.name(i)).text());
    }
    JsonObject item;
    item.add("number", one.number).add("kind", to_string(one.kind)).add("title", one.title).add("text", one.text);
    item.add_json("gain_ns", fmt::format("[{},{}]", one.gain_low_ns, one.gain_high_ns));
    item.add("predicted_ns", one.replayed_high_ns).add("predicted_share", one.share);
    item.add_json("share", fmt::format("[{},{}]", json_number(one.share_low), json_number(one.share_high)));
    item.add("op", one.op)
        .add("scope", one.scope)
        .add("line", one.line)
        .add("change", one.change)
        .add("verify", one.verify);
    found.push_back(item.add_json("evidence", json_array(places)).text());
  }
  for (const Silence& one : all.silent)
    silent.push_back(JsonObject().add("kind", to_string(one.kind)).add("why", one.why).text());
  JsonObject json;
  json.add("abstained", all.abstained)
      .add("replay_error", all.replay_error)
      .add("step_ns", all.step_ns)
      .add("steps", all.steps);
  json.add("stepped_by", all.stepped_by);
  return json.add_json("list", json_array(found)).add_json("silent", json_array(silent)).text();
}

}  // namespace
}  // namespace paoding::findings

namespace paoding::profile {

ExtraSection findings_section(const Trace& trace, const ReportOptions& options) {
  const findings::Findings found = findings::find(trace);
  return {.title = "Findings",
          .text = findings::text_of(found, options.line_width),
          .key = "findings",
          .json = findings::json_of(found, trace)};
}

}  // namespace paoding::profile
