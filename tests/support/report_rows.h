// SPDX-License-Identifier: Apache-2.0
// A trace's report as short texts to compare with.
#pragma once

#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "profile/report.h"

namespace paoding {

/// The rows, thread by thread: "  aten::mm 1 12.5 4" is within another, of one call, 12.5 us of a CPU and 4 us of a
/// GPU.
inline std::vector<std::string> report_rows(const profile::Trace& trace, const profile::ReportOptions& options = {}) {
  std::vector<std::string> all;
  for (const profile::Section& section : profile::measure(trace, options).per_thread) {
    for (const profile::Row& row : section.rows) {
      const std::string indent(static_cast<std::size_t>(2 * row.depth), ' ');
      all.push_back(fmt::format("{}{} {} {:g} {:g}", indent, row.name, row.calls, row.cpu / 1000, row.gpu / 1000));
    }
  }
  return all;
}

/// The number of missing items, by kind.
inline std::map<std::string, std::uint64_t> notes_of(const profile::Trace& trace) {
  std::map<std::string, std::uint64_t> all;
  for (const profile::Note& note : trace.notes()) all[note.text] = note.count;
  return all;
}

}  // namespace paoding
