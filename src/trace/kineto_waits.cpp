// SPDX-License-Identifier: Apache-2.0
#include "trace/kineto_waits.h"

#include <algorithm>
#include <iterator>

namespace paoding::trace {

using namespace profile;

bool KinetoWaits::may_wait(std::string_view name) {
  for (const char* part : {"Synchronize", "Wait", "Query", "EventRecord"}) {
    if (name.find(part) != name.npos) return true;
  }
  return false;
}

void KinetoWaits::add_call(std::uint32_t correlation, SpanId span) {
  if (correlation != 0 && span != kNone) calls_.emplace_back(correlation, span);
}

void KinetoWaits::finish(TraceSink& sink) {
  if (rows_.empty()) return;
  Trace& trace = sink.trace();
  std::ranges::stable_sort(calls_, {}, &Call::first);
  const auto call_of = [&](std::uint32_t correlation) {
    const auto behind = std::ranges::upper_bound(calls_, correlation, {}, &Call::first);
    return behind != calls_.begin() && std::prev(behind)->first == correlation ? std::prev(behind)->second : kNone;
  };
  std::uint64_t alone = 0;
  for (const Row& row : rows_) {
    const SpanId span = call_of(row.correlation);
    if (span == kNone) {
      ++alone;
      continue;
    }
    if (row.kind != 0) trace.add_text_argument(span, trace.add_column(argument::kWait, ArgumentType::text), row.kind);
    const auto count = [&](std::string_view name, std::int64_t number) {
      if (number >= 0) trace.add_argument(span, trace.add_column(name, ArgumentType::integer), number);
    };
    count(argument::kStream, row.stream);
    count(argument::kEventStream, row.event_stream);
    const SpanId record = row.recorded_by < 0 ? kNone : call_of(static_cast<std::uint32_t>(row.recorded_by));
    if (record != kNone && record != span) trace.add_flow(record, span);
  }
  sink.lose("rows that say what a stream or a thread waited for, whose call is not in the file, left out", alone);
}

}  // namespace paoding::trace
