// SPDX-License-Identifier: Apache-2.0
#include "trace/sink.h"

#include <fmt/format.h>

#include <cstdlib>
#include <limits>

namespace paoding::trace {
namespace {

using namespace profile;

constexpr std::int64_t kLongest = std::int64_t{1} << 61;  // of times: sums of two are times still

}  // namespace

std::size_t TraceSink::PlaceHash::operator()(const Place& place) const {
  std::size_t hash = static_cast<std::size_t>(place.kind) << 3 | static_cast<std::size_t>(place.copy) << 1;
  hash |= place.async ? 1 : 0;
  for (const StringId part : {place.name, place.op, place.scope, place.instance, place.kernel}) {
    hash = (hash ^ part) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 29;
  }
  return hash;
}

ProcessId TraceSink::process(std::int64_t pid, int rank, std::string_view name) {
  const bool is_one = pid >= 0 && pid <= std::numeric_limits<std::int32_t>::max();
  return trace_.add_process(is_one ? static_cast<int>(pid) : 0, rank < 0 ? -1 : rank, name, source_);
}

TrackId TraceSink::thread(ProcessId process, std::int64_t tid, std::string_view name) {
  const auto [found, is_new] = threads_.try_emplace({process, tid}, kNone);
  if (is_new) found->second = trace_.add_track(TrackKind::thread, fmt::format("thread {}", tid), -1, process);
  if (!name.empty()) trace_.rename_track(found->second, name);
  return found->second;
}

TrackId TraceSink::stream(ProcessId process, std::int64_t device, std::int64_t stream, std::string_view name) {
  const auto [found, is_new] = streams_.try_emplace({process, device, stream}, kNone);
  if (is_new) {
    constexpr std::int64_t kMostDevices = 4096;
    const bool is_device = device >= 0 && device < kMostDevices;
    found->second = trace_.add_track(TrackKind::stream, fmt::format("stream {}", stream),
                                     is_device ? static_cast<int>(device) : 0, process);
  }
  if (!name.empty()) trace_.rename_track(found->second, name);
  return found->second;
}

SiteId TraceSink::site(const Place& place) {
  const auto [found, is_new] = sites_.try_emplace(place, kNone);
  if (is_new) {
    const auto text_of = [&](StringId id) { return std::string(trace_.text(id)); };
    found->second = trace_.add_site({.name = text_of(place.name),
                                     .op = text_of(place.op),
                                     .scope = text_of(place.scope),
                                     .instance = text_of(place.instance),
                                     .kernel = text_of(place.kernel),
                                     .kind = place.kind,
                                     .copy = place.copy,
                                     .async = place.async});
  }
  return found->second;
}

bool TraceSink::is_sound(std::int64_t start_ns, std::int64_t duration_ns) {
  if (duration_ns < 0) {
    lose("events that end before they start", 1, Note::Kind::timeless);
    return false;
  }
  if (start_ns <= -kLongest || start_ns >= kLongest || duration_ns >= kLongest) {
    lose("events whose times are beyond all reason", 1, Note::Kind::timeless);
    return false;
  }
  constexpr std::size_t kMostSpans = 0xf0000000;  // numbers of spans have 32 bits
  if (trace_.size() >= kMostSpans) {
    lose("events beyond those that one report holds", 1, Note::Kind::dropped);
    return false;
  }
  return true;
}

SpanId TraceSink::add(const Span& span) { return is_sound(span.start_ns, span.duration_ns) ? trace_.add(span) : kNone; }

std::uint32_t TraceSink::correlation(std::uint64_t number) {
  constexpr std::uint32_t kFirst = 0xc0000000;  // large ones are counted from here on
  if (number < kFirst) return static_cast<std::uint32_t>(number);
  const auto next = static_cast<std::uint32_t>(kFirst + large_correlations_.size() % (0xffffffffu - kFirst));
  return large_correlations_.try_emplace(number, next).first->second;
}

void TraceSink::lose(std::string_view what, std::uint64_t count, Note::Kind kind) {
  if (count == 0) return;
  auto found = lost_.find(what);
  if (found == lost_.end()) found = lost_.emplace(std::string(what), std::pair(std::uint64_t{0}, kind)).first;
  found->second.first += count;
}

// Dependent launches and branches of graphs overlap by microseconds; more is a time that was not stamped right.
std::uint64_t TraceSink::count_too_long() const {
  constexpr std::int64_t kMost = 1'000'000;
  std::uint64_t count = 0;
  for (SpanId i = 0; i + 1 < trace_.size(); ++i) {
    const bool follows = trace_.on_gpu(i) && trace_.track_id(i) == trace_.track_id(i + 1);
    const bool is_of_same = trace_.cause(i) != kNone && trace_.cause(i) == trace_.cause(i + 1);
    if (follows && !is_of_same && trace_.end(i) > trace_.start(i + 1) + kMost) ++count;
  }
  return count;
}

Trace TraceSink::finish() {
  trace_.finish();
  std::uint64_t unlaunched = 0;
  for (SpanId i = 0; i < trace_.size(); ++i) {
    const SpanKind kind = trace_.kind(i);
    const bool is_work = kind == SpanKind::kernel || kind == SpanKind::memcpy || kind == SpanKind::memset;
    if (trace_.on_gpu(i) && is_work && trace_.cause(i) == kNone) ++unlaunched;
  }
  lose("spans of GPUs whose launch is not in the file", unlaunched);
  lose("spans of GPUs that last for more than 1 ms beyond the start of what follows on their stream", count_too_long());
  for (const auto& [what, count] : lost_) trace_.add_note(what, count.first, count.second);
  lost_.clear();
  return std::move(trace_);
}

}  // namespace paoding::trace
