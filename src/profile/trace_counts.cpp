// SPDX-License-Identifier: Apache-2.0
#include "profile/trace_counts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

namespace paoding::profile {

std::vector<CompilePart> compile_parts(const Trace& trace) {
  std::map<std::string_view, CompilePart> parts;
  CompilePart rest{.name = "the rest"};
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.on_gpu(i)) continue;
    const auto ns = static_cast<double>(trace.duration(i));
    const SpanId parent = trace.parent(i);
    const bool is_part = parent != kNone && trace.kind(parent) == SpanKind::compile;
    if (trace.kind(i) == SpanKind::compile && !is_part) {
      rest.calls += 1;
      rest.ns += ns;
    }
    if (!is_part) continue;
    rest.ns -= ns;
    CompilePart& part = parts[trace.name(i)];
    part.calls += 1;
    part.ns += ns;
  }
  std::vector<CompilePart> made;
  for (auto& [name, part] : parts) made.push_back({std::string(name), part.calls, part.ns});
  if (rest.calls > 0) made.push_back({rest.name, rest.calls, std::max(rest.ns, 0.0)});
  std::ranges::stable_sort(made, std::ranges::greater(), &CompilePart::ns);
  return made;
}

std::vector<Instants> count_instants(const Trace& trace) {
  std::map<std::string_view, Instants> by_name;
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.kind(i) != SpanKind::instant) continue;
    const std::int64_t ns = trace.start(i) - trace.window_start();
    Instants& own = by_name.try_emplace(trace.name(i), Instants{"", 0, ns, ns}).first->second;
    own.count += 1;
    own.first_ns = std::min(own.first_ns, ns);
    own.last_ns = std::max(own.last_ns, ns);
  }
  std::vector<Instants> all;
  for (auto& [name, own] : by_name) {
    own.name = name;
    all.push_back(std::move(own));
  }
  std::ranges::stable_sort(all, {}, &Instants::first_ns);
  return all;
}

std::vector<RangeArgument> range_arguments(const Trace& trace) {
  std::map<std::tuple<std::string_view, std::string_view, ArgumentType>, RangeArgument> all;
  std::map<const RangeArgument*, std::set<StringId>> values;
  for (const ArgumentColumn& column : trace.columns()) {
    for (std::size_t i = 0; i < column.of.size(); ++i) {
      const SpanId span = column.of[i];
      if (trace.kind(span) != SpanKind::range) continue;
      const std::string_view name = trace.text(column.name);
      RangeArgument& own = all[{trace.name(span), name, column.type}];
      own.count += 1;
      if (column.type == ArgumentType::text) {
        values[&own].insert(column.text(i));
        continue;
      }
      const double value = column.type == ArgumentType::real ? column.real(i) : static_cast<double>(column.integer(i));
      if (!std::isfinite(value)) continue;
      own.least = own.values == 0 ? value : std::min(own.least, value);
      own.most = own.values == 0 ? value : std::max(own.most, value);
      own.sum += value;
      own.values += 1;
    }
  }
  std::vector<RangeArgument> made;
  for (auto& [key, own] : all) {
    std::tie(own.range, own.name, own.type) = key;
    if (own.type == ArgumentType::text) own.values = values[&own].size();
    made.push_back(std::move(own));
  }
  return made;
}

std::vector<bool> threads_that_hand_over(const Trace& trace) {
  std::vector<bool> found(trace.tracks().size());
  for (SpanId i = 0; i < trace.size(); ++i) {
    const SpanId cause = trace.cause(i);
    if (cause == kNone || !trace.on_gpu(i) || trace.source(cause) == Source::paoding) continue;
    found[trace.track_id(cause)] = true;
  }
  return found;
}

namespace {

// Host spans that are ops of others or lie in one. Of paoding's whatever launches does so for ops.
std::vector<bool> spans_in_ops(const Trace& trace) {
  std::vector<bool> found(trace.size());
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.on_gpu(i)) continue;
    const SpanId p = trace.parent(i);
    found[i] = trace.source(i) == Source::paoding || trace.kind(i) == SpanKind::op || (p != kNone && found[p]);
  }
  return found;
}

}  // namespace

bool is_lost_time(const Trace& trace, SpanId i) {
  return trace.kind(i) == SpanKind::run && trace.cut(i).at_start && trace.cut(i).at_end && trace.run(i) == 0;
}

Records count_records(const Trace& trace) {
  Records records{.received = trace.size()};
  std::vector<bool> is_known(trace.sites().size());  // replays whose kernels are
  for (const ReplayPart& part : trace.parts()) is_known[part.replay] = true;
  const std::vector<bool> in_op = spans_in_ops(trace);
  for (SpanId i = 0; i < trace.size(); ++i) {
    const SpanKind kind = trace.kind(i);
    if (is_lost_time(trace, i)) {  // nobody wrote it
      records.received -= 1;
      continue;
    }
    records.on_host += trace.on_gpu(i) ? 0 : 1;
    if (!trace.on_gpu(i) || (kind != SpanKind::kernel && kind != SpanKind::replay)) continue;
    const auto ns = static_cast<double>(trace.duration(i));
    records.gpu_ns += ns;
    const bool is_attributed = kind == SpanKind::replay ? is_known[trace.site_id(i)] : trace.site(i).op != 0;
    if (is_attributed || (trace.cause(i) != kNone && in_op[trace.cause(i)])) continue;
    records.unattributed += 1;
    records.unlaunched += trace.cause(i) == kNone ? 1 : 0;
    records.unattributed_ns += ns;
  }
  for (const Note& note : trace.notes()) {
    switch (note.kind) {
      case Note::Kind::other:
      case Note::Kind::estimated:
      case Note::Kind::span_cost: break;
      case Note::Kind::dropped: records.dropped += note.count; break;
      case Note::Kind::timeless: records.timeless += note.count; break;
      case Note::Kind::outside: records.outside += note.count; break;
    }
  }
  return records;
}

}  // namespace paoding::profile
