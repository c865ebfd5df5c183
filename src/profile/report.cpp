// SPDX-License-Identifier: Apache-2.0
// The numbers of a report: sums over all spans, and the rows of each thread or of all.
#include "profile/report.h"

#include <algorithm>
#include <future>
#include <map>
#include <memory>
#include <system_error>

#include "base/check.h"
#include "profile/intervals.h"
#include "profile/row_tree.h"
#include "profile/trace_counts.h"

namespace paoding::profile {

namespace {

constexpr std::size_t kWorthTwo = 1 << 15;  // spans, for which another thread is started

// The work under way on another thread; nothing where no more threads are to be had.
template <class Work>
std::future<void> started(Work&& work) {
  try {
    return std::async(std::launch::async, std::forward<Work>(work));
  } catch (const std::system_error&) {
    return {};
  }
}

// The summaries beside the rows of a tree; each list is let go of when it is summed up.
void add_summaries(const Trace& trace, const ReportOptions& options, RowTree::ForSummaries&& lists, Measures* m) {
  std::vector<Interval> known = std::move(lists.total), working = std::move(lists.computation);
  unite(known);
  unite(working);
  m->total = length(known);
  m->computation = length(working);
  if (options.state != State::gpu) working.insert(working.end(), lists.recording.begin(), lists.recording.end());
  m->recording = united_length(std::move(working)) - m->computation;
  m->framework = m->total - m->computation - m->recording;
  PD_ASSERT(m->framework >= 0, "computation outside of the total time");
  const auto beside = [&known](const std::vector<Interval>& more) {
    if (more.empty()) return 0.0;
    const double before = length(known);
    known.insert(known.end(), more.begin(), more.end());
    unite(known);
    return length(known) - before;
  };
  m->compile = beside(lists.compiling);
  m->unseen = beside(lists.unseen);
  m->wall = static_cast<double>(trace.wall_ns());
  m->yours = m->wall - length(known);
  m->async_copies = {lists.copy_calls[1], united_length(lists.copies[1])};
  m->sync_copies = {lists.copy_calls[0], united_length(lists.copies[0])};
  std::vector<Interval> copies = std::move(lists.copies[0]);
  copies.insert(copies.end(), lists.copies[1].begin(), lists.copies[1].end());
  m->copies = {lists.copy_calls[0] + lists.copy_calls[1], united_length(std::move(copies))};
}

void count_replays(const Trace& trace, Measures* m) {
  std::map<SiteId, std::pair<std::uint64_t, double>> ends_only;  // how many of a graph, their time
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (!trace.on_gpu(i) || trace.kind(i) != SpanKind::replay) continue;
    m->replays += 1;
    auto& [count, ns] = ends_only[trace.site_id(i)];
    count += 1;
    ns += static_cast<double>(trace.duration(i));
  }
  for (const ReplayPart& part : trace.parts()) {
    if (part.site != kNone) continue;
    m->replays += part.calls;
    m->stamped_replays += part.calls;
    const auto found = ends_only.find(part.replay);
    if (found == ends_only.end()) continue;
    const double each = found->second.second / static_cast<double>(found->second.first);
    m->stamps_ns += std::max(0.0, static_cast<double>(part.ns) - static_cast<double>(part.calls) * each);
  }
}

}  // namespace

Measures measure(const Trace& trace, const ReportOptions& options) {
  Measures m;
  const auto add_rows = [&] {
    const bool is_by_itself = !RowTree::can_merge(trace, options);
    {
      RowTree threads(trace, options, true);
      RowTree::ForSummaries lists = std::move(threads.for_summaries);
      const auto summarise = [&] { add_summaries(trace, options, std::move(lists), &m); };
      std::future<void> summaries;
      if (trace.size() >= kWorthTwo) summaries = started(summarise);
      m.per_thread = threads.sections();
      m.merged = threads.merged();
      if (threads.too_deep > 0) {
        m.notes.push_back(
            {fmt::format("rows of calls within more than {} others", RowTree::kMostDepth), threads.too_deep});
      }
      summaries.valid() ? summaries.get() : summarise();
    }
    const bool are_several = std::ranges::count(m.per_thread, false, &Section::is_gpu) > 1;
    const bool is_merged = options.threads == Threads::merged || (options.threads == Threads::automatic && are_several);
    if (is_merged && is_by_itself) m.merged = RowTree(trace, options, false).sections();
    if (!is_merged) m.merged.clear();
  };
  std::packaged_task<void()> rows(add_rows);
  std::shared_future<void> rows_are_there = rows.get_future().share();
  const auto add_times = [&] {
    const auto times = std::make_shared<const std::vector<ThreadTime>>(thread_times(trace));
    m.budgets = budgets(trace, *times);
    m.steps = step_times(trace, *times);
    if (options.findings) m.extra.push_back(findings_section(trace, options, times, rows_are_there));
  };
  std::future<void> beside;
  if (trace.size() >= kWorthTwo) beside = started(add_times);
  rows();
  rows_are_there.get();
  beside.valid() ? beside.get() : add_times();
  if (options.threads == Threads::merged) m.per_thread.clear();
  std::erase_if(m.budgets, [&](const Budget& budget) {
    return options.state != State::all && (budget.device < 0) != (options.state == State::cpu);
  });
  m.runs = trace.runs().size();
  for (const Process& process : trace.processes()) {
    const std::string_view name = to_string(process.source);
    if (process.source == Source::paoding || m.recorded_by.find(name) != std::string::npos) continue;
    m.recorded_by += fmt::format("{}{}", m.recorded_by.empty() ? "" : ", ", name);
  }
  count_replays(trace, &m);
  for (SpanId i = 0; i < trace.size() && !m.has_gpu; ++i) m.has_gpu = trace.on_gpu(i);
  m.limit = trace.common_limit();
  m.memory = trace.memory();
  m.held = held_over_time(trace, options.state);
  m.compiling = compile_parts(trace);
  m.instants = count_instants(trace);
  m.arguments = range_arguments(trace);
  m.records = count_records(trace);
  m.span_cost_ns = static_cast<double>(trace.span_cost_ns());
  for (const Note& note : trace.notes()) {
    if (note.kind == Note::Kind::estimated) {
      m.estimated_replays += note.count;
    } else {
      m.notes.push_back(note);
    }
  }
  return m;
}

ReportOptions report_options(State state, Detail detail, SortBy sort, const ReportLayout& layout) {
  return {.state = state,
          .detail = detail,
          .sort = sort,
          .nesting = layout.nesting,
          .width = layout.width,
          .share_groups = layout.share_groups,
          .rates = layout.rates,
          .self = layout.self,
          .kernels = layout.kernels,
          .line_width = layout.line_width,
          .findings = layout.findings,
          .format = layout.format};
}

std::string report(const Trace& trace, const ReportOptions& options) {
  return report(measure(trace, options), options);
}

std::string report(const Measures& measures, const ReportOptions& options) {
  switch (options.format) {
    case ReportFormat::text: return to_text(measures, options);
    case ReportFormat::json: return to_json(measures, options);
    case ReportFormat::csv: return to_csv(measures, options);
  }
  return "";
}

}  // namespace paoding::profile
