// SPDX-License-Identifier: Apache-2.0
#include "profile/page_columns.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <numeric>
#include <thread>

#include "profile/page_packing.h"
#include "profile/timeline_rows.h"

namespace paoding::profile {

namespace {

// The most bytes of a span in the page, as base64, where there are many spans.
constexpr double kMostColumnBytesPerSpan = 2.3;
constexpr std::size_t kAlwaysExact = std::size_t{1} << 20;  // bytes
// A page computes in doubles.
constexpr std::int64_t kMostQuanta = std::int64_t{1} << 52;

void append_column(std::string* to, const VarintBytes& column) {
  VarintBytes length;
  length.add(column.bytes().size());
  *to += length.bytes();
  *to += column.bytes();
}

}  // namespace

SiteNumbers::SiteNumbers(const Trace& trace) : number(trace.sites().size(), 0) {
  std::vector<std::uint64_t> count(trace.sites().size(), 0);
  for (SpanId i = 0; i < trace.size(); ++i) ++count[trace.site_id(i)];
  for (SiteId i = 0; i < count.size(); ++i) {
    if (count[i] > 0) site.push_back(i);
  }
  std::ranges::stable_sort(site, std::greater{}, [&](SiteId i) { return count[i]; });
  for (std::uint32_t i = 0; i < site.size(); ++i) number[site[i]] = i;
}

Depths::Depths(const Trace& trace) : depth(trace.size(), 0) {
  std::vector<SpanId> last;  // at every depth of the track
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (i == 0 || trace.track_id(i) != trace.track_id(i - 1)) last.clear();
    SpanId parent = trace.parent(i);
    if (parent != kNone && (parent >= i || trace.track_id(parent) != trace.track_id(i))) parent = kNone;
    const std::uint32_t mine = parent == kNone ? 0 : std::min<std::uint32_t>(depth[parent] + 1u, kMost);
    depth[i] = static_cast<std::uint16_t>(mine);
    const SpanId expected = mine == 0 ? kNone : mine <= last.size() ? last[mine - 1] : kNone;
    if (expected != parent) others.emplace_back(i, parent == kNone ? 0 : parent + 1);
    last.resize(std::max<std::size_t>(last.size(), mine + 1), kNone);
    last[mine] = i;
  }
}

SpanColumns::SpanColumns(const Trace& trace) : trace_(trace), sites_(trace), depths_(trace) {
  while (trace.wall_ns() / quantum_ns_ >= kMostQuanta) quantum_ns_ *= 10;
  const std::size_t most =
      std::max(kAlwaysExact, static_cast<std::size_t>(kMostColumnBytesPerSpan * static_cast<double>(trace.size())));
  const std::size_t blocks = (trace.size() + kSpansPerBlock - 1) / kSpansPerBlock;
  const std::size_t some = std::min<std::size_t>(blocks, 3);
  // Whether all spans fit by so many ns, as far as some of them tell.
  const auto fits = [&](std::int64_t quantum_ns) {
    quantum_ns_ = quantum_ns;
    std::size_t bytes = 0;
    for (std::size_t k = 0; k < some; ++k) bytes += block(k * blocks / some * kSpansPerBlock).size();
    return bytes * blocks <= most * some;
  };
  constexpr std::int64_t kCoarsest = 1000;
  const std::int64_t finest = quantum_ns_;
  std::int64_t quantum = finest;
  while (quantum < kCoarsest && !fits(quantum)) quantum *= 10;
  if (quantum > finest) {
    for (const std::int64_t part : {5, 2}) {
      if (!fits(quantum / part)) continue;
      quantum /= part;
      break;
    }
  }
  quantum_ns_ = quantum;
}

std::int64_t SpanColumns::quanta(std::int64_t ns) const {
  const auto from_start = static_cast<std::uint64_t>(difference(ns, trace_.window_start()));
  const auto quantum = static_cast<std::uint64_t>(quantum_ns_);
  return static_cast<std::int64_t>((from_start + quantum / 2) / quantum);
}

std::string SpanColumns::block(std::size_t first) const {
  const std::size_t end = std::min(trace_.size(), first + kSpansPerBlock);
  VarintBytes site, start, duration, depth;
  for (VarintBytes* column : {&site, &start, &duration, &depth}) column->reserve((end - first) * 2);
  std::vector<std::int64_t> ends;  // of the last span of every depth
  std::int64_t start_before = 0;
  std::uint32_t depth_before = 0;
  for (auto i = static_cast<SpanId>(first); i < end; ++i) {
    const std::uint32_t mine = depths_.depth[i];
    if (i == first || trace_.track_id(i) != trace_.track_id(i - 1)) {
      ends.clear();
      start_before = 0;
      depth_before = mine;
    }
    if (ends.size() <= mine) ends.resize(mine + 1, 0);
    const std::int64_t from = quanta(trace_.start(i)), to = quanta(trace_.end(i));
    site.add(sites_.number[trace_.site_id(i)]);
    start.add_signed(from - (mine > depth_before ? start_before : ends[mine]));
    duration.add(static_cast<std::uint64_t>(to - from));
    depth.add(mine);
    ends[mine] = to;
    start_before = from;
    depth_before = mine;
  }
  std::string bytes;
  for (const VarintBytes* column : {&site, &start, &duration, &depth}) append_column(&bytes, *column);
  return base64(deflated(bytes));
}

std::vector<std::string> SpanColumns::blocks() const {
  std::vector<std::string> all((trace_.size() + kSpansPerBlock - 1) / kSpansPerBlock);
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i; (i = next.fetch_add(1)) < all.size();) all[i] = block(i * kSpansPerBlock);
  };
  const std::size_t threads = std::min<std::size_t>({all.size(), std::thread::hardware_concurrency(), 8});
  std::vector<std::future<void>> others;
  for (std::size_t i = 1; i < threads; ++i) others.push_back(std::async(std::launch::async, work));
  work();
  for (std::future<void>& other : others) other.get();
  return all;
}

std::string SpanColumns::other_parents() const {
  VarintBytes span, parent;
  SpanId before = 0;
  for (const auto& [of, around] : depths_.others) {
    span.add(of - before);
    parent.add(around);
    before = of;
  }
  std::string bytes;
  append_column(&bytes, span);
  append_column(&bytes, parent);
  return bytes;
}

std::string cause_column(const Trace& trace) {
  VarintBytes of, by;
  SpanId before = 0;
  std::int64_t cause_before = 0;
  for (SpanId i = 0; i < trace.size(); ++i) {
    const SpanId cause = trace.cause(i);
    if (cause == kNone) continue;
    of.add(i - before);
    by.add_signed(std::int64_t{cause} - cause_before);
    before = i;
    cause_before = cause;
  }
  std::string bytes;
  append_column(&bytes, of);
  append_column(&bytes, by);
  return bytes;
}

std::string flow_column(const Trace& trace) {
  VarintBytes from, to;
  Flow before{0, 0};
  for (const Flow& flow : trace.flows()) {
    from.add_signed(std::int64_t{flow.from} - std::int64_t{before.from});
    to.add_signed(std::int64_t{flow.to} - std::int64_t{before.to});
    before = flow;
  }
  std::string bytes;
  append_column(&bytes, from);
  append_column(&bytes, to);
  return bytes;
}

std::string sample_column(const Trace& trace, const SpanColumns& spans, std::size_t begin, std::size_t end) {
  VarintBytes when, what;
  std::int64_t at = 0, value = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const Sample& sample = trace.samples()[i];
    when.add_signed(spans.quanta(sample.ns) - at);
    what.add_signed(difference(sample.value, value));
    at = spans.quanta(sample.ns);
    value = sample.value;
  }
  std::string bytes;
  append_column(&bytes, when);
  append_column(&bytes, what);
  return bytes;
}

std::string argument_column(const ArgumentColumn& column, const Trace& trace, std::vector<std::string>* texts) {
  VarintBytes of, what;
  std::string reals;
  std::map<StringId, std::uint64_t> numbers;
  SpanId before = 0;
  std::int64_t value_before = 0;
  for (std::size_t i = 0; i < column.of.size(); ++i) {
    of.add(column.of[i] - before);
    before = column.of[i];
    switch (column.type) {
      case ArgumentType::integer:
        what.add_signed(difference(column.integer(i), value_before));
        value_before = column.integer(i);
        break;
      case ArgumentType::real:
        for (int b = 0; b < 64; b += 8) reals.push_back(static_cast<char>(column.bits[i] >> b));
        break;
      case ArgumentType::text: {
        const auto [found, is_new] = numbers.try_emplace(column.text(i), texts->size());
        if (is_new) texts->emplace_back(shown(trace.text(column.text(i))));
        what.add(found->second);
        break;
      }
    }
  }
  std::string bytes;
  append_column(&bytes, of);
  append_column(&bytes, what);
  return bytes + reals;
}

}  // namespace paoding::profile
