// SPDX-License-Identifier: Apache-2.0
#include "trace/perfetto.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "trace/api_names.h"
#include "trace/perfetto_events.h"
#include "trace/sink.h"

namespace paoding::trace {
namespace {

using namespace profile;
using Type = PerfettoEvent::Type;

// The kind that paoding's own traces give as the category.
std::optional<SpanKind> own_kind(std::string_view category) {
  for (int kind = 0; kind < kSpanKinds; ++kind) {
    if (to_string(static_cast<SpanKind>(kind)) == category) return static_cast<SpanKind>(kind);
  }
  return {};
}

bool contains_lowered(std::string_view text, std::string_view part) {
  return std::ranges::search(text, part, {}, [](char c) {
           return std::tolower(static_cast<unsigned char>(c));
         }).size() == part.size();
}

// The number behind a word, "GPU 3" and "AGENT [3]"; nothing where the word is missing.
std::optional<std::int64_t> track_number(std::string_view text, std::string_view word) {
  const std::size_t at = text.find(word);
  if (at == text.npos) return {};
  std::size_t digit = at + word.size();
  while (digit < text.size() && (text[digit] == ' ' || text[digit] == '[' || text[digit] == '#')) ++digit;
  std::int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data() + digit, text.data() + text.size(), number);
  return problem == std::errc{} && number >= 0 && number < 4096 ? std::optional(number) : std::nullopt;
}

// What a category says of the events that have it.
struct CategoryFacts {
  std::optional<SpanKind> own;  // as paoding's own traces have it
  bool is_copy = false, is_fill = false, is_kernel = false, is_op = false, is_frame = false, is_range = false;

  explicit CategoryFacts(std::string_view category)
      : own(own_kind(category)),
        is_copy(contains_lowered(category, "memory_copy") || contains_lowered(category, "memcpy")),
        is_fill(contains_lowered(category, "memset")),
        is_kernel(contains_lowered(category, "kernel")),
        is_op(contains_lowered(category, "cpu_op")),
        is_frame(contains_lowered(category, "python_function")),
        is_range(contains_lowered(category, "annotation") || contains_lowered(category, "marker")) {}

  // Of a GPU's work, by the categories of rocprofv3 and others.
  std::optional<SpanKind> gpu_kind(std::string_view name) const {
    if (is_copy || (is_kernel && name.starts_with("Memcpy"))) return SpanKind::memcpy;
    if (is_fill || (is_kernel && name.starts_with("Memset"))) return SpanKind::memset;
    return is_kernel ? std::optional(SpanKind::kernel) : std::nullopt;
  }
};

// Facts about texts, each found once: events of one text come one behind the other.
template <class Facts>
class Known {
 public:
  template <class Make>
  Facts& of(std::string_view text, Make&& make) {
    if (near_ != nullptr && text.data() == near_text_.data() && text.size() == near_text_.size()) return *near_;
    auto found = all_.find(text);
    if (found == all_.end()) found = all_.emplace(text, make(text)).first;
    near_ = &found->second;
    near_text_ = text;
    return *near_;
  }

 private:
  std::unordered_map<std::string_view, Facts> all_;
  Facts* near_ = nullptr;
  std::string_view near_text_;
};

class PerfettoReader {
 public:
  explicit PerfettoReader(PerfettoEvents from) : from_(std::move(from)), is_own_(is_of_paoding()), sink_(source()) {}

  Trace read() {
    sink_.trace().reserve(from_.events.size() / 2 + from_.stages.size());
    find_gpu_tracks();
    if (is_in_order()) {
      for (std::uint32_t i = 0; i < from_.events.size(); ++i) take(i, from_.events[i]);
    } else {
      std::vector<std::pair<std::int64_t, std::uint32_t>> order;
      order.reserve(from_.events.size());
      for (std::uint32_t i = 0; i < from_.events.size(); ++i) order.emplace_back(from_.events[i].ns, i);
      std::ranges::sort(order);
      for (const auto& [ns, i] : order) take(i, from_.events[i]);
    }
    close_all();
    for (const PerfettoGpuStage& stage : from_.stages) add_stage(stage);
    add_flows();
    say_losses();
    return sink_.finish();
  }

 private:
  // Where every span says one of our kinds.
  bool is_of_paoding() {
    bool is_own = false;
    for (const PerfettoEvent& event : from_.events) {
      if (event.type == Type::end || event.type == Type::counter) continue;
      if (!category(event).own) return false;
      is_own = true;
    }
    return is_own;
  }
  Source source() const { return is_own_ ? Source::paoding : Source::perfetto; }

  const CategoryFacts& category(const PerfettoEvent& event) {
    return categories_.of(event.category, [](std::string_view text) { return CategoryFacts(text); });
  }

  // Whether the events of every track come in the order of their times.
  bool is_in_order() {
    bool is_sorted = true;
    for (const PerfettoEvent& event : from_.events) {
      std::int64_t& before = track_at(event.track).before_ns;
      is_sorted = is_sorted && event.ns >= before;
      before = event.ns;
      last_ns_ = std::max(last_ns_, event.ns);
    }
    return is_sorted;
  }

  // ---- tracks ----

  struct Track {
    TrackId id = kNone;
    bool is_gpu = false, has_gpu_work = false;
    std::int64_t before_ns = std::numeric_limits<std::int64_t>::min();  // the time of the event before
    std::vector<std::uint32_t> open;                                    // events that began
    std::optional<CounterId> counter;
    double value = 0;
  };

  // A thread is none. Of other tracks those are that have a GPU's work on them and are called so, or lie in something
  // that is.
  void find_gpu_tracks() {
    for (const PerfettoEvent& event : from_.events) {
      if (event.type == Type::end || event.type == Type::counter) continue;
      if (is_own_ || category(event).gpu_kind(event.name)) track_at(event.track).has_gpu_work = true;
    }
    for (auto& [uuid, track] : tracks_) {
      if (!track.has_gpu_work) continue;
      for_each_around(uuid, [&](const PerfettoTrack& at) {
        if (at.is_thread) return false;
        for (const std::string_view name : {at.name, at.process_name}) {
          track.is_gpu |= track_number(name, "GPU").has_value();
          if (!is_own_) {
            track.is_gpu |= contains_lowered(name, "stream") || contains_lowered(name, "queue") ||
                            contains_lowered(name, "agent") || contains_lowered(name, "copy") ||
                            contains_lowered(name, "gpu");
          }
        }
        return !track.is_gpu;
      });
    }
  }

  // The track and those that it lies in, as long as `take` wants more.
  template <class Take>
  void for_each_around(std::uint64_t uuid, Take&& take) const {
    constexpr int kMostDepth = 64;
    for (int depth = 0; depth < kMostDepth; ++depth) {
      const auto found = from_.tracks.find(uuid);
      if (found == from_.tracks.end() || !take(found->second)) return;
      if (found->second.parent == uuid || found->second.parent == 0) return;
      uuid = found->second.parent;
    }
  }

  ProcessId process_of(std::uint64_t uuid) {
    std::int64_t pid = 0;
    std::string_view name;
    for_each_around(uuid, [&](const PerfettoTrack& at) {
      if (at.pid < 0) return true;
      pid = at.pid;
      name = at.process_name;
      return false;
    });
    if (is_own_) return sink_.process(0);  // host and GPUs of one process stand there as several
    return sink_.process(pid, -1, name);
  }

  std::int64_t device_of(std::uint64_t uuid) const {
    std::int64_t device = 0;
    for_each_around(uuid, [&](const PerfettoTrack& at) {
      for (const std::string_view name : {at.name, at.process_name}) {
        for (const char* word : {"GPU", "AGENT", "device"}) {
          if (const auto number = track_number(name, word)) {
            device = *number;
            return false;
          }
        }
      }
      return true;
    });
    return device;
  }

  Track& track_at(std::uint64_t uuid) {
    if (near_track_ == nullptr || near_uuid_ != uuid) {
      near_track_ = &tracks_[uuid];
      near_uuid_ = uuid;
    }
    return *near_track_;
  }

  Track& track_of(std::uint64_t uuid) {
    Track& track = track_at(uuid);
    if (track.id != kNone) return track;
    const auto found = from_.tracks.find(uuid);
    const PerfettoTrack own = found == from_.tracks.end() ? PerfettoTrack{} : found->second;
    std::string name(own.name);
    if (name.empty() && !own.is_thread)
      name = own.process_name.empty() ? fmt::format("track {}", uuid) : std::string(own.process_name);
    std::int64_t number = next_track_++;
    if (is_own_) {
      // Our timelines give spans that cross on a track rows of their own: "stream 7 (2)".
      if (const std::size_t row = name.rfind(" ("); row != name.npos && name.ends_with(')')) name.resize(row);
      number = rows_.try_emplace({own.parent, name}, number).first->second;
    }
    if (track.is_gpu) {
      track.id = sink_.stream(process_of(uuid), device_of(uuid), number, name);
    } else {
      track.id = sink_.thread(process_of(uuid), own.is_thread ? own.tid : -1 - number, name);
    }
    return track;
  }

  // ---- events ----

  void take(std::uint32_t i, const PerfettoEvent& event) {
    switch (event.type) {
      case Type::begin: track_of(event.track).open.push_back(i); break;
      case Type::end: {
        Track& track = track_of(event.track);
        if (track.open.empty()) return sink_.lose("ends of events that did not begin");
        add(track.open.back(), event.ns);
        track.open.pop_back();
        break;
      }
      case Type::instant: add(i, event.ns); break;
      case Type::whole:
        if (std::int64_t end = 0; !__builtin_add_overflow(event.ns, event.value, &end)) add(i, end);
        break;
      case Type::counter: add_sample(event); break;
    }
  }

  // What has no end was under way until the last thing that is known.
  void close_all() {
    for (auto& [uuid, track] : tracks_) {
      for (; !track.open.empty(); track.open.pop_back()) {
        sink_.lose("events that did not end, cut where the trace does");
        const SpanId id = add(track.open.back(), std::max(last_ns_, from_.events[track.open.back()].ns));
        if (id != kNone) sink_.trace().set_cut(id, {.at_end = true});
      }
    }
  }

  SpanId add(std::uint32_t i, std::int64_t end) {
    const PerfettoEvent& event = from_.events[i];
    const Track& track = track_of(event.track);
    Span span{.track = track.id, .start_ns = event.ns};
    if (__builtin_sub_overflow(end, event.ns, &span.duration_ns)) span.duration_ns = -1;
    facts_ = {};
    for (auto a = event.arguments_begin; a < event.arguments_end; ++a) take_fact(from_.arguments[a]);
    Place place{.kind = kind_of(event, track.is_gpu),
                .name = sink_.text(event.name),
                .op = sink_.text(facts_.op),
                .scope = sink_.text(facts_.scope),
                .instance = sink_.text(facts_.instance),
                .kernel = sink_.text(facts_.kernel),
                .copy = copy_of(event)};
    if (!is_own_ && place.kind == SpanKind::kernel) place.kernel = place.name;
    if (place.kind == SpanKind::op && place.op == 0) place.op = place.name;
    span.site = sink_.site(place);
    span.run = facts_.run;
    span.correlation = sink_.correlation(event.correlation != 0 ? event.correlation : facts_.correlation);
    span.bytes = facts_.bytes;
    if (facts_.flops > 0) span.flops = facts_.flops;
    const SpanId id = sink_.add(span);
    if (id == kNone) return id;
    for (auto a = event.arguments_begin; a < event.arguments_end; ++a) {
      if (!is_fact(from_.arguments[a])) add_argument(id, from_.arguments[a]);
    }
    for (auto f = event.flows_begin; f < event.flows_end; ++f) flow_ends_.push_back({from_.flows[f], event.ns, id});
    return id;
  }

  SpanKind kind_of(const PerfettoEvent& event, bool is_gpu) {
    const CategoryFacts& facts = category(event);
    if (is_own_) return *facts.own;
    if (event.type == Type::instant) return SpanKind::instant;
    if (is_gpu) return facts.gpu_kind(event.name).value_or(SpanKind::host);
    const SpanKind call = calls_.of(event.name, kind_of_call);
    if (call != SpanKind::host) return call;
    if (event.name.starts_with("ProfilerStep#")) return SpanKind::step;
    if (facts.is_op) return SpanKind::op;
    if (facts.is_frame) return SpanKind::frame;
    return facts.is_range ? SpanKind::range : SpanKind::host;
  }

  Copy copy_of(const PerfettoEvent& event) const {
    for (int copy = 0; copy <= static_cast<int>(Copy::host_to_host); ++copy) {
      if (!facts_.copy.empty() && to_string(static_cast<Copy>(copy)) == facts_.copy) return static_cast<Copy>(copy);
    }
    return copy_of_name(event.name).copy;
  }

  // ---- arguments ----

  struct Facts {
    std::string_view op, scope, instance, kernel, copy;
    std::uint32_t run = 0;
    std::uint64_t correlation = 0;
    std::int64_t bytes = -1;
    double flops = -1;
  };

  enum class Fact : std::uint8_t { none, op, scope, instance, kernel, copy, members, run, bytes, flops, correlation };

  // What an argument of a name is: of each type a fact, or a column of the trace.
  struct ArgumentFacts {
    Fact if_text = Fact::none, if_number = Fact::none;
    std::array<ColumnId, 3> columns = {kNone, kNone, kNone};
  };
  ArgumentFacts& facts_of(const PerfettoArgument& argument) {
    return arguments_.of(argument.name, [this](std::string_view name) {
      return ArgumentFacts{.if_text = fact_of(name, true), .if_number = fact_of(name, false)};
    });
  }
  Fact fact_of(const PerfettoArgument& argument) {
    const ArgumentFacts& facts = facts_of(argument);
    return argument.type == PerfettoArgument::Type::text ? facts.if_text : facts.if_number;
  }

  // "members" are in the group's name.
  Fact fact_of(std::string_view name, bool is_text) const {
    if (is_own_) {
      if (is_text && name == "op") return Fact::op;
      if (is_text && name == "scope") return Fact::scope;
      if (is_text && name == "instance") return Fact::instance;
      if (is_text && name == "kernel") return Fact::kernel;
      if (is_text && name == "copy") return Fact::copy;
      if (is_text && name == "members") return Fact::members;
      if (!is_text && name == "run") return Fact::run;
      if (!is_text && name == "flops") return Fact::flops;
    }
    if (is_text) return Fact::none;
    if (name == "bytes" || name == "size_bytes") return Fact::bytes;
    if (name == "correlation" || name == "correlation_id" || name == "corr_id") return Fact::correlation;
    return Fact::none;
  }
  bool is_fact(const PerfettoArgument& argument) { return fact_of(argument) != Fact::none; }

  void take_fact(const PerfettoArgument& argument) {
    switch (fact_of(argument)) {
      case Fact::op: facts_.op = argument.text; break;
      case Fact::scope: facts_.scope = argument.text; break;
      case Fact::instance: facts_.instance = argument.text; break;
      case Fact::kernel: facts_.kernel = argument.text; break;
      case Fact::copy: facts_.copy = argument.text; break;
      case Fact::run: facts_.run = static_cast<std::uint32_t>(argument.number); break;
      case Fact::bytes: facts_.bytes = std::max<std::int64_t>(argument.number, -1); break;
      case Fact::flops: facts_.flops = static_cast<double>(argument.number); break;
      case Fact::correlation: facts_.correlation = static_cast<std::uint64_t>(argument.number); break;
      case Fact::members:
      case Fact::none: break;
    }
  }

  void add_argument(SpanId id, const PerfettoArgument& argument) {
    Trace& trace = sink_.trace();
    ColumnId& column = facts_of(argument).columns[static_cast<std::size_t>(argument.type)];
    if (column == kNone) {
      constexpr std::size_t kMostColumns = 256;
      if (trace.columns().size() >= kMostColumns) return sink_.lose("arguments of more than 256 names, left out");
      std::string_view name = argument.name;
      if (is_own_ && name.starts_with("argument ")) name.remove_prefix(9);
      constexpr std::array kTypes = {ArgumentType::integer, ArgumentType::real, ArgumentType::text};
      column = trace.add_column(name, kTypes[static_cast<std::size_t>(argument.type)]);
    }
    switch (argument.type) {
      case PerfettoArgument::Type::number: trace.add_argument(id, column, argument.number); break;
      case PerfettoArgument::Type::real: trace.add_argument(id, column, argument.real()); break;
      case PerfettoArgument::Type::text: trace.add_argument(id, column, argument.text); break;
    }
  }

  // ---- the rest ----

  void add_sample(const PerfettoEvent& event) {
    Track& track = track_at(event.track);
    const auto found = from_.tracks.find(event.track);
    const PerfettoTrack own = found == from_.tracks.end() ? PerfettoTrack{} : found->second;
    if (!track.counter) {
      std::string_view name = own.name;
      if (is_own_ && name.starts_with("memory: ")) name.remove_prefix(8);
      bool is_gpu = false;
      for_each_around(event.track, [&](const PerfettoTrack& at) {
        is_gpu |= track_number(at.name, "GPU").has_value() || track_number(at.process_name, "GPU").has_value();
        return !is_gpu;
      });
      track.counter = sink_.trace().add_counter(is_gpu ? static_cast<int>(device_of(event.track)) : -1, name,
                                                process_of(event.track));
    }
    const double value =
        (event.is_real ? event.real() : static_cast<double>(event.value)) * static_cast<double>(own.unit_multiplier);
    track.value = own.is_incremental ? track.value + value : value;
    constexpr double kMost = 9e18;
    const bool is_number = track.value > -kMost && track.value < kMost;
    if (!is_number) return sink_.lose("values of counters that are no numbers");
    if (!sink_.is_sound(event.ns, 0)) return;
    // A whole number keeps all its digits.
    const bool is_whole = !event.is_real && !own.is_incremental && own.unit_multiplier == 1;
    sink_.trace().add_sample(
        {*track.counter, event.ns, is_whole ? event.value : static_cast<std::int64_t>(track.value)});
  }

  void add_stage(const PerfettoGpuStage& stage) {
    const ProcessId process = sink_.process(stage.pid);
    std::string queue(stage.queue_name);
    if (queue.empty()) queue = fmt::format("queue {}", stage.queue);
    const StringId name = sink_.text(stage.name.empty() ? std::string_view("?") : stage.name);
    Span span{
        .track = sink_.stream(process, stage.gpu, static_cast<std::int64_t>(stage.queue & 0xffffffffffffff), queue),
        .site = sink_.site({.kind = SpanKind::kernel, .name = name, .kernel = name}),
        .start_ns = stage.ns,
        .duration_ns = stage.duration_ns};
    const SpanId id = sink_.add(span);
    if (id == kNone) return;
    Trace& trace = sink_.trace();
    for (const auto& [column, size] :
         {std::pair(argument::kGrid, stage.grid), std::pair(argument::kBlock, stage.block)}) {
      if (size[0] <= 0) continue;
      trace.add_argument(id, trace.add_column(column, ArgumentType::text),
                         std::string_view(fmt::format("{}x{}x{}", size[0], size[1], size[2])));
    }
  }

  struct FlowEnd {
    std::uint64_t flow;
    std::int64_t ns;
    SpanId span;
  };

  // From each event of a flow to the next. Arrows show what a viewer showed; what launched what is told by numbers.
  void add_flows() {
    std::ranges::stable_sort(flow_ends_, {}, [](const FlowEnd& end) { return std::pair(end.flow, end.ns); });
    for (std::size_t i = 1; i < flow_ends_.size(); ++i) {
      const FlowEnd &from = flow_ends_[i - 1], &to = flow_ends_[i];
      if (from.flow == to.flow && from.span != to.span) sink_.trace().add_flow(from.span, to.span);
    }
  }

  void say_losses() {
    sink_.lose("packets that are broken", from_.broken, Note::Kind::dropped);
    sink_.lose("times that packets were lost while they were recorded", from_.dropped, Note::Kind::dropped);
    sink_.lose("events whose names were lost with other packets", from_.without_names, Note::Kind::dropped);
    sink_.lose("events by a clock that nothing sets beside the others", from_.without_clock, Note::Kind::timeless);
    sink_.lose("compressed packets that could not be unpacked", from_.not_unpacked, Note::Kind::dropped);
    sink_.lose("packets of other kinds than track events and work of GPUs, left out", from_.other_data);
  }

  const PerfettoEvents from_;
  Known<CategoryFacts> categories_;
  Known<SpanKind> calls_;
  Known<ArgumentFacts> arguments_;
  const bool is_own_;
  TraceSink sink_;
  std::unordered_map<std::uint64_t, Track> tracks_;
  Track* near_track_ = nullptr;  // that was looked up last
  std::uint64_t near_uuid_ = 0;
  std::map<std::pair<std::uint64_t, std::string>, std::int64_t> rows_;  // of our own tracks, by where they lie
  std::int64_t next_track_ = 0, last_ns_ = std::numeric_limits<std::int64_t>::min();
  Facts facts_;
  std::vector<FlowEnd> flow_ends_;
};

}  // namespace

bool is_perfetto(std::string_view head) {
  constexpr int kEnough = 16;
  WireReader all(head, WireReader::Extent::beginning);
  bool has_packet = false;
  for (int seen = 0; seen < kEnough && all.next(); ++seen) {
    if (all.field() != 1 || all.type() != WireType::bytes) return false;
    WireReader packet(all.bytes(), WireReader::Extent::beginning);
    while (packet.next()) {
      // Who wrote it, when, what state it needs; numbers all of them.
      const bool is_mark = packet.field() == 8 || packet.field() == 10 || packet.field() == 13 || packet.field() == 41;
      if (is_mark && packet.type() != WireType::varint) return false;
      const bool is_part = packet.field() == 11 || packet.field() == 60 || packet.field() == 50 ||
                           packet.field() == 133 || packet.field() == 6;
      if (is_part && packet.type() != WireType::bytes) return false;
      has_packet |= is_mark || (is_part && packet.field() != 6);
    }
  }
  return has_packet;
}

Trace read_perfetto_text(std::string_view file, const std::string& name) {
  PerfettoEvents events = read_perfetto_packets(file);
  if (events.events.empty() && events.stages.empty() && events.tracks.empty()) {
    fail(ErrorKind::file,
         "{}: it is no Perfetto trace that has track events: {} packets of it are broken, {} of other kinds", name,
         events.broken, events.other_data);
  }
  return PerfettoReader(std::move(events)).read();
}

}  // namespace paoding::trace
