// SPDX-License-Identifier: Apache-2.0
#include "trace/perfetto.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "trace/api_names.h"
#include "trace/perfetto_flows.h"
#include "trace/perfetto_survey.h"
#include "trace/readers.h"
#include "trace/sink.h"

namespace paoding::trace {
namespace {

using namespace profile;
using Type = PerfettoEvent::Type;

class PerfettoReader final : public PerfettoTaker {
 public:
  PerfettoReader(const PerfettoTexts& texts, PerfettoFacts known, std::size_t expected)
      : texts_(texts), known_(std::move(known)), expected_(expected) {
    if (known_.is_all) begin(known_.is_own);
  }

  /// Something that was taken for granted is not so: the trace has to be read again by one that knows it all.
  bool is_done() const override { return is_wrong_; }
  bool has_nothing() const { return is_empty_ && known_.tracks.empty(); }

  void take(const PerfettoTrack& track) override {
    if (known_.is_all) return;
    const auto [found, is_new] = known_.tracks.try_emplace(track.uuid, track);
    if (!is_new && found->second == track) return;
    found->second = track;
    if (asked_.contains(track.uuid)) doubt();
  }

  void take(const PerfettoEvent& event, std::span<const PerfettoArgument> arguments,
            std::span<const std::uint64_t> flows) override {
    is_empty_ = false;
    last_ns_ = std::max(last_ns_, event.ns);
    if (known_.is_in_order) return place(event, arguments, flows);
    // They are told when all of them are there.
    Kept& kept = kept_.emplace_back();
    kept.event = event;
    kept.arguments = kept_arguments_.size(), kept.flows = kept_flows_.size();
    kept.argument_count = arguments.size(), kept.flow_count = flows.size();
    kept_arguments_.insert(kept_arguments_.end(), arguments.begin(), arguments.end());
    kept_flows_.insert(kept_flows_.end(), flows.begin(), flows.end());
  }

  void take(const PerfettoGpuStage& stage) override {
    is_empty_ = false;
    add_stage(stage);
  }

  Trace finish(const PerfettoLosses& losses) {
    std::ranges::stable_sort(kept_, {}, [](const Kept& kept) { return kept.event.ns; });
    for (const Kept& kept : kept_) {
      place(kept.event, std::span(kept_arguments_).subspan(kept.arguments, kept.argument_count),
            std::span(kept_flows_).subspan(kept.flows, kept.flow_count));
    }
    close_all();
    flows_.link(sink().trace());
    say_losses(losses);
    return sink().finish();
  }

 private:
  // Never where all is known.
  void doubt() { is_wrong_ = !known_.is_all; }
  void begin(bool is_own) {
    is_own_ = is_own;
    sink_.emplace(is_own ? Source::paoding : Source::perfetto);
    sink_->trace().reserve(expected_);
  }
  TraceSink& sink() {
    if (!sink_) begin(false);
    return *sink_;
  }
  StringId string_of(PerfettoText text) {
    if (text == 0) return 0;
    return strings_.of(text, [&] { return sink().text(texts_[text]); });
  }
  const PerfettoCategory& category(const PerfettoEvent& event) {
    return categories_.of(event.category, [&] { return PerfettoCategory(texts_[event.category]); });
  }

  // ---- tracks ----

  // An event that began; its arguments and flows are the last ones of its track from these on.
  struct Open {
    Span span;
    std::size_t arguments = 0, flows = 0;
  };
  struct Track {
    TrackId id = kNone;
    bool is_gpu = false, could_be_gpu = false;
    std::int64_t before_ns = std::numeric_limits<std::int64_t>::min();  // the time of the event before
    std::vector<Open> open;
    std::vector<Argument> arguments;
    std::vector<std::uint64_t> flows;
    std::optional<CounterId> counter;
    PerfettoTrack counter_facts;
    double value = 0;
  };

  // Whether a track with a GPU's work on it is a GPU's: no thread is, others are that are called so, or lie in
  // something that is.
  bool is_called_gpu(std::uint64_t uuid) {
    bool is_gpu = false;
    for_each_around(uuid, [&](const PerfettoTrack& at) {
      if (at.is_thread) return false;
      for (const std::string_view name : {texts_[at.name], texts_[at.process_name]}) {
        is_gpu |= track_number(name, "GPU").has_value();
        if (!is_own_) {
          is_gpu |= contains_lowered(name, "stream") || contains_lowered(name, "queue") ||
                    contains_lowered(name, "agent") || contains_lowered(name, "copy") || contains_lowered(name, "gpu");
        }
      }
      return !is_gpu;
    });
    return is_gpu;
  }

  // The track and those that it lies in, as long as `take` wants more.
  template <class Take>
  void for_each_around(std::uint64_t uuid, Take&& take) {
    constexpr int kMostDepth = 64;
    for (int depth = 0; depth < kMostDepth; ++depth) {
      if (!known_.is_all) asked_.insert(uuid);
      const auto found = known_.tracks.find(uuid);
      if (found == known_.tracks.end() || !take(found->second)) return;
      if (found->second.parent == uuid || found->second.parent == 0) return;
      uuid = found->second.parent;
    }
  }

  PerfettoTrack description_of(std::uint64_t uuid) {
    if (!known_.is_all) asked_.insert(uuid);
    const auto found = known_.tracks.find(uuid);
    return found == known_.tracks.end() ? PerfettoTrack{} : found->second;
  }

  ProcessId process_of(std::uint64_t uuid) {
    std::int64_t pid = 0;
    std::string_view name;
    for_each_around(uuid, [&](const PerfettoTrack& at) {
      if (at.pid < 0) return true;
      pid = at.pid;
      name = texts_[at.process_name];
      return false;
    });
    if (is_own_) return sink().process(0);  // host and GPUs of one process stand there as several
    return sink().process(pid, -1, name);
  }

  std::int64_t device_of(std::uint64_t uuid) {
    std::int64_t device = 0;
    for_each_around(uuid, [&](const PerfettoTrack& at) {
      for (const std::string_view name : {texts_[at.name], texts_[at.process_name]}) {
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

  // Threads of one process take turns in a file: a few tracks are near.
  Track& track_at(std::uint64_t uuid) {
    Near& near = near_[(uuid * 0x9e3779b97f4a7c15ull) >> 58];
    if (near.track == nullptr || near.uuid != uuid) near = {uuid, &tracks_[uuid]};
    return *near.track;
  }

  // A track gets its place with its first event that is no counter's.
  void make(Track& track, const PerfettoEvent& event) {
    const std::uint64_t uuid = event.track;
    const PerfettoTrack own = description_of(uuid);
    const bool is_called = is_called_gpu(uuid);
    track.is_gpu = is_called && (is_own_ || has_gpu_work(event));
    track.could_be_gpu = is_called && !track.is_gpu;
    std::string name(texts_[own.name]);
    if (name.empty() && !own.is_thread) {
      name = own.process_name == 0 ? fmt::format("track {}", uuid) : std::string(texts_[own.process_name]);
    }
    std::int64_t number = next_track_++;
    if (is_own_) {
      // Our timelines give spans that cross on a track rows of their own: "stream 7 (2)".
      if (const std::size_t row = name.rfind(" ("); row != name.npos && name.ends_with(')')) name.resize(row);
      number = rows_.try_emplace({own.parent, name}, number).first->second;
    }
    if (track.is_gpu) {
      track.id = sink().stream(process_of(uuid), device_of(uuid), number, name);
    } else {
      track.id = sink().thread(process_of(uuid), own.is_thread ? own.tid : -1 - number, name);
    }
  }

  bool has_gpu_work(const PerfettoEvent& event) {
    if (known_.is_all) return known_.gpu_works.contains(event.track);
    return category(event).gpu_kind(texts_[event.name]).has_value();
  }

  // ---- events ----

  enum class Fact : std::uint8_t { none, op, scope, instance, kernel, copy, members, run, bytes, flops, correlation };

  // An argument of a name is a fact or a column of the trace, which its type decides.
  struct ArgumentFacts {
    Fact if_text = Fact::none, if_number = Fact::none;
    std::array<ColumnId, 3> columns = {kNone, kNone, kNone};
  };

  void place(const PerfettoEvent& event, std::span<const PerfettoArgument> arguments,
             std::span<const std::uint64_t> flows) {
    Track& track = track_at(event.track);
    if (event.ns < track.before_ns) doubt();
    track.before_ns = event.ns;
    if (event.type == Type::counter) return add_sample(track, event);
    if (event.type == Type::end) {
      if (track.open.empty()) return sink().lose("ends of events that did not begin");
      close(track, event.ns);
      return;
    }
    const PerfettoCategory& facts = category(event);
    if (!sink_) begin(facts.own.has_value());
    if (is_own_ && !facts.own) return doubt();
    if (track.id == kNone) make(track, event);
    if (track.could_be_gpu && !known_.is_all && facts.gpu_kind(texts_[event.name])) doubt();
    std::int64_t end = event.ns;
    if (event.type == Type::whole && __builtin_add_overflow(event.ns, event.value, &end)) return;
    open(track, event, arguments, flows);
    if (event.type != Type::begin) close(track, end);
  }

  void open(Track& track, const PerfettoEvent& event, std::span<const PerfettoArgument> arguments,
            std::span<const std::uint64_t> flows) {
    Open& open = track.open.emplace_back();
    open.arguments = track.arguments.size(), open.flows = track.flows.size();
    facts_ = {};
    for (const PerfettoArgument& argument : arguments) {
      ArgumentFacts& facts = facts_of(argument);
      const bool is_text = argument.type == PerfettoArgument::Type::text;
      const Fact fact = is_text ? facts.if_text : facts.if_number;
      if (fact == Fact::none) {
        keep(track, argument, facts);
      } else {
        take_fact(fact, argument);
      }
    }
    track.flows.insert(track.flows.end(), flows.begin(), flows.end());
    Place place{.kind = kind_of(event, track.is_gpu),
                .name = string_of(event.name),
                .op = string_of(facts_.op),
                .scope = string_of(facts_.scope),
                .instance = string_of(facts_.instance),
                .kernel = string_of(facts_.kernel),
                .copy = copy_of(event)};
    if (!is_own_ && place.kind == SpanKind::kernel) place.kernel = place.name;
    if (place.kind == SpanKind::op && place.op == 0) place.op = place.name;
    // Events of one name are of one site as a rule.
    LastSite& last = last_sites_.of(event.name, [] { return LastSite{}; });
    if (last.site == kNone || last.place != place) last = {place, sink().site(place)};
    open.span = {.track = track.id, .site = last.site, .start_ns = event.ns};
    open.span.run = facts_.run;
    open.span.correlation = sink().correlation(event.correlation != 0 ? event.correlation : facts_.correlation);
    open.span.bytes = facts_.bytes;
    if (facts_.flops > 0) open.span.flops = facts_.flops;
  }

  void keep(Track& track, const PerfettoArgument& argument, ArgumentFacts& facts) {
    ColumnId& column = facts.columns[static_cast<std::size_t>(argument.type)];
    if (column == kNone) {
      constexpr std::size_t kMostColumns = 256;
      if (sink().trace().columns().size() >= kMostColumns) {
        return sink().lose("arguments of more than 256 names, left out");
      }
      std::string_view name = texts_[argument.name];
      if (is_own_ && name.starts_with("argument ")) name.remove_prefix(9);
      constexpr std::array kTypes = {ArgumentType::integer, ArgumentType::real, ArgumentType::text};
      column = sink().trace().add_column(name, kTypes[static_cast<std::size_t>(argument.type)]);
    }
    const bool is_text = argument.type == PerfettoArgument::Type::text;
    track.arguments.push_back({column, is_text ? string_of(argument.text()) : argument.bits});
  }

  // The event that began last.
  SpanId close(Track& track, std::int64_t end) {
    Open& open = track.open.back();
    if (__builtin_sub_overflow(end, open.span.start_ns, &open.span.duration_ns)) open.span.duration_ns = -1;
    const SpanId id = sink().add(open.span);
    if (id != kNone) {
      for (std::size_t a = open.arguments; a < track.arguments.size(); ++a) {
        const Argument& argument = track.arguments[a];
        sink().trace().add_argument_bits(id, argument.column, argument.bits);
      }
      for (std::size_t f = open.flows; f < track.flows.size(); ++f) {
        flows_.add(track.flows[f], open.span.start_ns, id);
      }
    }
    track.arguments.resize(open.arguments);
    track.flows.resize(open.flows);
    track.open.pop_back();
    return id;
  }

  // An event without an end was under way until the last time that is known.
  void close_all() {
    for (auto& [uuid, track] : tracks_) {
      while (!track.open.empty()) {
        sink().lose("events that did not end, cut where the trace does");
        const SpanId id = close(track, std::max(last_ns_, track.open.back().span.start_ns));
        if (id != kNone) sink().trace().set_cut(id, {.at_end = true});
      }
    }
  }

  SpanKind kind_of(const PerfettoEvent& event, bool is_gpu) {
    const PerfettoCategory& facts = category(event);
    if (is_own_) return *facts.own;
    if (event.type == Type::instant) return SpanKind::instant;
    const std::string_view name = texts_[event.name];
    if (is_gpu) return facts.gpu_kind(name).value_or(SpanKind::host);
    const SpanKind call = calls_.of(event.name, [&] { return kind_of_call(name); });
    if (call != SpanKind::host) return call;
    if (name.starts_with("ProfilerStep#")) return SpanKind::step;
    if (facts.is_op) return SpanKind::op;
    if (facts.is_frame) return SpanKind::frame;
    return facts.is_range ? SpanKind::range : SpanKind::host;
  }

  Copy copy_of(const PerfettoEvent& event) {
    if (facts_.copy != 0) {
      for (int copy = 0; copy <= static_cast<int>(Copy::host_to_host); ++copy) {
        if (to_string(static_cast<Copy>(copy)) == texts_[facts_.copy]) return static_cast<Copy>(copy);
      }
    }
    return copies_.of(event.name, [&] { return copy_of_name(texts_[event.name]).copy; });
  }

  // ---- arguments ----

  struct Facts {
    PerfettoText op = 0, scope = 0, instance = 0, kernel = 0, copy = 0;
    std::uint32_t run = 0;
    std::uint64_t correlation = 0;
    std::int64_t bytes = -1;
    double flops = -1;
  };

  ArgumentFacts& facts_of(const PerfettoArgument& argument) {
    return arguments_.of(argument.name, [&] {
      const std::string_view name = texts_[argument.name];
      return ArgumentFacts{.if_text = fact_of(name, true), .if_number = fact_of(name, false)};
    });
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

  void take_fact(Fact fact, const PerfettoArgument& argument) {
    switch (fact) {
      case Fact::op: facts_.op = argument.text(); break;
      case Fact::scope: facts_.scope = argument.text(); break;
      case Fact::instance: facts_.instance = argument.text(); break;
      case Fact::kernel: facts_.kernel = argument.text(); break;
      case Fact::copy: facts_.copy = argument.text(); break;
      case Fact::run: facts_.run = static_cast<std::uint32_t>(argument.number()); break;
      case Fact::bytes: facts_.bytes = std::max<std::int64_t>(argument.number(), -1); break;
      case Fact::flops: facts_.flops = static_cast<double>(argument.number()); break;
      case Fact::correlation: facts_.correlation = argument.bits; break;
      case Fact::members:
      case Fact::none: break;
    }
  }

  // ---- the rest ----

  void add_sample(Track& track, const PerfettoEvent& event) {
    sink();
    if (!track.counter) {
      track.counter_facts = description_of(event.track);
      std::string_view name = texts_[track.counter_facts.name];
      if (is_own_ && name.starts_with("memory: ")) name.remove_prefix(8);
      bool is_gpu = false;
      for_each_around(event.track, [&](const PerfettoTrack& at) {
        is_gpu |= track_number(texts_[at.name], "GPU").has_value() ||
                  track_number(texts_[at.process_name], "GPU").has_value();
        return !is_gpu;
      });
      track.counter = sink().trace().add_counter(is_gpu ? static_cast<int>(device_of(event.track)) : -1, name,
                                                 process_of(event.track));
    }
    const PerfettoTrack& own = track.counter_facts;
    const double value =
        (event.is_real ? event.real() : static_cast<double>(event.value)) * static_cast<double>(own.unit_multiplier);
    track.value = own.is_incremental ? track.value + value : value;
    constexpr double kMost = 9e18;
    const bool is_number = track.value > -kMost && track.value < kMost;
    if (!is_number) return sink().lose("values of counters that are no numbers");
    if (!sink().is_sound(event.ns, 0)) return;
    // A whole number keeps all its digits.
    const bool is_whole = !event.is_real && !own.is_incremental && own.unit_multiplier == 1;
    sink().trace().add_sample(
        {*track.counter, event.ns, is_whole ? event.value : static_cast<std::int64_t>(track.value)});
  }

  void add_stage(const PerfettoGpuStage& stage) {
    const ProcessId process = sink().process(stage.pid);
    std::string queue(texts_[stage.queue_name]);
    if (queue.empty()) queue = fmt::format("queue {}", stage.queue);
    const StringId name = stage.name == 0 ? sink().text("?") : string_of(stage.name);
    Span span{
        .track = sink().stream(process, stage.gpu, static_cast<std::int64_t>(stage.queue & 0xffffffffffffff), queue),
        .site = sink().site({.kind = SpanKind::kernel, .name = name, .kernel = name}),
        .start_ns = stage.ns,
        .duration_ns = stage.duration_ns};
    const SpanId id = sink().add(span);
    if (id == kNone) return;
    Trace& trace = sink().trace();
    for (const auto& [column, size] :
         {std::pair(argument::kGrid, stage.grid), std::pair(argument::kBlock, stage.block)}) {
      if (size[0] <= 0) continue;
      trace.add_argument(id, trace.add_column(column, ArgumentType::text),
                         std::string_view(fmt::format("{}x{}x{}", size[0], size[1], size[2])));
    }
  }

  void say_losses(const PerfettoLosses& losses) {
    sink().lose("packets that are broken", losses.broken, Note::Kind::dropped);
    sink().lose("times that packets were lost while they were recorded", losses.dropped, Note::Kind::dropped);
    sink().lose("events whose names were lost with other packets", losses.without_names, Note::Kind::dropped);
    sink().lose("events by a clock that nothing sets beside the others", losses.without_clock, Note::Kind::timeless);
    sink().lose("compressed packets that could not be unpacked", losses.not_unpacked, Note::Kind::dropped);
    sink().lose("packets of other kinds than track events and work of GPUs, left out", losses.other_data);
  }

  struct Near {
    std::uint64_t uuid = 0;
    Track* track = nullptr;
  };
  struct LastSite {
    Place place;
    SiteId site = kNone;
  };
  struct Kept {
    PerfettoEvent event;
    std::size_t arguments = 0, argument_count = 0, flows = 0, flow_count = 0;
  };

  const PerfettoTexts& texts_;
  PerfettoFacts known_;
  const std::size_t expected_;               // spans
  std::unordered_set<std::uint64_t> asked_;  // tracks whose description, or that there was none, decided something
  bool is_wrong_ = false, is_empty_ = true, is_own_ = false;
  std::optional<TraceSink> sink_;
  PerPerfettoText<StringId> strings_;
  PerPerfettoText<PerfettoCategory> categories_;
  PerPerfettoText<SpanKind> calls_;
  PerPerfettoText<Copy> copies_;
  PerPerfettoText<LastSite> last_sites_;
  PerPerfettoText<ArgumentFacts> arguments_;
  std::unordered_map<std::uint64_t, Track> tracks_;
  std::array<Near, 64> near_;
  std::map<std::pair<std::uint64_t, std::string>, std::int64_t> rows_;  // of our own tracks, by where they lie
  std::int64_t next_track_ = 0, last_ns_ = std::numeric_limits<std::int64_t>::min();
  Facts facts_;
  PerfettoFlows flows_;
  std::vector<Kept> kept_;
  std::vector<PerfettoArgument> kept_arguments_;
  std::vector<std::uint64_t> kept_flows_;
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
      // The writer, the time and the state that it needs are numbers.
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

Trace read_perfetto(TraceFile& file) {
  PerfettoTexts texts;
  PerfettoFacts known;
  constexpr std::uint64_t kLeastBytes = 48, kMostExpected = 1 << 24;  // of a span
  const auto expected = static_cast<std::size_t>(std::min(file.stored_bytes() / kLeastBytes, kMostExpected));
  for (;;) {
    PerfettoReader reader(texts, std::move(known), expected);
    const PerfettoLosses losses = read_perfetto_packets(file, texts, reader);
    if (!reader.is_done()) {
      if (reader.has_nothing()) {
        fail(ErrorKind::file,
             "{}: it is no Perfetto trace that has track events: {} packets of it are broken, {} of other kinds",
             file.name(), losses.broken, losses.other_data);
      }
      Trace trace = reader.finish(losses);
      if (!file.problem().empty()) trace.add_note("files that are not whole: " + file.problem(), 1);
      return trace;
    }
    file.rewind();
    known = survey_perfetto(file, texts);
    file.rewind();
  }
}

Trace read_perfetto_text(std::string_view text, const std::string& name) {
  TraceFile file(text, name);
  return read_perfetto(file);
}

}  // namespace paoding::trace
