// SPDX-License-Identifier: Apache-2.0
// Any bytes as an SQLite export of Nsight Systems: a trace or an error, and the report of the trace adds up.
#include "paoding/error.h"
#include "profile/report.h"
#include "trace/nsight.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace paoding;
  try {
    const trace::SqliteFile file =
        trace::SqliteFile::of(std::string(reinterpret_cast<const char*>(data), size), "input");
    const profile::Trace trace = trace::read_nsight(file, "input");
    if (profile::measure(trace).framework < 0) __builtin_trap();
  } catch (const Error&) {
  }
  return 0;
}
