// SPDX-License-Identifier: Apache-2.0
// A Trace and its report as one HTML page that needs nothing else: no network, no library. page/* says how it looks
// and answers to keys and clicks; the numbers are those of to_json(), to the nanosecond, and the spans of the trace.
#pragma once

#include <string>
#include <string_view>

#include "profile/report.h"

namespace paoding::profile {

/// The page's text: the same for the same arguments.
std::string page_text(const Trace& trace, const Measures& measures, const ReportOptions& options);

/// Whether a file of that name is one: .html.
bool is_page(std::string_view path);
/// How such a file begins.
bool begins_page(std::string_view head);
/// Writes it. Error (file) when `path` cannot be written.
void write_page(const Trace& trace, const Measures& measures, const ReportOptions& options, const std::string& path);

}  // namespace paoding::profile
