// SPDX-License-Identifier: Apache-2.0
// A Trace as a Chrome trace (JSON), which Perfetto and chrome://tracing show: a process for the host and one per GPU,
// a row per track, arrows from what launched GPU work to that work, what could not be seen under "otherData".
#pragma once

#include <string>
#include <string_view>

#include "io/files.h"
#include "profile/trace.h"

namespace paoding::profile {

/// The JSON text. Times are microseconds from the start of the recording, exact to the nanosecond. Spans of a track
/// that overlap without one containing the other go to further rows, because viewers drop them otherwise.
std::string timeline_json(const Trace& trace);

/// Whether a file of that name is one: .json, .json.gz (Chrome's trace format) or .pftrace (Perfetto's).
bool is_timeline(std::string_view path);
/// Writes it. Error (file) when `path` cannot be written.
void write_timeline(const Trace& trace, const std::string& path);
/// How files begin that it writes at such a path.
files::IsOurs timeline_beginning(std::string_view path);

}  // namespace paoding::profile
