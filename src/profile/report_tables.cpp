// SPDX-License-Identifier: Apache-2.0
// A report for programs: JSON and CSV. Both are the numbers that the text shows, in whole nanoseconds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "io/json_text.h"
#include "profile/kernel_name.h"
#include "profile/report.h"
#include "profile/text_table.h"

namespace paoding::profile {

namespace {

std::int64_t whole(double ns) { return std::llround(ns); }

struct Part {
  const char* name;
  double ns;
};
std::vector<Part> overheads(const Measures& m) {
  return {{"total", m.wall},          {"computation", m.computation}, {"framework", m.framework},
          {"recording", m.recording}, {"compile", m.compile},         {"not_seen", m.unseen},
          {"your_code", m.yours}};
}
struct Count {
  const char* name;
  std::uint64_t count;
};
std::vector<Count> counts(const Records& r) {
  return {{"received", r.received}, {"dropped", r.dropped},           {"timeless", r.timeless},
          {"outside", r.outside},   {"unattributed", r.unattributed}, {"unlaunched", r.unlaunched}};
}
struct Copies {
  const char* name;
  const CopyTotals& totals;
};
std::vector<Copies> copies(const Measures& m) {
  return {{"all", m.copies}, {"async", m.async_copies}, {"sync", m.sync_copies}};
}

std::string row_json(const Row& row) {
  JsonObject one;
  one.add("name", row.name);
  if (is_kernel_of_cpp(row.name)) one.add("short", short_kernel_name(row.name));
  one.add("depth", row.depth).add("calls", static_cast<std::int64_t>(row.calls));
  one.add("total_ns", whole(row.total)).add("cpu_ns", whole(row.cpu)).add("gpu_ns", whole(row.gpu));
  one.add("min_ns", whole(row.min)).add("max_ns", whole(row.max)).add("average_ns", whole(row.average()));
  one.add("self_ns", whole(row.self)).add("ratio", row.ratio);
  if (row.bytes > 0) one.add("bytes", row.bytes);
  if (row.has_floor()) one.add("floor_ns", whole(row.floor_ns)).add("lost_ns", whole(row.lost()));
  if (row.flops > 0) one.add("flops", row.flops);
  if (row.scaled > 0) one.add("scaled_ns", whole(row.scaled));
  if (row.at_compile) one.add("at_compile", true);
  return one.text();
}

// Steps for a chart: of very many the longest of every so many neighbours.
std::string shown_steps(const StepTimes& steps) {
  constexpr std::size_t kMost = 400;
  const std::size_t each = (steps.of.size() + kMost - 1) / kMost;
  std::vector<std::string> numbers, starts, lengths;
  const auto length = [](const Interval& step) { return step.end - step.start; };
  for (std::size_t first = 0; first < steps.of.size(); first += each) {
    const auto begin = steps.of.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = steps.of.begin() + static_cast<std::ptrdiff_t>(std::min(first + each, steps.of.size()));
    const auto longest =
        std::max_element(begin, end, [&](const auto& a, const auto& b) { return length(a) < length(b); });
    numbers.push_back(fmt::format("{}", longest - steps.of.begin() + 1));
    starts.push_back(fmt::format("{}", longest->start));
    lengths.push_back(fmt::format("{}", length(*longest)));
  }
  JsonObject one;
  one.add("each", static_cast<std::int64_t>(each)).add_json("number", json_array(numbers));
  return one.add_json("start_ns", json_array(starts)).add_json("ns", json_array(lengths)).text();
}

std::string section_json(const Section& section) {
  std::vector<std::string> rows;
  for (const Row& row : section.rows) rows.push_back(row_json(row));
  JsonObject one;
  if (!section.thread.empty()) one.add("thread", section.thread);
  if (section.is_gpu) one.add("gpu", true);
  return one.add("under_way_ns", whole(section.total)).add_json("rows", json_array(rows)).text();
}

// As RFC 4180 has it.
std::string cell(std::string_view text) {
  if (text.find_first_of(",\"\n\r") == text.npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

class Csv {
 public:
  void add(std::string_view table, std::string_view of, std::string_view name, double ns, std::uint64_t calls = 1) {
    Row row;
    row.name = name;
    row.calls = calls;
    row.total = ns;
    out_ += fmt::format("{},{},,{},{},{},,,,,,,,,,,,\n", table, cell(of), cell(name), calls, whole(ns));
  }
  void add_bytes(std::string_view table, std::string_view of, std::string_view name, int depth, std::int64_t bytes) {
    out_ += fmt::format("{},{},{},{},1,,,,,,,,{},,,,,\n", table, cell(of), depth, cell(name), bytes);
  }
  void add_held(const HeldOverTime& held) {
    const auto add_line = [&](std::string_view when, std::int64_t bytes, std::int64_t ns, std::uint64_t changes) {
      out_ += fmt::format("held,{},{},{} {},{},{},,,,,,,{},,,,,\n", place(held.device, held.process),
                          held.is_all() ? 0 : 1, cell(held.is_all() ? "all" : held.what), when, changes, ns, bytes);
    };
    add_line("at start", held.at_start, 0, 0);
    add_line("most", held.most, held.most_ns, held.changes);
    add_line("at end", held.at_end, 0, held.changes);
  }
  void add(std::string_view table, std::string_view of, const Row& row) {
    out_ += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{:.0f},{:.0f},{},{},{},\n", table, cell(of), row.depth,
                        cell(row.name), row.calls, whole(row.total), whole(row.cpu), whole(row.gpu), whole(row.min),
                        whole(row.max), whole(row.average()), row.ratio, row.bytes, row.flops, whole(row.scaled),
                        whole(row.self), whole(row.floor_ns));
  }
  void add_argument(const RangeArgument& one) {
    const auto add_line = [&](std::string_view what, double value) {
      out_ += fmt::format("range_arguments,{},,{} {},{},,,,,,,,,,,,,{}\n", cell(one.range), cell(one.name), what,
                          one.count, json_number(value));
    };
    add_line("values", static_cast<double>(one.values));
    if (one.type == ArgumentType::text || one.values == 0) return;
    add_line("least", one.least), add_line("most", one.most), add_line("total", one.sum);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_ =
      "table,of,depth,name,calls,total_ns,cpu_ns,gpu_ns,min_ns,max_ns,average_ns,ratio,bytes,flops,scaled_ns,self_ns,"
      "floor_ns,value\n";
};

}  // namespace

std::string sections_json(const std::vector<Section>& sections) {
  std::vector<std::string> items;
  for (const Section& section : sections) items.push_back(section_json(section));
  return json_array(items);
}

std::string to_json(const Measures& m, const ReportOptions& options) {
  JsonObject all("\n");
  all.add("report", 1).add("place", to_string(options.state)).add("sort", to_string(options.sort));
  if (!m.recorded_by.empty()) all.add("recorded_by", m.recorded_by);
  JsonObject overhead;
  for (const Part& part : overheads(m)) overhead.add(std::string(part.name) + "_ns", whole(part.ns));
  all.add_json("overhead", overhead.text());
  if (m.span_cost_ns > 0) {
    all.add("recording_cost_ns", whole(m.span_cost_ns * static_cast<double>(m.records.on_host)));
  }
  if (m.beside.plain > 0) {
    JsonObject beside;
    beside.add("recorded_steps", static_cast<std::int64_t>(m.beside.recorded))
        .add("recorded_p50_ns", m.beside.recorded_ns);
    beside.add("plain_steps", static_cast<std::int64_t>(m.beside.plain)).add("plain_p50_ns", m.beside.plain_ns);
    all.add_json("steps_beside", beside.text());
  }
  if (m.replays > 0) {
    JsonObject replays;
    replays.add("count", static_cast<std::int64_t>(m.replays));
    replays.add("stamped", static_cast<std::int64_t>(m.stamped_replays)).add("stamps_ns", whole(m.stamps_ns));
    replays.add("estimated", static_cast<std::int64_t>(m.estimated_replays));
    all.add_json("replays", replays.text());
  }
  if (m.limit.bytes_per_ns > 0) all.add("limit_bytes_per_ns", m.limit.bytes_per_ns);
  if (m.steps.count > 0) {
    const StepTimes& s = m.steps;
    JsonObject steps;
    steps.add("count", static_cast<std::int64_t>(s.count)).add("p50_ns", s.p50).add("p99_ns", s.p99);
    steps.add("worst_ns", s.worst).add("worst_step", static_cast<std::int64_t>(s.worst_step));
    steps.add("why", s.why).add("why_ns", s.why_ns);
    steps.add("thread", s.thread).add("marked", s.are_marked).add_json("shown", shown_steps(s));
    all.add_json("steps", steps.text());
  }
  JsonObject memcpy;
  for (const auto& [name, totals] : copies(m)) {
    JsonObject one;
    one.add("calls", static_cast<std::int64_t>(totals.calls)).add("total_ns", whole(totals.total));
    memcpy.add_json(name, one.text());
  }
  all.add_json("memcpy", memcpy.text());
  std::vector<std::string> items;
  for (const Budget& budget : m.budgets) {
    JsonObject parts;
    for (const BudgetPart& part : budget.parts) parts.add(part.name, part.ns);
    JsonObject one;
    one.add("of", budget.of).add("is_worker", budget.is_worker).add_json("parts_ns", parts.text());
    items.push_back(one.text());
  }
  all.add_json("wall_time", json_array(items));
  all.add_json("merged", sections_json(m.merged));
  all.add_json("threads", sections_json(m.per_thread));
  items.clear();
  for (const CompilePart& part : m.compiling) {
    JsonObject one;
    one.add("name", part.name).add("calls", static_cast<std::int64_t>(part.calls)).add("total_ns", whole(part.ns));
    items.push_back(one.text());
  }
  all.add_json("compiling", json_array(items));
  items.clear();
  for (const Instants& instants : m.instants) {
    JsonObject one;
    one.add("name", instants.name).add("count", static_cast<std::int64_t>(instants.count));
    items.push_back(one.add("first_ns", instants.first_ns).add("last_ns", instants.last_ns).text());
  }
  all.add_json("instants", json_array(items));
  items.clear();
  for (const RangeArgument& argument : m.arguments) {
    JsonObject one;
    one.add("range", argument.range).add("name", argument.name).add("count", static_cast<std::int64_t>(argument.count));
    one.add("values", static_cast<std::int64_t>(argument.values));
    if (argument.type != ArgumentType::text && argument.values > 0) {
      one.add("least", argument.least).add("most", argument.most).add("total", argument.sum);
    }
    items.push_back(one.text());
  }
  all.add_json("range_arguments", json_array(items));
  items.clear();
  for (const Memory& memory : m.memory) {
    JsonObject one;
    one.add("device", memory.device).add("of", memory.of).add("what", memory.what);
    items.push_back(one.add("is_inside", memory.is_inside).add("bytes", memory.bytes).text());
  }
  all.add_json("memory", json_array(items));
  items.clear();
  for (const HeldOverTime& held : m.held) {
    JsonObject one;
    if (!held.process.empty()) one.add("process", held.process);
    one.add("device", held.device).add("what", held.is_all() ? "all" : held.what).add("start_bytes", held.at_start);
    one.add("most_bytes", held.most).add("most_at_ns", held.most_ns).add("end_bytes", held.at_end);
    items.push_back(one.add("changes", static_cast<std::int64_t>(held.changes)).text());
  }
  all.add_json("held", json_array(items));
  JsonObject records;
  for (const auto& [name, count] : counts(m.records)) records.add(name, static_cast<std::int64_t>(count));
  records.add("unattributed_ns", whole(m.records.unattributed_ns)).add("gpu_ns", whole(m.records.gpu_ns));
  all.add_json("records", records.text());
  items.clear();
  for (const Note& note : m.notes) {
    items.push_back(JsonObject().add("what", note.text).add("count", static_cast<std::int64_t>(note.count)).text());
  }
  all.add_json("not_seen", json_array(items));
  for (const ExtraSection& section : m.extra) all.add_json(section.key, section.json);
  return all.text() + "\n";
}

std::string to_csv(const Measures& m, const ReportOptions&) {
  Csv csv;
  for (const Part& part : overheads(m)) csv.add("overhead", "", part.name, part.ns);
  for (const auto& [name, totals] : copies(m)) csv.add("memcpy", "", name, totals.total, totals.calls);
  if (m.steps.count > 0) {
    csv.add("steps", "", "p50", static_cast<double>(m.steps.p50), m.steps.count);
    csv.add("steps", "", "p99", static_cast<double>(m.steps.p99), m.steps.count);
    csv.add("steps", m.steps.why, "worst", static_cast<double>(m.steps.worst));
  }
  if (m.beside.plain > 0) {
    csv.add("steps_beside", "recorded", "p50", static_cast<double>(m.beside.recorded_ns), m.beside.recorded);
    csv.add("steps_beside", "plain", "p50", static_cast<double>(m.beside.plain_ns), m.beside.plain);
  }
  for (const Budget& budget : m.budgets) {
    for (const BudgetPart& part : budget.parts) {
      csv.add("wall_time", budget.of, part.name, static_cast<double>(part.ns));
    }
  }
  for (const Section& section : m.merged) {
    for (const Row& row : section.rows) csv.add("merged", "", row);
  }
  for (const Section& section : m.per_thread) {
    for (const Row& row : section.rows) csv.add("thread", section.thread, row);
  }
  for (const CompilePart& part : m.compiling) csv.add("compiling", "", part.name, part.ns, part.calls);
  for (const Instants& instants : m.instants) {
    Row row;
    row.name = instants.name;
    row.calls = instants.count;
    row.min = static_cast<double>(instants.first_ns), row.max = static_cast<double>(instants.last_ns);
    csv.add("instants", "", row);
  }
  for (const RangeArgument& argument : m.arguments) csv.add_argument(argument);
  for (const Memory& memory : m.memory) {
    csv.add_bytes("memory", memory.of, memory.what, memory.is_inside ? 1 : 0, memory.bytes);
  }
  for (const HeldOverTime& held : m.held) csv.add_held(held);
  for (const auto& [name, count] : counts(m.records)) csv.add("records", "", name, 0, count);
  for (const Note& note : m.notes) csv.add("not_seen", "", note.text, 0, note.count);
  return csv.take();
}

}  // namespace paoding::profile
