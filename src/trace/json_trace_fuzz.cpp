// SPDX-License-Identifier: Apache-2.0
// Any bytes as a trace of another profiler: a trace or an error, and its report adds up.
#include "findings/finding.h"
#include "paoding/error.h"
#include "profile/report.h"
#include "profile/timeline_rows.h"
#include "trace/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace paoding;
  using namespace paoding::profile;
  try {
    const Trace trace = trace::read_trace_text({reinterpret_cast<const char*>(data), size}, "input");
    const Measures m = measure(trace);
    constexpr double kExact = 9007199254740992;  // up to there a double is whole nanoseconds: 104 days
    const bool adds_up = m.wall > kExact || m.wall == m.total + m.compile + m.unseen + m.yours;
    if (m.framework < 0 || !adds_up) __builtin_trap();
    std::size_t bytes = 0;
    for (const ReportFormat format : {ReportFormat::text, ReportFormat::json, ReportFormat::csv}) {
      bytes +=
          report(trace, {.detail = Detail::instances, .nesting = Nesting::scope, .kernels = true, .format = format})
              .size();
    }
    const findings::Findings found = findings::find(trace, {.least_steps = 1, .most_replay_error = 1e18});
    for (const findings::Finding& one : found.found) {
      if (one.gain_low_ns < 0 || one.gain_low_ns > one.gain_high_ns) __builtin_trap();
    }
    write_chrome(trace, [&](std::string_view piece) { bytes += piece.size(); });
    write_perfetto(trace, [&](std::string_view piece) { bytes += piece.size(); });
    if (bytes > 100'000'000) __builtin_trap();
  } catch (const Error&) {
  }
  return 0;
}
