// SPDX-License-Identifier: Apache-2.0
// The layout of a report: header, Overhead Summary, GpuMemcpy Summary, Event Summary.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/one_line.h"
#include "profile/event_table.h"
#include "profile/kernel_name.h"
#include "profile/report.h"
#include "profile/row_names.h"
#include "profile/text_table.h"

namespace paoding::profile {

namespace {

std::string_view sorted_by(SortBy sort) {
  switch (sort) {
    case SortBy::none: return "Not sorted: in the order of first appearance";
    case SortBy::calls: return "Sorted by number of calls in descending order in the same thread";
    case SortBy::total: return "Sorted by total time in descending order in the same thread";
    case SortBy::max: return "Sorted by maximum time in descending order in the same thread";
    case SortBy::min: return "Sorted by minimum time in descending order in the same thread";
    case SortBy::average: return "Sorted by average time in descending order in the same thread";
  }
  return "";
}

void append_title(std::string& out, std::string_view title) {
  out += fmt::format("\n------------------------- {} -------------------------\n\n", title);
}

void append_header(std::string& out, const Measures& m, const ReportOptions& options, bool is_merged) {
  out += "-------------------------> Profiling Report <-------------------------\n\n";
  if (is_merged) out += "Note! This Report merge all thread info into one.\n";
  if (!m.recorded_by.empty()) out += fmt::format("Recorded by: {}\n", m.recorded_by);
  out += fmt::format("Place: {}\nTime unit: ms\n{}\n", to_string(options.state), sorted_by(options.sort));
  if (options.nesting == Nesting::scope) out += "Nested by scope: a call of a scope is a run\n";
}

void append_steps(std::string& out, const StepTimes& steps, int width) {
  if (steps.count < 2) return;
  std::string line = fmt::format(
      "{} steps: p50 {}, p99 {}, worst {} on the host, {} (step {}, counted from 1", steps.count,
      ms(static_cast<double>(steps.p50)), ms(static_cast<double>(steps.p99)), ms(static_cast<double>(steps.worst)),
      steps.are_marked ? "as they are marked" : "from one run to the next", steps.worst_step);
  if (!steps.why.empty()) {
    line += fmt::format(": {} longer in {}", ms(static_cast<double>(steps.why_ns)), one_line(steps.why));
  }
  append_words(out, line + ")", width);
}

// Names all that is missing, which the reader must know about.
void append_completeness(std::string& out, const Measures& m, int width) {
  constexpr std::size_t kLongest = 2000;  // of a note
  std::string line = "Not seen: ";
  if (m.notes.empty()) line += "nothing known to be missing";
  for (std::size_t i = 0; i < m.notes.size(); ++i) {
    line += i == 0 ? "" : "; ";
    line += cut_to(one_line(m.notes[i].text), kLongest);
    if (m.notes[i].count > 0) line += fmt::format(" ({})", m.notes[i].count);
  }
  append_words(out, line, width);
}

// A line per part of every thread's and every GPU's wall time; of the threads that work in parallel regions only, one
// for all.
void append_budgets(std::string& out, const Measures& m, int width) {
  if (m.wall <= 0 || m.budgets.empty()) return;
  append_title(out, "Wall Time Summary");
  std::vector<Cells> lines;
  const auto add = [&](const Budget& budget, double wall) {
    std::string name = one_line(budget.of);
    for (const BudgetPart& part : budget.parts) {
      const auto ns = static_cast<double>(part.ns);
      lines.push_back({std::exchange(name, ""), std::string(part.name), fmt::format("Total: {}", ms(ns)),
                       fmt::format("Ratio: {:g}%", 100 * share(ns, wall))});
    }
  };
  for (const Budget& budget : m.budgets) {
    if (!budget.is_worker) add(budget, m.wall);
  }
  if (const Budget all = together(m.budgets); all.workers > 0) add(all, all.workers * m.wall);
  append_table(out, std::move(lines), width);
}

void append_summaries(std::string& out, const Measures& m, int width) {
  append_title(out, "Overhead Summary");
  out += fmt::format("Total time: {}\n", ms(m.wall));
  std::vector<Cells> overheads;
  const auto add_part = [&](const char* name, double ns) {
    overheads.push_back({name, fmt::format("Total: {}", ms(ns)), fmt::format("Ratio: {:g}%", 100 * share(ns, m.wall))});
  };
  add_part("  Computation time", m.computation);
  add_part("  Framework overhead", m.framework);
  if (m.recording > 0) add_part("  Recording", m.recording);
  if (m.compile > 0) add_part("  Compiling", m.compile);
  if (m.unseen > 0) add_part("  Not seen", m.unseen);
  if (m.yours > 0) add_part("  Only your code", m.yours);
  append_table(out, std::move(overheads), width);
  append_steps(out, m.steps, width);
  append_completeness(out, m, width);
  if (m.span_cost_ns > 0 && m.records.on_host > 0) {
    const double cost = m.span_cost_ns * static_cast<double>(m.records.on_host);
    append_words(out,
                 fmt::format("Recording cost: at most {} on the host, {:.3g}% of the total ({} spans of {} ns)",
                             ms(cost), 100 * share(cost, m.wall), m.records.on_host, m.span_cost_ns),
                 width);
  }
  if (m.beside.plain > 0) {
    const auto recorded = static_cast<double>(m.beside.recorded_ns), plain = static_cast<double>(m.beside.plain_ns);
    const std::string share =
        recorded > plain ? fmt::format("{:.3g}% of a step", 100 * (recorded - plain) / plain) : "none that shows";
    append_words(out,
                 fmt::format("Recording cost, measured: {} ({} at the median of {} steps that were recorded, {} of {} "
                             "around them that were not)",
                             share, ms(recorded), m.beside.recorded, ms(plain), m.beside.plain),
                 width);
  }
  if (m.replays > m.stamped_replays) {
    std::string line =
        fmt::format("~: scaled from the {} of {} replays of graphs that were stamped in full, which cost {}",
                    m.stamped_replays, m.replays, ms(m.stamps_ns));
    if (m.estimated_replays > 0) line += fmt::format("; {} are taken to be as long as others", m.estimated_replays);
    append_words(out, line, width);
  }
}

void append_copies(std::string& out, const Measures& m, int width) {
  if (!m.has_gpu && m.copies.calls == 0) return;
  append_title(out, "GpuMemCpy Summary");
  std::vector<Cells> lines;
  const auto add = [&](const char* name, const CopyTotals& copies) {
    lines.push_back({name, fmt::format("Calls: {}", copies.calls), fmt::format("Total: {}", ms(copies.total)),
                     fmt::format("Ratio: {:g}%", 100 * share(copies.total, m.wall))});
  };
  add("GpuMemcpy", m.copies);
  if (m.async_copies.calls > 0) add("  GpuMemcpyAsync", m.async_copies);
  if (m.sync_copies.calls > 0) add("  GpuMemcpySync", m.sync_copies);
  append_table(out, std::move(lines), width);
}

// The parts of making programs, the longest first; passes one by one.
void append_compiling(std::string& out, const Measures& m, int width) {
  if (m.compiling.empty()) return;
  append_title(out, "Compile Summary");
  double all = 0;
  for (const CompilePart& part : m.compiling) all += part.ns;
  std::vector<Cells> lines;
  for (const CompilePart& part : m.compiling) {
    lines.push_back({one_line(part.name), fmt::format("Calls: {}", part.calls), fmt::format("Total: {}", ms(part.ns)),
                     fmt::format("Ratio: {:g}%", 100 * share(part.ns, all))});
  }
  append_table(out, std::move(lines), width);
}

// All memory of each device over time, and its purposes.
void append_held(std::string& out, const std::vector<HeldOverTime>& held, int width) {
  if (held.empty()) return;
  std::vector<Cells> lines{{"Held, MB", "At start", "Most", "First at", "At end"}};
  for (const HeldOverTime& one : held) {
    lines.push_back({one.is_all() ? place(one.device, one.process) : "  " + one_line(one.what), millions(one.at_start),
                     millions(one.most), ms(static_cast<double>(one.most_ns)), millions(one.at_end)});
  }
  append_table(out, std::move(lines), width);
}

void append_instants(std::string& out, const Measures& m, int width) {
  if (m.instants.empty()) return;
  append_title(out, "Instants");
  std::vector<Cells> lines{{"Instant", "Calls", "First at", "Last at"}};
  for (const Instants& one : m.instants) {
    lines.push_back({one_line(one.name), fmt::format("{}", one.count), ms(static_cast<double>(one.first_ns)),
                     ms(static_cast<double>(one.last_ns))});
  }
  append_table(out, std::move(lines), width);
}

void append_arguments(std::string& out, const Measures& m, int width) {
  if (m.arguments.empty()) return;
  append_title(out, "Range Arguments");
  std::vector<Cells> lines{{"Range", "Argument", "Calls", "Min.", "Max.", "Ave.", "Total"}};
  std::string before;
  for (const RangeArgument& one : m.arguments) {
    const bool is_new = one.range != before;
    Cells line{is_new ? one_line(one.range) : "", one_line(one.name), fmt::format("{}", one.count)};
    if (one.type == ArgumentType::text) {
      line.push_back(fmt::format("{} different", one.values));
    } else if (one.values > 0) {
      for (const double value : {one.least, one.most, one.sum / static_cast<double>(one.values), one.sum}) {
        line.push_back(fmt::format("{:.15g}", value));
      }
    }
    lines.push_back(std::move(line));
    before = one.range;
  }
  append_table(out, std::move(lines), width);
}

// What every program that ran holds; of its arena the largest that are there where the most is.
void append_memory(std::string& out, const Measures& m, int width) {
  if (m.memory.empty() && m.held.empty()) return;
  append_title(out, "Memory Summary");
  std::vector<Cells> lines;
  const Memory* before = nullptr;
  for (const Memory& memory : m.memory) {
    const bool is_new = before == nullptr || before->of != memory.of || before->device != memory.device;
    lines.push_back({is_new ? fmt::format("{}, {}", place(memory.device), one_line(memory.of)) : "",
                     (memory.is_inside ? "  " : "") + one_line(memory.what),
                     fmt::format("{} MB", millions(memory.bytes))});
    before = &memory;
  }
  append_table(out, std::move(lines), width);
  append_held(out, m.held, width);
}

// The last line sets the records in the report against all that there were.
void append_records(std::string& out, const Records& r, int width) {
  std::string line =
      fmt::format("Records: {} received, {} dropped, {} without a time, {} outside of the window, {} of no op",
                  r.received, r.dropped, r.timeless, r.outside, r.unattributed);
  if (r.unattributed > 0) {
    const std::uint64_t outside = r.unattributed - r.unlaunched;
    line += " (";
    if (r.unlaunched > 0)
      line += fmt::format("of {} the launch is not in the recording, as before its start", r.unlaunched);
    if (outside > 0) {
      line += fmt::format("{}{} launched outside of any op, as kernels of CUDA graphs are",
                          r.unlaunched > 0 ? "; " : "", outside);
    }
    line += ")";
  }
  if (r.gpu_ns > 0) {
    line += fmt::format("; {:.6g}% of the GPU's time is some op's", 100 * (1 - share(r.unattributed_ns, r.gpu_ns)));
  }
  out += '\n';
  append_words(out, line, width);
}

bool has_long_names(const Measures& m) {
  const auto is_long = [](const Row& row) { return is_kernel_of_cpp(row.name); };
  const auto has = [&](const Section& section) { return std::ranges::any_of(section.rows, is_long); };
  return std::ranges::any_of(m.merged, has) || std::ranges::any_of(m.per_thread, has);
}

}  // namespace

std::string to_text(const Measures& m, const ReportOptions& options) {
  std::string out;
  const bool has_merged = !m.merged.empty() || options.threads == Threads::merged;
  const bool has_both = options.state == State::all && m.has_gpu;
  const int width = options.line_width;
  append_header(out, m, options, has_merged);
  append_summaries(out, m, width);
  for (const ExtraSection& section : m.extra) {
    append_title(out, section.title);
    out += section.text;
  }
  append_copies(out, m, width);
  append_budgets(out, m, width);
  append_compiling(out, m, width);
  append_memory(out, m, width);
  append_instants(out, m, width);
  append_arguments(out, m, width);
  append_title(out, "Event Summary");
  append_words(
      out,
      "Total: all calls, also those beside each other. Ratio.: of the time that was under way the part in which "
      "a call was. Idle time and your code are in no row: Wall Time Summary." +
          std::string(has_long_names(m) ? " Names of C++ kernels are short; JSON and CSV have them whole." : ""),
      width);
  out += '\n';
  append_events(out, has_merged ? m.merged : m.per_thread, options, has_both, m.limit);
  if (has_merged && !m.per_thread.empty()) {
    out += '\n';
    append_header(out, m, options, false);
    append_title(out, "Event Summary");
    append_events(out, m.per_thread, options, has_both, m.limit);
  }
  append_records(out, m.records, width);
  return out;
}

}  // namespace paoding::profile
