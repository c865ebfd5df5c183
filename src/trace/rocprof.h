// SPDX-License-Identifier: Apache-2.0
// JSON of AMD's rocprofv3 ("rocprofiler-sdk-tool"), and the results.json of rocprof before it, whose events are those
// of Chrome with the nanoseconds beside them.
#pragma once

#include <string>
#include <string_view>

#include "profile/trace.h"

namespace paoding::trace {

bool is_rocprof(std::string_view head);

/// A finished trace. What follows a place where the text is broken or cut off is left out, and said in a note. Error
/// (file) when nothing was read before it.
profile::Trace read_rocprof_text(std::string text, const std::string& name);

}  // namespace paoding::trace
