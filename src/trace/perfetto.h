// SPDX-License-Identifier: Apache-2.0
// Perfetto traces: those that paoding writes, that a profiler of ROCm or PyTorch writes, or any program with track
// events.
#pragma once

#include <string>
#include <string_view>

#include "profile/trace.h"

namespace paoding::trace {

/// Whether this is the beginning of one: by the packets in it.
bool is_perfetto(std::string_view head);

/// A finished trace. Error (file) when there are no packets. Events that have only one end, and whatever else was lost,
/// are counted in notes.
profile::Trace read_perfetto_text(std::string_view file, const std::string& name);

}  // namespace paoding::trace
