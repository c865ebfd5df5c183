// SPDX-License-Identifier: Apache-2.0
// What the timelines share: on which row of its track a span is drawn, and where the bytes go.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "profile/trace.h"

namespace paoding::profile {

inline constexpr std::uint32_t kRowsPerTrack = 64;

/// Each span to the first row of its track where it lies inside, or after, what is there: spans of a row never cross.
std::vector<std::uint32_t> rows_of(const Trace& trace);

/// Timelines show the host and every GPU of a process as processes of their own: so many numbers has each.
inline constexpr int kProcessesEach = 8192;
/// "host", "GPU 0"; "rank 1 GPU 0" where there are several processes.
std::string place_name(const Trace& trace, ProcessId process, int device);

/// As much of a text as a timeline says each time.
std::string_view shown(std::string_view text);
/// Of the ops of a group as many.
inline constexpr std::uint32_t kMostMembers = 1000;

/// The argument's name, where all spans may have one of that name "argument bytes".
std::string argument_name(const Trace& trace, const ArgumentColumn& column);

/// What the counter is at the end of the recording, said once more: so that it is drawn up to there.
Sample at_the_end(const Trace& trace, const Sample& last);

/// Takes what a timeline is made of, piece by piece.
using Sink = std::function<void(std::string_view)>;

/// Chrome's trace format, as JSON.
void write_chrome(const Trace& trace, const Sink& sink);
/// Perfetto's own: a protobuf of TracePackets with TrackEvents, which needs no limit on its size and keeps nanoseconds.
void write_perfetto(const Trace& trace, const Sink& sink);

}  // namespace paoding::profile
