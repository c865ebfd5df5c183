// SPDX-License-Identifier: Apache-2.0
// Where a trace goes when somebody names a file.
#pragma once

#include <string>
#include <string_view>

#include "profile/report.h"
#include "profile/trace.h"

namespace paoding::profile {

/// Whether a file of that name is a timeline, a recording or the page of a report.
bool is_saved_as(std::string_view path);

/// In front of what is to be recorded. Error (file) when something is at the path that save() would not replace;
/// nothing is done for an empty path.
void check_saveable(const std::string& path);

/// Writes what the path's ending says; a page shows those numbers as the options want them. What was recorded is there
/// once: where that path cannot be written to, a file of the same name is made in a new folder among temporary ones.
/// Returns what is to be said of that, or nothing. Error (file) when neither can be written; nothing is done for an
/// empty path.
std::string save(const Trace& trace, const Measures& measures, const ReportOptions& options, const std::string& path);

}  // namespace paoding::profile
