// SPDX-License-Identifier: Apache-2.0
// Traces of other profilers and of ours: recognised by their content, read into a profile::Trace.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include "profile/trace.h"
#include "trace/trace_file.h"

namespace paoding::trace {

/// One kind of files.
struct Format {
  std::string_view name;                      // "Kineto JSON": for messages
  bool (*recognises)(const TraceFile& file);  // by its head, and what else its first bytes tell
  /// A finished Trace with a note of everything that was lost. Error (file) when nothing can be made of it.
  profile::Trace (*read)(TraceFile& file);
};

/// In the order in which they are asked.
std::span<const Format> formats();

/// The first one that recognises it. Error (file) that names what can be read where none does.
const Format& format_of(const TraceFile& file);

/// A recording of ours, or a file of any format.
profile::Trace read_trace(const std::filesystem::path& path);
/// The same of what is in memory; `name` is for errors.
profile::Trace read_trace_text(std::string_view bytes, const std::string& name);

}  // namespace paoding::trace
