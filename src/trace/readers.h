// SPDX-License-Identifier: Apache-2.0
// The readers of all formats, one pair of functions each; the list is in reader.cpp.
#pragma once

#include "profile/trace.h"
#include "trace/trace_file.h"

namespace paoding::trace {

bool recognises_recording(const TraceFile& file);
profile::Trace read_recording_file(TraceFile& file);
bool recognises_json(const TraceFile& file);
profile::Trace read_json(TraceFile& file);

bool recognises_xplane(const TraceFile& file);
profile::Trace read_xplane(TraceFile& file);

bool recognises_sqlite(const TraceFile& file);
profile::Trace read_sqlite(TraceFile& file);

bool recognises_perfetto(const TraceFile& file);
profile::Trace read_perfetto(TraceFile& file);

bool recognises_rocprof(const TraceFile& file);
profile::Trace read_rocprof(TraceFile& file);

}  // namespace paoding::trace
