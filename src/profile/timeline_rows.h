// SPDX-License-Identifier: Apache-2.0
// Parts that the timelines share: the row of its track on which a span is drawn, and the output.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "profile/trace.h"

namespace paoding::profile {

inline constexpr std::uint32_t kRowsPerTrack = 64;

/// Puts each span on the first row of its track where it lies inside or after the others, so spans of a row never
/// cross.
std::vector<std::uint32_t> rows_of(const Trace& trace);

/// Timelines show the host and every GPU of a process as processes of their own: so many numbers has each.
inline constexpr int kProcessesEach = 8192;
/// "host", "GPU 0"; "rank 1 GPU 0" where there are several processes.
std::string place_name(const Trace& trace, ProcessId process, int device);

/// The beginning of a text, as much as a timeline repeats each time.
std::string_view shown(std::string_view text);
/// The most ops of a group that a timeline lists.
inline constexpr std::uint32_t kMostMembers = 1000;

/// The argument's name, where all spans may have one of that name "argument bytes".
std::string argument_name(const Trace& trace, const ArgumentColumn& column);

/// The counter's last sample at the end of the recording, so that it is drawn up to there.
Sample at_the_end(const Trace& trace, const Sample& last);

/// Takes a timeline piece by piece.
using Sink = std::function<void(std::string_view)>;

/// Chrome's trace format, as JSON.
void write_chrome(const Trace& trace, const Sink& sink);
/// Perfetto's own: a protobuf of TracePackets with TrackEvents, which needs no limit on its size and keeps nanoseconds.
void write_perfetto(const Trace& trace, const Sink& sink);

}  // namespace paoding::profile
