// SPDX-License-Identifier: Apache-2.0
// The layout of a report: header, Overhead Summary, GpuMemcpy Summary, Event Summary.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/one_line.h"
#include "profile/report.h"
#include "profile/row_names.h"

namespace paoding::profile {

namespace {

constexpr double kNsPerMs = 1e6;

// Every nanosecond of it, without zeros at the end.
std::string ms(double ns) {
  std::string text = fmt::format("{:.6f}", ns / kNsPerMs);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

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

using Cells = std::vector<std::string>;

// Left-aligned columns, each as wide as its widest cell, two spaces apart.
void append_table(std::string& out, const std::vector<Cells>& lines) {
  std::vector<std::size_t> widths;
  for (const Cells& cells : lines) {
    widths.resize(std::max(widths.size(), cells.size()), 0);
    for (std::size_t c = 0; c < cells.size(); ++c) widths[c] = std::max(widths[c], characters(cells[c]));
  }
  for (const Cells& cells : lines) {
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const bool is_last = c + 1 == cells.size();
      out += cells[c];
      if (!is_last) out.append(widths[c] - characters(cells[c]) + 2, ' ');
    }
    out += '\n';
  }
}

void append_title(std::string& out, std::string_view title) {
  out += fmt::format("\n------------------------- {} -------------------------\n\n", title);
}

void append_header(std::string& out, const ReportOptions& options, bool is_merged) {
  out += "-------------------------> Profiling Report <-------------------------\n\n";
  if (is_merged) out += "Note! This Report merge all thread info into one.\n";
  out += fmt::format("Place: {}\nTime unit: ms\n{}\n", to_string(options.state), sorted_by(options.sort));
  if (options.nesting == Nesting::scope) out += "Nested by scope: a call of a scope is a run\n";
}

// A step is the time from one run to the next.
void append_steps(std::string& out, const StepTimes& steps) {
  if (steps.count < 2) return;
  out += fmt::format("{} steps: p50 {}, p99 {}, worst {} (number {}", steps.count, ms(static_cast<double>(steps.p50)),
                     ms(static_cast<double>(steps.p99)), ms(static_cast<double>(steps.worst)), steps.worst_step);
  if (!steps.why.empty()) {
    out += fmt::format(": {} longer in {}", ms(static_cast<double>(steps.why_ns)), one_line(steps.why));
  }
  out += ")\n";
}

// What the reader must know about what is missing.
void append_completeness(std::string& out, const Measures& m) {
  out += "Not seen: ";
  if (m.notes.empty()) out += "nothing known to be missing";
  for (std::size_t i = 0; i < m.notes.size(); ++i) {
    out += i == 0 ? "" : "; ";
    out += m.notes[i].text;
    if (m.notes[i].count > 0) out += fmt::format(" ({})", m.notes[i].count);
  }
  out += '\n';
}

// A line per part of every thread's and every GPU's wall time; of the threads that work in parallel regions only, one
// for all.
void append_budgets(std::string& out, const Measures& m) {
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
  append_table(out, lines);
}

void append_summaries(std::string& out, const Measures& m) {
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
  if (m.yours > 0) add_part("  Your code", m.yours);
  append_table(out, overheads);
  append_steps(out, m.steps);
  append_completeness(out, m);
  if (m.replays > m.stamped_replays) {
    out += fmt::format("~: scaled from the {} of {} replays of graphs that were stamped in full, which cost {}\n",
                       m.stamped_replays, m.replays, ms(m.stamps_ns));
  }
}

void append_copies(std::string& out, const Measures& m) {
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
  append_table(out, lines);
}

// So many a second, in units of 10^9; nothing where it is not known. A row on a GPU is set against what that took.
std::string rate(double amount, const Row& row) {
  const double ns = row.gpu > 0 ? row.gpu : row.total;
  return amount > 0 && ns > 0 ? fmt::format("{:.4g}", amount / ns) : "";
}

// Both sides have columns where both were seen: without a GPU one would say what the total says, the other nothing.
void append_events(std::string& out, const std::vector<Section>& sections, const ReportOptions& options, bool has_both,
                   double limit) {
  append_title(out, "Event Summary");
  std::vector<Cells> lines;
  Cells head{"Event", "Calls", "Total"};
  if (has_both) head.insert(head.end(), {"CPU Time (Ratio)", "GPU Time (Ratio)"});
  head.insert(head.end(), {"Min.", "Max.", "Ave.", "Ratio."});
  const bool has_limit = options.rates && limit > 0;
  if (options.rates) head.push_back("GB/s");
  if (has_limit) head.insert(head.end(), {fmt::format("of {:.4g}", limit), "Lost"});
  if (options.rates) head.push_back("GFLOP/s");
  lines.push_back(std::move(head));
  for (const Section& section : sections) {
    const std::vector<std::string> names = row_names(section, options.width);
    for (std::size_t i = 0; i < section.rows.size(); ++i) {
      const Row& row = section.rows[i];
      const char* const scaled = row.scaled > 0 ? "~" : "";
      Cells cells{names[i], fmt::format("{}{}", scaled, row.calls), scaled + ms(row.total)};
      if (has_both) {
        cells.push_back(fmt::format("{:.6f} ({:.6f})", row.cpu / kNsPerMs, share(row.cpu, row.total)));
        cells.push_back(fmt::format("{:.6f} ({:.6f})", row.gpu / kNsPerMs, share(row.gpu, row.total)));
      }
      cells.insert(cells.end(), {ms(row.min), ms(row.max), ms(row.average()), fmt::format("{:g}", row.ratio)});
      if (options.rates) cells.push_back(rate(row.bytes, row));
      if (has_limit) {
        const bool is_known = row.bytes > 0 && row.gpu > 0;
        cells.push_back(is_known ? fmt::format("{:.3g}%", 100 * row.bytes / row.gpu / limit) : "");
        cells.push_back(is_known ? fmt::format("{:.6f}", row.lost(limit) / kNsPerMs) : "");
      }
      if (options.rates) cells.push_back(rate(row.flops, row));
      lines.push_back(std::move(cells));
    }
  }
  append_table(out, lines);
}

}  // namespace

std::string to_text(const Measures& m, const ReportOptions& options) {
  std::string out;
  const bool has_merged = !m.merged.empty() || options.threads == Threads::merged;
  const bool has_both = options.state == State::all && m.has_gpu;
  append_header(out, options, has_merged);
  append_summaries(out, m);
  append_copies(out, m);
  append_budgets(out, m);
  append_events(out, has_merged ? m.merged : m.per_thread, options, has_both, m.limit_bytes_per_ns);
  if (has_merged && !m.per_thread.empty()) {
    out += '\n';
    append_header(out, options, false);
    append_events(out, m.per_thread, options, has_both, m.limit_bytes_per_ns);
  }
  return out;
}

}  // namespace paoding::profile
