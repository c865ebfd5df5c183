// SPDX-License-Identifier: Apache-2.0
// PAODING_COMPILE changes how every program of a process is compiled, whichever language made it, so that one build of
// a program can be measured with a switch on and off: `paoding verify` sets it.
#pragma once

#include <string_view>

#include "paoding/program.h"

namespace paoding {

/// The options changed by the words: "pass=NAME" and "no_pass=NAME" (each any number of
/// times), "tf32=1", "tune=1", "precision=bf16", "execution=captured", separated by ';'. Error (argument) for any other
/// word.
CompileOptions with_switches(CompileOptions options, std::string_view words);
/// With those of PAODING_COMPILE.
CompileOptions with_environment(const CompileOptions& options);

}  // namespace paoding
