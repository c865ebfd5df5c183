// SPDX-License-Identifier: Apache-2.0
// Any bytes as rocprof's JSON: a trace or an error, and the report of the trace adds up.
#include "paoding/error.h"
#include "profile/report.h"
#include "trace/rocprof.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace paoding;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  trace::is_rocprof(input);
  try {
    const profile::Trace trace = trace::read_rocprof_text(std::string(input), "input");
    if (profile::measure(trace).framework < 0) __builtin_trap();
  } catch (const Error&) {
  }
  return 0;
}
