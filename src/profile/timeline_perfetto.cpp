// SPDX-License-Identifier: Apache-2.0
// Perfetto's protobuf, by hand: a handful of messages does not need a compiler of them. The numbers of fields are those
// of trace_packet.proto, track_event.proto, track_descriptor.proto and interned_data.proto.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "profile/protobuf.h"
#include "profile/timeline_rows.h"

namespace paoding::profile {
namespace {

class Perfetto {
 public:
  Perfetto(const Trace& trace, const Sink& sink)
      : trace_(trace), sink_(sink), rows_(rows_of(trace)), arguments_(trace) {
    for (SpanId i = 0; i < trace.size(); ++i) {
      if (trace.cause(i) != kNone) arrows_.push_back({trace.cause(i), i});
    }
    arrows_.insert(arrows_.end(), trace.flows().begin(), trace.flows().end());
    for (std::uint32_t n = 0; n < arrows_.size(); ++n) {
      ends_.push_back({arrows_[n].from, n});
      ends_.push_back({arrows_[n].to, n});
    }
    std::ranges::sort(ends_);
  }

  void write() {
    describe_processes();
    for (SpanId i = 0; i < trace_.size(); ++i) {
      const std::uint64_t track = track_of(i);
      const auto [open, is_new] = open_.try_emplace(track);
      if (is_new) describe_track(i, track);
      close_until(track, trace_.start(i));
      begin(i, track);
      if (trace_.kind(i) != SpanKind::instant) open->second.push_back(i);
    }
    for (const auto& [track, open] : open_) close_until(track, trace_.window_end());
    add_counters();
    flush(0);
  }

 private:
  enum : std::uint32_t { kPacket = 1 };
  enum : std::uint32_t {
    kTimestamp = 8,
    kSequence = 10,
    kTrackEvent = 11,
    kInterned = 12,
    kFlags = 13,
    kDescriptor = 60
  };
  enum : std::uint32_t { kUuid = 1, kName = 2, kProcess = 3, kParent = 5, kCounter = 8 };  // TrackDescriptor
  enum : std::uint32_t {
    kAnnotation = 4,
    kCategories = 22,
    kType = 9,
    kNameIid = 10,
    kTrackUuid = 11,
    kValue = 30,
    kFlow = 47
  };
  enum : std::uint64_t { kSliceBegin = 1, kSliceEnd = 2, kInstant = 3, kCounterValue = 4, kSizeBytes = 3 };
  enum : std::uint64_t { kCleared = 1, kNeeded = 2 };  // of the incremental state: names that were said before

  // 0 is everybody's.
  static std::uint64_t process_of(ProcessId process, int device) {
    return 1'000'000'000'000 * process + static_cast<std::uint64_t>(device + 2);
  }
  std::uint64_t track_of(SpanId i) const {
    return 1'000'000 + std::uint64_t{trace_.track_id(i)} * kRowsPerTrack + rows_[i];
  }

  static std::uint64_t counter_track(CounterId counter) { return 500'000 + std::uint64_t{counter}; }

  void packet(ProtobufMessage& message) {
    message.number(kSequence, 1);
    ProtobufMessage all;
    all.message(kPacket, message);
    out_ += all.bytes();
    flush(std::size_t{1} << 20);
  }
  void flush(std::size_t most) {
    if (out_.size() <= most) return;
    sink_(out_);
    out_.clear();
  }

  void describe_processes() {
    std::set<std::pair<ProcessId, int>> places;
    for (const Track& track : trace_.tracks()) places.insert({track.process, track.device});
    for (const Counter& counter : trace_.counters()) places.insert({counter.process, counter.device});
    for (const auto& [id, device] : places) {
      const std::string name = place_name(trace_, id, device);
      ProtobufMessage process, descriptor, message;
      process.number(1, std::uint64_t{id} * kProcessesEach + static_cast<std::uint64_t>(device + 2));
      process.text(6, name);
      descriptor.number(kUuid, process_of(id, device));
      descriptor.text(kName, name);
      descriptor.message(kProcess, process);
      message.message(kDescriptor, descriptor);
      message.number(kFlags, kCleared);
      packet(message);
    }
  }

  void describe_track(SpanId i, std::uint64_t track) {
    const Track& own = trace_.track(i);
    std::string name(trace_.text(own.name));
    if (rows_[i] > 0) name += " (" + std::to_string(rows_[i] + 1) + ")";
    ProtobufMessage descriptor, message;
    descriptor.number(kUuid, track);
    descriptor.text(kName, name);
    descriptor.number(kParent, process_of(own.process, own.device));
    message.message(kDescriptor, descriptor);
    packet(message);
  }

  void add_counters() {
    const std::vector<Sample>& samples = trace_.samples();
    for (std::size_t i = 0; i < samples.size(); ++i) {
      if (i == 0 || samples[i - 1].counter != samples[i].counter) describe_counter(samples[i].counter);
      count(samples[i]);
      const bool is_last = i + 1 == samples.size() || samples[i + 1].counter != samples[i].counter;
      if (is_last) count(at_the_end(trace_, samples[i]));
    }
  }

  void describe_counter(CounterId id) {
    const Counter& counter = trace_.counters()[id];
    ProtobufMessage unit, descriptor, message;
    unit.number(3, kSizeBytes);
    descriptor.number(kUuid, counter_track(id));
    descriptor.text(kName, "memory: " + std::string(trace_.text(counter.name)));
    descriptor.number(kParent, process_of(counter.process, counter.device));
    descriptor.message(kCounter, unit);
    message.message(kDescriptor, descriptor);
    packet(message);
  }

  void count(const Sample& sample) {
    ProtobufMessage event, message;
    event.number(kType, kCounterValue);
    event.number(kTrackUuid, counter_track(sample.counter));
    event.number(kValue, static_cast<std::uint64_t>(sample.value));
    message.number(kTimestamp, time(sample.ns));
    message.message(kTrackEvent, event);
    packet(message);
  }

  void close_until(std::uint64_t track, std::int64_t ns) {
    std::vector<SpanId>& open = open_[track];
    for (; !open.empty() && trace_.end(open.back()) <= ns; open.pop_back()) {
      ProtobufMessage event, message;
      event.number(kType, kSliceEnd);
      event.number(kTrackUuid, track);
      message.number(kTimestamp, time(trace_.end(open.back())));
      message.message(kTrackEvent, event);
      packet(message);
    }
  }

  static std::uint64_t time(std::int64_t ns) { return ns < 0 ? 0 : static_cast<std::uint64_t>(ns); }

  void begin(SpanId i, std::uint64_t track) {
    const Site& site = trace_.site(i);
    ProtobufMessage event, message;
    std::string name(shown(trace_.name(i)));
    if (name.empty()) name = to_string(site.kind);
    const auto [found, is_new] = names_.try_emplace(name, names_.size() + 1);
    event.number(kType, site.kind == SpanKind::instant ? kInstant : kSliceBegin);
    event.number(kTrackUuid, track);
    event.number(kNameIid, found->second);
    event.text(kCategories, to_string(site.kind));
    annotate(event, "op", trace_.text(site.op));
    annotate(event, "scope", trace_.text(site.scope));
    annotate(event, "instance", trace_.text(site.instance));
    annotate(event, "kernel", trace_.text(site.kernel));
    annotate(event, "operands", shown(trace_.text(site.shapes)));
    annotate(event, "launch", to_string(site.launch));
    annotate(event, "run", trace_.run(i));
    annotate(event, "copy", to_string(site.copy));
    annotate(event, "bytes", static_cast<std::uint64_t>(std::max<std::int64_t>(trace_.bytes(i), 0)));
    annotate(event, "flops", static_cast<std::uint64_t>(std::clamp(trace_.flops(i), 0.0, 1e18)));
    std::string members;
    for (auto m = site.members_begin; m < std::min(site.members_end, site.members_begin + kMostMembers); ++m) {
      members += (members.empty() ? "" : ", ") + std::string(shown(trace_.text(trace_.members()[m].op)));
    }
    annotate(event, "members", members);
    arguments_.for_each(i, [&](const ArgumentColumn& column, std::size_t at) { annotate(event, column, at); });
    // An arrow has a number of its own: of several with one number a viewer makes a chain.
    for (; next_end_ < ends_.size() && ends_[next_end_].span == i; ++next_end_) {
      event.fixed64(kFlow, std::uint64_t{ends_[next_end_].arrow} + 1);
    }
    message.number(kTimestamp, time(trace_.start(i)));
    message.message(kTrackEvent, event);
    if (is_new) {
      ProtobufMessage entry, interned;
      entry.number(1, found->second);
      entry.text(2, name);
      interned.message(2, entry);
      message.message(kInterned, interned);
    }
    message.number(kFlags, kNeeded);
    packet(message);
  }

  static void annotate(ProtobufMessage& event, std::string_view key, std::string_view value) {
    if (value.empty()) return;
    ProtobufMessage annotation;
    annotation.text(10, key);
    annotation.text(6, shown(value));
    event.message(kAnnotation, annotation);
  }
  static void annotate(ProtobufMessage& event, std::string_view key, std::uint64_t value) {
    if (value == 0) return;
    ProtobufMessage annotation;
    annotation.text(10, key);
    annotation.number(3, value);
    event.message(kAnnotation, annotation);
  }

  void annotate(ProtobufMessage& event, const ArgumentColumn& column, std::size_t at) const {
    ProtobufMessage annotation;
    annotation.text(10, argument_name(trace_, column));
    switch (column.type) {
      case ArgumentType::integer: annotation.number(4, static_cast<std::uint64_t>(column.integer(at))); break;
      case ArgumentType::real: annotation.fixed64(5, std::bit_cast<std::uint64_t>(column.real(at))); break;
      case ArgumentType::text: annotation.text(6, shown(trace_.text(column.text(at)))); break;
    }
    event.message(kAnnotation, annotation);
  }

  struct ArrowEnd {
    SpanId span;
    std::uint32_t arrow;
    auto operator<=>(const ArrowEnd&) const = default;
  };

  const Trace& trace_;
  const Sink& sink_;
  const std::vector<std::uint32_t> rows_;
  ArgumentsInOrder arguments_;
  std::vector<Flow> arrows_;    // from causes, and flows
  std::vector<ArrowEnd> ends_;  // of those, by span
  std::size_t next_end_ = 0;
  std::map<std::uint64_t, std::vector<SpanId>> open_;  // per track
  std::unordered_map<std::string, std::uint64_t> names_;
  std::string out_;
};

}  // namespace

void write_perfetto(const Trace& trace, const Sink& sink) { Perfetto(trace, sink).write(); }

}  // namespace paoding::profile
