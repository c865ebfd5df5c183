// SPDX-License-Identifier: Apache-2.0
// What stands beside the spans of a trace: processes, arguments that some of them carry, flows between them.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "profile/trace.h"

namespace paoding::profile {

std::string_view to_string(Source source) {
  switch (source) {
    case Source::paoding: return "paoding";
    case Source::pytorch: return "PyTorch (Kineto)";
    case Source::jax: return "JAX (XLA)";
    case Source::tensorflow: return "TensorFlow";
    case Source::nsight_systems: return "Nsight Systems";
    case Source::perfetto: return "Perfetto";
    case Source::rocprof: return "rocprof";
    case Source::chrome: return "Chrome's trace format";
  }
  return "?";
}

ProcessId Trace::add_process(int pid, int rank, std::string_view name, Source source) {
  const Process process{pid, rank, intern(name), source};
  const auto found = std::ranges::find(processes_, process);
  const auto id = static_cast<ProcessId>(found - processes_.begin());
  if (found == processes_.end()) processes_.push_back(process);
  return id;
}

void Trace::add_anchor(ProcessId process, std::string_view host, const SharedClocks& at) {
  PD_ASSERT(process == 0 || process < processes_.size(), "an anchor names a process that is not there");
  PD_ASSERT(anchors_.empty() || anchors_.back().process <= process, "anchors are added process by process");
  anchors_.push_back({process, intern(host), at.ns, at.system_ns, at.wall_ns});
}

Window Trace::window_of(ProcessId id) const {
  const auto own = std::ranges::equal_range(anchors_, id, {}, &ClockAnchor::process);
  if (processes_.size() < 2 || own.empty()) return {window_start_, window_end_};
  const std::int64_t start = std::clamp(own.front().ns, window_start_, window_end_);
  return {start, std::clamp(own.back().ns, start, window_end_)};
}

void Trace::set_rank(int rank) {
  if (processes_.empty()) processes_.emplace_back();
  for (Process& process : processes_) process.rank = rank;
}

std::string Trace::process_name(ProcessId id) const {
  if (processes_.size() < 2) return "";
  const Process& process = processes_[id];
  return process.rank >= 0 ? fmt::format("rank {}", process.rank) : fmt::format("process {}", process.pid);
}

std::string Trace::track_name(TrackId id) const {
  const std::string process = process_name(tracks_[id].process);
  return fmt::format("{}{}{}", process, process.empty() ? "" : " ", text(tracks_[id].name));
}

ColumnId Trace::add_column(std::string_view name, ArgumentType type) {
  const StringId id = intern(name);
  const auto same = [&](const ArgumentColumn& column) { return column.name == id && column.type == type; };
  const auto found = std::ranges::find_if(columns_, same);
  const auto column = static_cast<ColumnId>(found - columns_.begin());
  if (found == columns_.end()) columns_.push_back({.name = id, .type = type});
  return column;
}

void Trace::add_bits(SpanId span, ColumnId column, ArgumentType type, std::uint64_t bits) {
  PD_ASSERT(span < size() && column < columns_.size() && columns_[column].type == type,
            "an argument of a span or a column that is not there, or of another type");
  columns_[column].of.push_back(span);
  columns_[column].bits.push_back(bits);
}

void Trace::add_argument(SpanId span, ColumnId column, std::int64_t value) {
  add_bits(span, column, ArgumentType::integer, static_cast<std::uint64_t>(value));
}

void Trace::add_argument(SpanId span, ColumnId column, double value) {
  add_bits(span, column, ArgumentType::real, std::bit_cast<std::uint64_t>(value));
}

void Trace::add_argument(SpanId span, ColumnId column, std::string_view value) {
  add_bits(span, column, ArgumentType::text, intern(value));
}

void Trace::add_text_argument(SpanId span, ColumnId column, StringId value) {
  add_bits(span, column, ArgumentType::text, value);
}

void Trace::add_argument_bits(SpanId span, ColumnId column, std::uint64_t bits) {
  PD_ASSERT(column < columns_.size(), "an argument of a column that is not there");
  add_bits(span, column, columns_[column].type, bits);
}

void Trace::add_flow(SpanId from, SpanId to) {
  PD_ASSERT(from < size() && to < size(), "a flow between spans that are not there");
  flows_.push_back({from, to});
}

namespace {

// The last of each span's arguments, in the order of the spans: where most spans have one, by their places.
void sort_many(ArgumentColumn& column, std::size_t spans) {
  std::vector<std::uint32_t> last(spans, kNone);
  for (std::size_t i = 0; i < column.of.size(); ++i) last[column.of[i]] = static_cast<std::uint32_t>(i);
  std::vector<std::uint64_t> bits;
  bits.reserve(column.bits.size());
  column.of.clear();
  for (SpanId span = 0; span < spans; ++span) {
    if (last[span] == kNone) continue;
    column.of.push_back(span);
    bits.push_back(column.bits[last[span]]);
  }
  column.bits = std::move(bits);
}

void sort_few(ArgumentColumn& column) {
  std::vector<std::size_t> order(column.of.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return column.of[i]; });
  std::vector<SpanId> of;
  std::vector<std::uint64_t> bits;
  for (const std::size_t i : order) {
    if (of.empty() || of.back() != column.of[i]) {
      of.push_back(column.of[i]);
      bits.emplace_back();
    }
    bits.back() = column.bits[i];
  }
  column.of = std::move(of), column.bits = std::move(bits);
}

void sort_flows(std::vector<Flow>& flows, std::size_t spans) {
  if (std::ranges::is_sorted(flows)) return;
  if (flows.size() < spans / 8) {
    std::ranges::sort(flows);
    return;
  }
  std::vector<std::uint32_t> place(spans + 1);
  for (const Flow& flow : flows) ++place[flow.from + 1];
  std::partial_sum(place.begin(), place.end(), place.begin());
  std::vector<Flow> sorted(flows.size());
  for (const Flow& flow : flows) sorted[place[flow.from]++] = flow;
  for (auto from = sorted.begin(); from != sorted.end();) {
    const auto to = std::find_if(from, sorted.end(), [&](const Flow& flow) { return flow.from != from->from; });
    std::sort(from, to);
    from = to;
  }
  flows = std::move(sorted);
}

}  // namespace

void Trace::sort_columns() {
  for (ArgumentColumn& column : columns_) {
    if (std::ranges::adjacent_find(column.of, std::ranges::greater_equal()) == column.of.end())
      continue;  // as they are to be
    if (column.of.size() < size() / 8 || column.of.size() >= kNone) {
      sort_few(column);
    } else {
      sort_many(column, size());
    }
  }
  sort_flows(flows_, size());
  const auto again = std::ranges::unique(flows_);
  flows_.erase(again.begin(), again.end());
}

}  // namespace paoding::profile
