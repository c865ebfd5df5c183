// SPDX-License-Identifier: Apache-2.0
// Profiles of JAX, XLA and TensorFlow: XSpace, the protobuf of .xplane.pb files.
//
// Times are picoseconds in the file. A span's start and its end are each rounded down to whole nanoseconds: what
// touches in the file touches in the trace, and spans one behind the other add up to what they last together, however
// many there are. (Profiles of GPUs have whole nanoseconds anyway.)
#pragma once

#include <string>
#include <string_view>

#include "profile/trace.h"

namespace paoding::trace {

/// Whether this is the beginning of one: by the messages in it.
bool is_xplane(std::string_view head);

/// A finished trace. Lines that are made from others ("XLA Ops" beside streams) are left out. What is broken or cut off
/// is counted in notes. `name` is for errors: Error (file) when it is no XSpace.
profile::Trace read_xplane_text(std::string_view file, const std::string& name);

}  // namespace paoding::trace
