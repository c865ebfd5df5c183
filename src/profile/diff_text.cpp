// SPDX-License-Identifier: Apache-2.0
// A diff as people and programs read it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/one_line.h"
#include "io/json_text.h"
#include "profile/diff.h"
#include "profile/row_names.h"
#include "profile/text_table.h"

namespace paoding::profile {

std::string time_with_unit(double ns) {
  const char* const units[] = {"ns", "us", "ms", "s"};
  std::size_t unit = 0;
  double value = ns;
  while (unit < 3 && std::abs(value) >= 999.95) value /= 1000, ++unit;
  const double size = std::abs(value);
  return fmt::format("{:.{}f} {}", value, size >= 99.995 ? 1 : size >= 9.9995 ? 2 : 3, units[unit]);
}

namespace {

std::string percent(double ratio) { return fmt::format("{:+.2f}%", 100 * (ratio - 1)); }
std::string confidence_text(double confidence) { return fmt::format("{:.4g}%", 100 * confidence); }

std::string side_time(double ns, double spread, std::size_t processes) {
  return processes < 2 ? time_with_unit(ns) : fmt::format("{} ±{:.1f}%", time_with_unit(ns), 100 * spread);
}

std::string interval(const Comparison& c) { return fmt::format("{} to {}", percent(c.low), percent(c.high)); }

std::string share_of_change(double ns, double change) {
  if (change == 0) return "";
  const double tenths = std::round(1000 * ns / change);
  return fmt::format("{:.1f}%", tenths == 0 ? 0.0 : tenths / 10);
}

std::string calls_text(const DiffedPart& part) {
  const auto count = [](double calls) { return fmt::format("{:.4g}", calls); };
  const std::string of_a = count(part.a_calls), of_b = count(part.b_calls);
  return of_a == of_b ? of_a : of_a + " > " + of_b;
}

std::string full_name(const DiffedPart& part) { return part.scope.empty() ? part.name : part.scope + ": " + part.name; }

Cells row_cells(const DiffRow& row) {
  const Comparison& c = row.time;
  std::string verdict(to_string(c.verdict));
  if (c.needed > 0) verdict += fmt::format(" (about {} processes a side would tell)", c.needed);
  return {one_line(row.name),
          side_time(c.a, c.a_spread, row.a.size()),
          side_time(c.b, c.b_spread, row.b.size()),
          percent(c.ratio),
          interval(c),
          verdict};
}

Cells row_titles(const Diff& diff) {
  const double confidence = diff.rows.empty() ? 0 : diff.rows[0].time.confidence;
  return {"", "A", "B", "change", confidence_text(confidence) + " interval", "verdict"};
}

const Cells kPartTitles = {"op", "A", "B", "change", "of it", "calls", "sure", "what happened"};

Cells part_cells(const Diff& diff, const DiffedPart& part) {
  constexpr std::size_t kWidest = 60;
  const std::string change = (part.change() < 0 ? "" : "+") + time_with_unit(part.change());
  return {cut_to(one_line(full_name(part)), kWidest),
          time_with_unit(part.a),
          time_with_unit(part.b),
          change,
          share_of_change(part.change(), diff.change),
          calls_text(part),
          part.is_certain ? "yes" : "no",
          one_line(part.note)};
}

// Where the change is, in a sentence.
std::string explanation(const Diff& diff) {
  const std::string change = (diff.change < 0 ? "" : "+") + time_with_unit(diff.change);
  if (diff.change == 0) return "A step takes the same.";
  return fmt::format("Of {} a step, ops make {}, other parts {}, unexplained is {}.", change,
                     share_of_change(diff.by_ops, diff.change), share_of_change(diff.by_others, diff.change),
                     share_of_change(diff.unexplained, diff.change));
}

std::string side_text(char letter, const DiffSide& side) {
  return fmt::format("{}: {} ({} process{})", letter, one_line(side.name), side.processes,
                     side.processes == 1 ? "" : "es");
}

std::string hidden_parts(const Diff& diff, std::size_t shown) {
  double rest = 0;
  for (std::size_t i = shown; i < diff.parts.size(); ++i) rest += diff.parts[i].change();
  const std::size_t count = diff.parts.size() - shown;
  if (count == 0) return "";
  return fmt::format("{} more part{}: {}{} together", count, count == 1 ? "" : "s", rest < 0 ? "" : "+",
                     time_with_unit(rest));
}

// A cell of a Markdown table: what is foreign in it may be no markup.
std::string markdown_cell(std::string_view text) {
  std::string safe;
  for (const char c : one_line(text)) {
    switch (c) {
      case '|':
      case '\\':
      case '`':
      case '*':
      case '_':
      case '[':
      case ']':
      case '#':
      case '~': safe += std::string("\\") + c; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '&': safe += "&amp;"; break;
      case '@': safe += "&#64;"; break;  // tells nobody
      default: safe += c;
    }
  }
  return safe;
}

void append_line(std::string& out, const Cells& cells) {
  out += "|";
  for (const std::string& one : cells) out += " " + markdown_cell(one) + " |";
  out += "\n";
}

void append_markdown_table(std::string& out, const Cells& titles, const std::vector<Cells>& lines) {
  append_line(out, titles);
  out += "|";
  for (std::size_t i = 0; i < titles.size(); ++i) out += i == 0 ? "---|" : "---:|";
  out += "\n";
  for (const Cells& line : lines) append_line(out, line);
}

std::string numbers_json(const std::vector<double>& numbers) {
  std::vector<std::string> items;
  for (const double number : numbers) items.push_back(json_number(number));
  return json_array(items);
}

std::string side_json(const DiffSide& side) {
  JsonObject one;
  one.add("name", side.name).add("processes", static_cast<std::int64_t>(side.processes));
  return one.add_json("machines", json_strings(side.machines)).text();
}

std::string row_json(const DiffRow& row) {
  const Comparison& c = row.time;
  JsonObject one;
  one.add("name", row.name).add("a_ns", c.a).add("b_ns", c.b);
  one.add("a_spread", c.a_spread).add("b_spread", c.b_spread).add("spread_is_assumed", c.is_spread_assumed);
  one.add("ratio", c.ratio).add("low", c.low).add("high", c.high).add("confidence", c.confidence);
  one.add("verdict", to_string(c.verdict));
  if (c.needed > 0) one.add("processes_needed", static_cast<std::int64_t>(c.needed));
  if (row.drift.is_found) one.add("drift", row.drift.whole).add("drift_in_difference", row.drift.in_difference);
  one.add_json("a_processes_ns", numbers_json(row.a)).add_json("b_processes_ns", numbers_json(row.b));
  return one.text();
}

std::string part_json(const DiffedPart& part) {
  JsonObject one;
  one.add("scope", part.scope).add("name", part.name).add("is_op", part.is_op);
  one.add("how", to_string(part.how)).add("note", part.note).add("a_ns", part.a).add("b_ns", part.b);
  one.add("change_ns", part.change()).add("a_calls", part.a_calls).add("b_calls", part.b_calls);
  return one.add("is_certain", part.is_certain).text();
}

}  // namespace

std::string to_text(const Diff& diff, int width) {
  std::string out = side_text('A', diff.a) + "\n" + side_text('B', diff.b) + "\n\n";
  std::vector<Cells> lines = {row_titles(diff)};
  for (const DiffRow& row : diff.rows) lines.push_back(row_cells(row));
  append_table(out, std::move(lines), width);
  if (!diff.a.steps.empty() && !diff.b.steps.empty()) {
    out += "\n------------------------- What of a step changed -------------------------\n\n";
    append_words(out, explanation(diff), width);
    const std::size_t shown = shown_parts(diff);
    std::vector<Cells> parts = {kPartTitles};
    for (std::size_t i = 0; i < shown; ++i) parts.push_back(part_cells(diff, diff.parts[i]));
    if (shown > 0) out += "\n", append_table(out, std::move(parts), width);
    if (const std::string hidden = hidden_parts(diff, shown); !hidden.empty()) append_words(out, hidden, width);
  }
  if (!diff.notes.empty()) out += "\n";
  for (const std::string& note : diff.notes) append_words(out, "note: " + one_line(note), width);
  const bool is_change = diff.verdict == Verdict::faster || diff.verdict == Verdict::slower;
  return out + fmt::format("\nVerdict: {}{}\n", is_change ? "B is " : "", to_string(diff.verdict));
}

std::string to_markdown(const Diff& diff) {
  std::string out = fmt::format("### paoding diff: {}\n\n", to_string(diff.verdict));
  for (const auto& [letter, side] : {std::pair('A', &diff.a), std::pair('B', &diff.b)}) {
    out += fmt::format("{}: {}, {} process{}  \n", letter, markdown_cell(side->name), side->processes,
                       side->processes == 1 ? "" : "es");
  }
  std::vector<Cells> lines;
  for (const DiffRow& row : diff.rows) lines.push_back(row_cells(row));
  out += "\n";
  append_markdown_table(out, row_titles(diff), lines);
  if (!diff.a.steps.empty() && !diff.b.steps.empty()) {
    const std::size_t shown = shown_parts(diff);
    out += fmt::format("\n<details><summary>What of a step changed</summary>\n\n{}\n\n", explanation(diff));
    std::vector<Cells> parts;
    for (std::size_t i = 0; i < shown; ++i) parts.push_back(part_cells(diff, diff.parts[i]));
    if (shown > 0) append_markdown_table(out, kPartTitles, parts);
    if (const std::string hidden = hidden_parts(diff, shown); !hidden.empty()) out += "\n" + hidden + "\n";
    out += "\n</details>\n";
  }
  if (!diff.notes.empty()) out += "\n";
  for (const std::string& note : diff.notes) out += "- " + markdown_cell(note) + "\n";
  return out;
}

std::string to_json(const Diff& diff) {
  JsonObject all("\n");
  all.add("diff", 1).add("verdict", to_string(diff.verdict));
  all.add("floor", diff.options.rule.floor).add("confidence", diff.options.rule.confidence);
  all.add_json("a", side_json(diff.a)).add_json("b", side_json(diff.b));
  std::vector<std::string> rows, parts;
  for (const DiffRow& row : diff.rows) rows.push_back(row_json(row));
  all.add_json("rows", json_array(rows));
  if (!diff.a.steps.empty() && !diff.b.steps.empty()) {
    JsonObject change;
    change.add("ns", diff.change).add("by_ops_ns", diff.by_ops).add("by_others_ns", diff.by_others);
    all.add_json("change", change.add("unexplained_ns", diff.unexplained).text());
    for (const DiffedPart& part : diff.parts) parts.push_back(part_json(part));
    all.add_json("parts", json_array(parts)).add("parts_alike", static_cast<std::int64_t>(diff.parts_alike));
  }
  return all.add_json("notes", json_strings(diff.notes)).text() + "\n";
}

}  // namespace paoding::profile
