// SPDX-License-Identifier: Apache-2.0
#include "trace/kineto_waits.h"

namespace paoding::trace {

using namespace profile;

bool KinetoWaits::may_wait(std::string_view name) {
  for (const char* part : {"Synchronize", "Wait", "Query", "EventRecord"}) {
    if (name.find(part) != name.npos) return true;
  }
  return false;
}

void KinetoWaits::add_call(std::uint32_t correlation, SpanId span) {
  if (correlation != 0 && span != kNone) calls_[correlation] = span;
}

void KinetoWaits::finish(TraceSink& sink) {
  Trace& trace = sink.trace();
  std::uint64_t alone = 0;
  for (const Row& row : rows_) {
    const auto call = calls_.find(row.correlation);
    if (call == calls_.end()) {
      ++alone;
      continue;
    }
    const SpanId span = call->second;
    if (row.kind != 0) trace.add_text_argument(span, trace.add_column(argument::kWait, ArgumentType::text), row.kind);
    const auto count = [&](std::string_view name, std::int64_t number) {
      if (number >= 0) trace.add_argument(span, trace.add_column(name, ArgumentType::integer), number);
    };
    count(argument::kStream, row.stream);
    count(argument::kEventStream, row.event_stream);
    const auto record = row.recorded_by < 0 ? calls_.end() : calls_.find(static_cast<std::uint32_t>(row.recorded_by));
    if (record != calls_.end() && record->second != span) trace.add_flow(record->second, span);
  }
  sink.lose("rows that say what a stream or a thread waited for, whose call is not in the file, left out", alone);
}

}  // namespace paoding::trace
