// SPDX-License-Identifier: Apache-2.0
#include "trace/reader.h"

#include <array>
#include <string>

#include "base/check.h"
#include "profile/recording.h"
#include "trace/readers.h"

namespace paoding::trace {
namespace {

// Newest things last: a format that takes less for granted is asked later.
constexpr std::array kFormats = {
    Format{"recording of paoding", recognises_recording, read_recording_file},
    Format{"SQLite export of Nsight Systems", recognises_sqlite, read_sqlite},
    Format{"XPlane protobuf of JAX or TensorFlow", recognises_xplane, read_xplane},
    Format{"Perfetto trace", recognises_perfetto, read_perfetto},
    Format{"rocprof JSON", recognises_rocprof, read_rocprof},
    Format{"JSON trace (Kineto, XLA, TensorFlow, Chrome)", recognises_json, read_json},
};

profile::Trace read_file(TraceFile& file) { return format_of(file).read(file); }

}  // namespace

bool recognises_recording(const TraceFile& file) {
  return !file.is_packed() && file.head().starts_with(profile::kRecordingMark);
}

profile::Trace read_recording_file(TraceFile& file) { return profile::read_recording_text(file.rest(), file.name()); }

std::span<const Format> formats() { return kFormats; }

const Format& format_of(const TraceFile& file) {
  for (const Format& format : formats()) {
    if (format.recognises(file)) return format;
  }
  std::string names;
  for (const Format& format : formats()) names += fmt::format("{}{}", names.empty() ? "" : ", ", format.name);
  if (file.head().empty()) fail(ErrorKind::file, "{}: the file is empty, needs to be a trace: {}", file.name(), names);
  if (file.name().ends_with(".nsys-rep") || file.name().ends_with(".qdrep")) {
    fail(ErrorKind::file,
         "{}: Nsight Systems' own files cannot be read: nsys export --type sqlite {} makes one that can", file.name(),
         file.name());
  }
  fail(ErrorKind::file, "{}: it is no trace that can be read, needs to be one of: {}", file.name(), names);
}

profile::Trace read_trace(const std::filesystem::path& path) {
  TraceFile file(path);
  return read_file(file);
}

profile::Trace read_trace_text(std::string_view bytes, const std::string& name) {
  TraceFile file(bytes, name);
  return read_file(file);
}

}  // namespace paoding::trace
