// SPDX-License-Identifier: Apache-2.0
// The numbers of a report: what all spans add up to, and the rows of each thread or of all.
#include "profile/report.h"

#include "base/check.h"
#include "profile/intervals.h"
#include "profile/row_tree.h"

namespace paoding::profile {

Measures measure(const Trace& trace, const ReportOptions& options) {
  RowTree threads(trace, options, true);
  Measures m;
  m.total = united_length(threads.total);
  m.computation = united_length(std::move(threads.computation));
  m.framework = m.total - m.computation;
  PD_ASSERT(m.framework >= 0, "computation outside of the total time");
  m.compile = united_length(std::move(threads.compiling));
  m.runs = trace.runs().size();
  for (SpanId i = 0; i < trace.size() && !m.has_gpu; ++i) m.has_gpu = trace.on_gpu(i);
  m.async_copies = {threads.copy_calls[1], united_length(threads.copies[1])};
  m.sync_copies = {threads.copy_calls[0], united_length(threads.copies[0])};
  std::vector<Interval> copies = threads.copies[0];
  copies.insert(copies.end(), threads.copies[1].begin(), threads.copies[1].end());
  m.copies = {threads.copy_calls[0] + threads.copy_calls[1], united_length(std::move(copies))};
  m.notes = trace.notes();

  m.per_thread = threads.sections();
  const bool both = options.threads == Threads::automatic && m.per_thread.size() > 1;
  if (both || options.threads == Threads::merged) m.merged = RowTree(trace, options, false).sections();
  if (options.threads == Threads::merged) m.per_thread.clear();
  return m;
}

std::string report(const Trace& trace, const ReportOptions& options) {
  return to_text(measure(trace, options), options);
}

}  // namespace paoding::profile
