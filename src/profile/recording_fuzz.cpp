// SPDX-License-Identifier: Apache-2.0
// Any bytes as a recording: a trace or an error, and the report of the trace adds up. Chunks are made valid first where
// the input begins with a letter, so that what lies behind checksums is tried too. Then beside the recording of another
// rank.
#include <cstring>

#include "findings/finding.h"
#include "paoding/error.h"
#include "profile/page.h"
#include "profile/recording.h"
#include "profile/report.h"
#include "profile/timeline_rows.h"
#include "profile/trace_merge.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace paoding;
  using namespace paoding::profile;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  std::string file = recording_head(size > 0 && data[0] % 2 != 0 ? 1 : kRecordingVersion);
  if (size > 0 && (data[0] & 0x80) == 0) {
    // A byte for the type, one for the length, the body.
    for (std::size_t at = 1; at + 2 <= size;) {
      BodyWriter body;
      const std::size_t length = std::min<std::size_t>(data[at + 1], size - at - 2);
      for (std::size_t i = 0; i < length; ++i) body.byte(data[at + 2 + i]);
      file += chunk_of(static_cast<ChunkType>(data[at] % kChunkTypes), body);
      at += 2 + length;
    }
  } else {
    file += input;
  }
  try {
    const Trace trace = read_recording_text(file, "input");
    const Measures m = measure(trace);
    if (m.framework < 0) __builtin_trap();
    // Whatever it is of, and however it is shown: no more than some bytes for each of its own.
    std::size_t bytes = 0;
    for (const ReportFormat format : {ReportFormat::text, ReportFormat::json, ReportFormat::csv}) {
      bytes += report(trace, {.detail = Detail::instances,
                              .nesting = Nesting::scope,
                              .share_groups = true,
                              .self = true,
                              .kernels = true,
                              .format = format})
                   .size();
    }
    write_chrome(trace, [&](std::string_view piece) { bytes += piece.size(); });
    write_perfetto(trace, [&](std::string_view piece) { bytes += piece.size(); });
    bytes += page_text(trace, m, {}).size();
    if (bytes > 100'000'000) __builtin_trap();
    Trace other;
    other.set_window(0, 1000);
    other.add_process(1 << 30, 1 << 30, "");
    other.add_anchor(0, "other", {0, 0, 0});
    other.finish();
    const findings::Findings found = findings::find(trace, {.least_steps = 1, .most_replay_error = 1e18});
    for (const findings::Finding& one : found.found) {
      if (one.gain_low_ns < 0 || one.gain_high_ns < one.gain_low_ns) __builtin_trap();
      for (const findings::Example& example : one.evidence.spans) {
        if (example.span >= trace.size()) __builtin_trap();
      }
    }
    std::vector<NamedTrace> both;
    both.push_back({"input", read_recording_text(file, "input")});
    both.push_back({"other", std::move(other)});
    if (measure(merge(std::move(both))).framework < 0) __builtin_trap();
  } catch (const Error&) {
  }
  return 0;
}
