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

std::string time_of(std::int64_t ns) { return ns == 0 ? "0" : time_text(static_cast<double>(ns)); }

// "about 23.5 ms (98.2%) of the average step of 23.9 ms, between 17.6 ms and 23.9 ms": the step of about().
std::string gain_text(const Finding& one, const Findings& all) {
  return fmt::format("about {} ({}) of the average step of {}, between {} and {}", time_of(one.replayed_high_ns),
                     percent_text(one.share), time_of(all.base_ns), time_of(one.gain_low_ns),
                     time_of(one.gain_high_ns));
}

// "932 ms -> 17 ms in 8 of 39 steps (3, 9, 17)": the average of those that change.
std::string effect_text(const Finding& one, const Findings& all) {
  constexpr std::size_t kMostNumbers = 10;
  constexpr double kWorthSaying = 0.005;  // of a step
  const Effect& effect = one.effect;
  if (effect.in_steps.empty()) return "";
  std::string text = fmt::format("{} -> {} on average ", time_of(effect.before_ns), time_of(effect.after_ns));
  if (effect.in_steps.size() == static_cast<std::size_t>(all.steps)) {
    text += fmt::format("in all {} steps", all.steps);
  } else {
    text += fmt::format("in {} of {} steps (", effect.in_steps.size(), all.steps);
    for (std::size_t i = 0; i < std::min(kMostNumbers, effect.in_steps.size()); ++i) {
      text += fmt::format("{}{}", i == 0 ? "" : ", ", effect.in_steps[i]);
    }
    text += effect.in_steps.size() > kMostNumbers ? ", ..)" : ")";
  }
  if (static_cast<double>(one.claimed_ns) > kWorthSaying * static_cast<double>(all.base_ns)) {
    text += fmt::format(", by this change alone; {} a step of that counts in another finding", time_of(one.claimed_ns));
  }
  return text;
}

// The meaning of the time that is lost, where it is the same at all of them.
std::string what_is_lost(const Examples& evidence) {
  const auto is_first = [&](const ExampleKind& one) { return one.is == evidence.kinds.front().is; };
  return !evidence.kinds.empty() && std::ranges::all_of(evidence.kinds, is_first) ? evidence.kinds.front().is : "";
}

// "'aten::linear' 224 times, 592 us (the most 12 us, in step 3)"
std::string evidence_text(const Examples& evidence) {
  constexpr std::size_t kMostKinds = 3;
  const bool is_mixed = what_is_lost(evidence).empty();
  std::string text;
  for (std::size_t k = 0; k < std::min(kMostKinds, evidence.kinds.size()); ++k) {
    const ExampleKind& kind = evidence.kinds[k];
    const auto worst = std::ranges::find(evidence.spans, k, &Example::kind);
    text += fmt::format("{}{} {}, {}", k == 0 ? "" : "; ", quoted(kind.name),
                        kind.count == 1 ? "once" : fmt::format("{} times", kind.count), time_of(kind.ns));
    if (is_mixed && !kind.is.empty()) text += fmt::format(" of {}", kind.is);
    if (worst == evidence.spans.end()) continue;
    if (kind.count > 1) text += fmt::format(" (the most {}", time_of(worst->ns));
    if (worst->step > 0) text += fmt::format("{}in step {}", kind.count > 1 ? ", " : " (", worst->step);
    if (kind.count > 1 || worst->step > 0) text += ")";
  }
  if (evidence.kinds.size() > kMostKinds) text += "; ..";
  return text;
}

void append_finding(const Finding& one, const Findings& all, int width, std::string* out) {
  const auto add = [&](std::string_view name, const std::string& text) {
    if (!text.empty()) append_words(*out, fmt::format("  {}{}", name, text), width);
  };
  append_words(*out, fmt::format("{}. {}: {}", one.number, one_line(one.title), gain_text(one, all)), width);
  add("Steps: ", effect_text(one, all));
  add("", one_line(one.text));
  for (const Part& part : one.parts) {
    add("In the same steps: ", fmt::format("{}, about {} of it. {}", one_line(part.title),
                                           time_of(part.replayed_high_ns), one_line(part.text)));
  }
  add("Limit: ", one.effect.bound);
  std::string where;
  for (const auto& [name, text] : {std::pair("Op: ", one.op), std::pair("Operands: ", one.operands),
                                   std::pair("Scope: ", one.scope), std::pair("Line: ", one.line)}) {
    if (!text.empty()) where += fmt::format("{}{}{}", where.empty() ? "" : ", ", name, one_line(text));
  }
  add("", where);
  const std::string is = what_is_lost(one.evidence);
  add(is.empty() ? "Lost at: " : fmt::format("Lost ({}) at: ", is), one_line(evidence_text(one.evidence)));
  add("Change: ", one_line(one.change));
  *out += '\n';
}

// "Steps 2 to 40 of 40 (steps as they are marked; step 1 is left out, as warming up)"
std::string steps_text(const Findings& all) {
  const int last = all.first_step + all.steps - 1;
  std::string why;
  if (all.warm_up_steps > 0) {
    why = all.warm_up_steps == 1 ? "step 1 is left out, as warming up"
                                 : fmt::format("steps 1 to {} are left out, as warming up", all.warm_up_steps);
  }
  if (all.first_step > all.warm_up_steps + 1 || last < all.recorded_steps) {
    why += fmt::format("{}those around the middle are left out, since the trace is long", why.empty() ? "" : "; ");
  }
  const std::string which = all.steps == all.recorded_steps
                                ? fmt::format("{} steps", all.steps)
                                : fmt::format("Steps {} to {} of {}", all.first_step, last, all.recorded_steps);
  return fmt::format("{} ({}{}{})", which, one_line(all.stepped_by), why.empty() ? "" : "; ", why);
}

// Kinds that have a reason in common stand together.
std::string silent_text(const Findings& all) {
  std::vector<std::pair<std::string, std::string>> reasons;  // and their kinds
  for (const Silence& one : all.silent) {
    const auto same = [&](const auto& other) { return other.first == one.why; };
    const auto found = std::ranges::find_if(reasons, same);
    if (found == reasons.end()) {
      reasons.emplace_back(one.why, title_of(one.kind));
    } else {
      found->second += fmt::format(", {}", title_of(one.kind));
    }
  }
  std::string text;
  for (const auto& [why, kinds] : reasons) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : "; ", kinds, one_line(why));
  }
  return text;
}

std::string_view limit_text(Side side) {
  switch (side) {
    case Side::host: return "the host is the limit, at work for 90% of it or more";
    case Side::gpu: return "the GPU is the limit, at work for 90% of it or more";
    default: return "neither is at work for 90% of it";
  }
}

std::string about(const Findings& all) {
  const std::string error =
      all.replay_error < 1e-4 ? "less than 0.01%" : fmt::format("{:.2f}%", 100 * all.replay_error);
  std::string text = fmt::format("{}: on average a step takes {}", steps_text(all), time_of(all.base_ns));
  if (all.have_gpus) {
    text += fmt::format(" until its work on GPUs has ended, {} on the host alone; {}", time_of(all.host_mean_ns),
                        limit_text(all.limit));
  }
  text += fmt::format("; the median step takes {}", time_of(all.step_ns));
  if (all.have_gpus) text += fmt::format(", {} on the host", time_of(all.host_ns));
  if (all.have_gpus && all.limit_of_median != all.limit)
    text += fmt::format("; of it {}", limit_text(all.limit_of_median));
  return text + fmt::format("; replaying the steps unchanged is off by {}", error);
}

std::string text_of(const Findings& all, int width) {
  std::string out;
  if (!all.abstained.empty()) {
    append_words(out, fmt::format("Nothing is said about gains: {}", one_line(all.abstained)), width);
    return out;
  }
  append_words(out, about(all), width);
  if (all.found.empty()) {
    append_words(out, "Nothing that was looked for costs 1% of a step", width);
  } else {
    out += '\n';
  }
  for (const Finding& one : all.found) append_finding(one, all, width, &out);
  if (!all.no_lines.empty()) append_words(out, "No finding names a line: " + all.no_lines, width);
  if (!all.no_shapes.empty()) append_words(out, "No finding names shapes: " + all.no_shapes, width);
  if (const std::string silent = silent_text(all); !silent.empty())
    append_words(out, "Not looked for: " + silent, width);
  return out;
}

template <class Number>
std::string json_numbers(const std::vector<Number>& numbers) {
  std::vector<std::string> items;
  for (const Number number : numbers) items.push_back(fmt::format("{}", number));
  return json_array(items);
}

std::string evidence_json(const Examples& evidence, const Trace& trace) {
  std::vector<std::string> places;
  for (const Example& example : evidence.spans) {
    const SpanId i = example.span;
    JsonObject place;
    place.add("start_ns", trace.start(i) - trace.window_start()).add("end_ns", trace.end(i) - trace.window_start());
    place.add("track", trace.track_name(trace.track_id(i)))
        .add("track_number", static_cast<std::int64_t>(trace.track_id(i)));
    place.add("name", trace.name(i)).add("span", static_cast<std::int64_t>(i));
    place.add("kind", static_cast<std::int64_t>(example.kind)).add("lost_ns", example.ns);
    places.push_back(place.add("step", static_cast<std::int64_t>(example.step)).text());
  }
  return json_array(places);
}

std::string kinds_json(const Examples& evidence) {
  std::vector<std::string> kinds;
  for (const ExampleKind& kind : evidence.kinds) {
    JsonObject one;
    one.add("name", kind.name).add("count", static_cast<std::int64_t>(kind.count)).add("lost_ns", kind.ns);
    kinds.push_back(one.add("is", kind.is).text());
  }
  return json_array(kinds);
}

std::string finding_json(const Finding& one, const Findings& all, const Trace& trace) {
  JsonObject item;
  item.add("number", one.number).add("kind", to_string(one.kind)).add("title", one.title).add("text", one.text);
  item.add_json("gain_ns", fmt::format("[{},{}]", one.gain_low_ns, one.gain_high_ns));
  item.add("predicted_ns", one.replayed_high_ns).add("predicted_share", one.share);
  item.add_json("share", fmt::format("[{},{}]", json_number(one.share_low), json_number(one.share_high)));
  item.add_json("in_steps", json_numbers(one.effect.in_steps));
  item.add("effect", effect_text(one, all)).add("claimed_ns", one.claimed_ns);
  item.add("before_ns", one.effect.before_ns).add("after_ns", one.effect.after_ns);
  item.add("limit_then", to_string(one.effect.limit)).add("bound", one.effect.bound);
  item.add("op", one.op).add("operands", one.operands).add("scope", one.scope).add("line", one.line);
  item.add("change", one.change);
  item.add("verify", one.verify).add_json("evidence", evidence_json(one.evidence, trace));
  std::vector<std::string> parts;
  for (const Part& part : one.parts) {
    JsonObject json;
    json.add("kind", to_string(part.kind)).add("title", part.title).add("text", part.text);
    parts.push_back(json.add("predicted_ns", part.replayed_high_ns).text());
  }
  item.add_json("parts", json_array(parts));
  return item.add_json("evidence_kinds", kinds_json(one.evidence)).text();
}

std::string json_of(const Findings& all, const Trace& trace) {
  constexpr std::size_t kMostLengths = 4096;
  std::vector<std::string> found, silent;
  for (const Finding& one : all.found) found.push_back(finding_json(one, all, trace));
  for (const Silence& one : all.silent)
    silent.push_back(
        JsonObject().add("kind", to_string(one.kind)).add("title", title_of(one.kind)).add("why", one.why).text());
  JsonObject json;
  json.add("abstained", all.abstained).add("about", all.abstained.empty() ? about(all) : "");
  json.add("replay_error", all.replay_error);
  json.add("base_ns", all.base_ns).add("host_base_ns", all.host_mean_ns);
  json.add("step_ns", all.step_ns).add("host_step_ns", all.host_ns);
  json.add("steps", all.steps).add("first_step", all.first_step).add("warm_up_steps", all.warm_up_steps);
  json.add("recorded_steps", all.recorded_steps).add("stepped_by", all.stepped_by);
  json.add("limit", to_string(all.limit)).add("limit_of_median", to_string(all.limit_of_median));
  json.add("no_lines", all.no_lines).add("no_shapes", all.no_shapes);
  if (all.step_lengths.size() <= kMostLengths) json.add_json("step_lengths_ns", json_numbers(all.step_lengths));
  return json.add_json("list", json_array(found)).add_json("silent", json_array(silent)).text();
}

}  // namespace
}  // namespace paoding::findings

namespace paoding::profile {

ExtraSection findings_section(const Trace& trace, const ReportOptions& options, SharedThreadTimes times,
                              std::shared_future<void> other_work) {
  const findings::Findings found =
      findings::find(trace, {.thread_times = std::move(times), .other_work = std::move(other_work)});
  return {.title = "Findings",
          .text = findings::text_of(found, options.line_width),
          .key = "findings",
          .json = findings::json_of(found, trace)};
}

}  // namespace paoding::profile
