// SPDX-License-Identifier: Apache-2.0
// Any bytes as a profile of XLA's: a trace or an error, and the report of the trace adds up.
#include "paoding/error.h"
#include "profile/report.h"
#include "trace/hlo.h"
#include "trace/xplane.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace paoding;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  trace::is_xplane(input);
  trace::HloModule program(input);
  for (const char* name : {"", "dot.1", "fusion"}) {
    program.find(name);
    program.find_kernel(name);
  }
  try {
    const profile::Trace trace = trace::read_xplane_text(input, "input");
    if (trace.size() > size) __builtin_trap();  // no more spans than bytes
    if (profile::measure(trace).framework < 0) __builtin_trap();
  } catch (const Error&) {
  }
  return 0;
}
