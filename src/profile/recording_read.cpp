// SPDX-License-Identifier: Apache-2.0
// Reading recordings. Every word of a file is doubted: a chunk that contradicts itself ends the reading, and all that
// was read before it is kept.
#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/check.h"
#include "io/files.h"
#include "profile/live_file.h"
#include "profile/recording.h"
#include "profile/recording_rest.h"
#include "profile/site_format.h"

namespace paoding::profile {

namespace {

class RecordingReader {
 public:
  /// `recording`: beside it lies the rest that its program had in memory; empty for others.
  RecordingReader(std::string_view file, std::string name, std::string recording = "")
      : file_(file), name_(std::move(name)), recording_(std::move(recording)) {}

  Trace read() {
    const std::size_t head = kRecordingMark.size() + 2;
    if (!file_.starts_with(kRecordingMark) || file_.size() < head || file_[head - 1] != '\n') {
      fail(ErrorKind::file, "{}: it is no recording of paoding's: it does not begin with '{}{}'", name_, kRecordingMark,
           kRecordingVersion);
    }
    version_ = file_[head - 2] - '0';
    if (version_ < 1 || version_ > kRecordingVersion) {
      fail(ErrorKind::file, "{}: it is a recording of version '{}', this paoding reads 1 to {}", name_, file_[head - 2],
           kRecordingVersion);
    }
    std::size_t offset = head, chunks = 0;
    for (; problem_.empty() && !is_whole_; ++chunks) {
      const std::size_t begin = offset;
      StoredChunk chunk;
      problem_ = find_chunk(file_, &offset, &chunk);
      if (problem_.empty() && !take(chunk)) problem_ = "it contradicts itself";
      if (problem_.empty() && chunk.type == ChunkType::spans) spans_end_ = offset;
      if (!problem_.empty()) problem_ = fmt::format("chunk {} at byte {}: {}", chunks, begin, problem_);
    }
    return finish();
  }

 private:
  struct Pair {
    std::uint64_t ticks;
    std::int64_t ns;
  };

  // False when it is broken.
  bool take(const StoredChunk& chunk) {
    if (chunk.type == ChunkType::spans) {  // when all pairs of the clocks are known
      spans_.push_back(chunk);
      return true;
    }
    unpacked_bytes_ += chunk.body_bytes;
    if (unpacked_bytes_ > kFreeBytes + kBytesEach * file_.size() || !unpack(chunk, &body_)) return false;
    BodyReader body(body_);
    switch (chunk.type) {
      case ChunkType::window: {
        const std::int64_t start = body.signed_number(), end = body.signed_number();
        if (body.is_broken() || start > end || !is_time(start) || !is_time(end)) return false;
        window_start_ = start;
        window_end_ = end;
        has_window_ = true;
        return true;
      }
      case ChunkType::clock: {
        const Pair pair{body.number(), body.signed_number()};
        const bool goes_on = clock_.empty() || (pair.ticks > clock_.back().ticks && pair.ns >= clock_.back().ns);
        if (body.is_broken() || !goes_on || !is_time(pair.ns) || pair.ticks >= std::uint64_t{1} << 62) return false;
        clock_.push_back(pair);
        last_pair_ns_ = pair.ns;
        return true;
      }
      case ChunkType::tracks: return take_tracks(body);
      case ChunkType::sites: return take_sites(body);
      case ChunkType::spans: break;
      case ChunkType::notes: {
        std::string text(body.text());
        const std::uint64_t count = body.number(), kind = body.is_at_end() ? 0 : body.number();
        if (body.is_broken() || kind > static_cast<std::uint64_t>(Note::Kind::span_cost)) return false;
        trace_.add_note(std::move(text), count, static_cast<Note::Kind>(kind));
        return true;
      }
      case ChunkType::parts: return take_part(body);
      case ChunkType::limits: {
        const std::int64_t device = body.signed_number();
        Limit limit{static_cast<std::int32_t>(device), body.real(), {}};
        if (!body.is_at_end()) {
          for (double& rate : limit.flops_per_ns) rate = body.real();
        }
        if (!body.is_at_end() && !take_device(body, &limit)) return false;
        const auto is_wrong = [](double rate) { return !(rate >= 0 && rate < 1e9); };
        if (body.is_broken() || device < -1 || device > 4096) return false;
        if (!(limit.bytes_per_ns > 0) && limit.name.empty()) return false;
        if (is_wrong(limit.bytes_per_ns) || std::ranges::any_of(limit.flops_per_ns, is_wrong)) return false;
        trace_.add_limit(limit);
        return true;
      }
      case ChunkType::memory: return take_memory(body);
      case ChunkType::phases: return take_phase(body);
      case ChunkType::counters: return take_counters(body);
      case ChunkType::samples: return take_samples(body);
      case ChunkType::processes: return take_processes(body);
      case ChunkType::columns: return take_columns(body);
      case ChunkType::flows: return take_flows(body);
      case ChunkType::anchors: return take_anchor(body);
      case ChunkType::end: is_whole_ = true; return body.is_at_end();
    }
    return false;
  }

  static bool take_device(BodyReader& body, Limit* limit) {
    constexpr std::size_t kLongest = 200;
    constexpr std::int64_t kMost = 1 << 24;
    limit->name = body.text().substr(0, kLongest);
    for (std::int32_t* count : {&limit->sms, &limit->threads_of_sm, &limit->registers_of_sm, &limit->shared_of_sm}) {
      const std::int64_t value = body.signed_number();
      if (value < 0 || value > kMost) return false;
      *count = static_cast<std::int32_t>(value);
    }
    return true;
  }

  // A file's content may be packed a thousandfold, and takes memory when it is read: no more things than such a file
  // could be of.
  bool has_room_for(std::uint64_t more) {
    things_ += more;
    return things_ <= kFreeThings + kThingsEach * file_.size();
  }

  bool take_tracks(BodyReader& body) {
    while (!body.is_at_end()) {
      if (tracks_.size() == kMostNames) return false;
      const std::uint64_t kind = body.number();
      const std::string_view name = body.text();
      const std::int64_t device = body.signed_number();
      const std::uint64_t process = version_ >= 2 ? body.number() : 0;
      if (body.is_broken() || kind > static_cast<std::uint64_t>(TrackKind::copy_engine)) return false;
      if (device < -1 || device > 4096 || !is_process(process)) return false;
      tracks_.push_back(trace_.add_track(static_cast<TrackKind>(kind), name, static_cast<int>(device),
                                         static_cast<ProcessId>(process)));
    }
    return true;
  }

  bool is_process(std::uint64_t id) const { return id == 0 || id < trace_.processes().size(); }

  // No two are alike, so that their numbers are the trace's.
  bool take_processes(BodyReader& body) {
    while (!body.is_at_end()) {
      if (trace_.processes().size() == kMostNames) return false;
      const std::int64_t pid = body.signed_number(), rank = body.signed_number();
      const std::string_view name = body.text();
      const std::uint64_t source = version_ >= 4 ? body.number() : 0;
      constexpr std::int64_t kMost = 0x7fffffff;
      if (body.is_broken() || pid < 0 || pid > kMost || rank < -1 || rank > kMost || source >= kSources) return false;
      const std::size_t before = trace_.processes().size();
      if (trace_.add_process(static_cast<int>(pid), static_cast<int>(rank), name, static_cast<Source>(source)) !=
          before) {
        return false;
      }
    }
    return true;
  }

  bool take_anchor(BodyReader& body) {
    const std::uint64_t process = body.number();
    const std::string_view host = body.text();
    const SharedClocks at{body.signed_number(), body.signed_number(), body.signed_number()};
    if (body.is_broken() || !is_process(process)) return false;
    for (const std::int64_t ns : {at.ns, at.system_ns, at.wall_ns}) {
      if (!is_time(ns)) return false;
    }
    if (!trace_.anchors().empty()) {
      const ClockAnchor& before = trace_.anchors().back();
      if (process < before.process) return false;
      if (process == before.process && (at.ns <= before.ns || at.system_ns < before.system_ns)) return false;
    }
    trace_.add_anchor(static_cast<ProcessId>(process), host, at);
    return true;
  }

  bool take_columns(BodyReader& body) {
    while (!body.is_at_end()) {
      if (trace_.columns().size() == kMostNames) return false;
      const std::string_view name = body.text();
      const std::uint64_t type = body.number();
      if (body.is_broken() || type > static_cast<std::uint64_t>(ArgumentType::text)) return false;
      const std::size_t before = trace_.columns().size();
      if (trace_.add_column(name, static_cast<ArgumentType>(type)) != before) return false;
    }
    return true;
  }

  bool take_flows(BodyReader& body) {
    std::int64_t from = 0;
    while (!body.is_at_end()) {
      if (!has_room_for(1)) return false;
      const std::int64_t since = body.signed_number(), away = body.signed_number();
      if (body.is_broken() || !is_time(since) || !is_time(away)) return false;
      from += since;
      if (from < 0 || from >= kNone || from + away < 0 || from + away >= kNone) return false;
      flows_.push_back({static_cast<SpanId>(from), static_cast<SpanId>(from + away)});
    }
    return true;
  }

  bool take_sites(BodyReader& body) {
    while (!body.is_at_end()) {
      SiteInfo info;
      if (!profile::take_site(body, &info) || !has_room_for(1 + info.members.size())) return false;
      sites_.push_back(trace_.add_site(info));
    }
    return true;
  }

  bool take_phase(BodyReader& body) {
    const std::uint64_t site = body.number();
    std::string name(body.text());
    const std::int64_t ns = body.signed_number();
    if (body.is_broken() || site >= sites_.size() || ns < 0 || ns >= std::int64_t{1} << 61) return false;
    trace_.add_phase({sites_[site], std::move(name), ns});
    return true;
  }

  bool take_memory(BodyReader& body) {
    Memory memory;
    const std::int64_t device = body.signed_number();
    memory.of = body.text();
    memory.what = body.text();
    const std::uint64_t is_inside = body.number();
    memory.bytes = body.signed_number();
    if (body.is_broken() || device < -1 || device > 4096 || is_inside > 1 || memory.bytes < 0) return false;
    memory.device = static_cast<std::int32_t>(device);
    memory.is_inside = is_inside != 0;
    trace_.add_memory(std::move(memory));
    return true;
  }

  bool take_counters(BodyReader& body) {
    while (!body.is_at_end()) {
      if (counters_.size() == kMostNames) return false;  // and of their values: so that no sum overflows
      const std::int64_t device = body.signed_number();
      const std::string_view name = body.text();
      const std::uint64_t process = version_ >= 2 ? body.number() : 0;
      if (body.is_broken() || device < -1 || device > 4096 || !is_process(process)) return false;
      counters_.push_back(trace_.add_counter(static_cast<int>(device), name, static_cast<ProcessId>(process)));
    }
    return true;
  }

  bool take_samples(BodyReader& body) {
    std::int64_t ns = 0;
    while (!body.is_at_end()) {
      const std::uint64_t counter = body.number();
      const std::int64_t since = body.signed_number(), value = body.signed_number();
      if (!has_room_for(1) || body.is_broken() || counter >= counters_.size() || !is_time(since) ||
          !is_time(ns + since))
        return false;
      if (value < 0 || value >= std::int64_t{1} << 48) return false;
      ns += since;
      trace_.add_sample({counters_[counter], ns, value});
    }
    return true;
  }

  bool take_part(BodyReader& body) {
    const std::uint64_t replay = body.number(), site = body.number();
    ReplayPart part{.calls = body.number(), .ns = body.signed_number()};
    if (body.is_broken() || replay >= sites_.size() || site > sites_.size()) return false;
    if (part.ns < 0 || part.ns >= std::int64_t{1} << 61 || part.calls >= std::uint64_t{1} << 48) return false;
    part.replay = sites_[replay];
    if (site != 0) part.site = sites_[site - 1];
    trace_.add_part(part);
    return true;
  }

  // Fills batch_ and its track.
  bool unpack_spans(BodyReader& body, TrackId* track, StoredClock* of) {
    *track = body.small();
    const std::uint64_t clock = body.number(), count = body.count();
    if (body.is_broken() || *track >= tracks_.size() || clock > 1) return false;
    if (count > kMostChunkSpans || !has_room_for(count)) return false;
    *of = static_cast<StoredClock>(clock);
    batch_.assign(count, {});
    std::uint64_t before = 0;
    for (StoredSpan& span : batch_) span.start = before += static_cast<std::uint64_t>(body.signed_number());
    for (StoredSpan& span : batch_) span.end = span.start + body.number();
    for (StoredSpan& span : batch_) {
      span.site = body.small();
      if (span.site >= sites_.size()) return false;
    }
    before = 0;
    for (StoredSpan& span : batch_) {
      span.run = static_cast<std::uint32_t>(before += static_cast<std::uint64_t>(body.signed_number()));
    }
    before = 0;
    for (StoredSpan& span : batch_) {
      span.correlation = static_cast<std::uint32_t>(before += static_cast<std::uint64_t>(body.signed_number()));
    }
    if (!unpack_links(body)) return false;
    while (!body.is_at_end()) {
      const std::uint64_t i = body.number(), says = body.number();
      if (i >= count || says == 0 || says > (version_ >= 2 ? 31 : 15)) return false;
      StoredSpan& span = batch_[i];
      span.cut = {(says & 1) != 0, (says & 2) != 0};
      if ((says & 4) != 0) span.bytes = body.signed_number();
      if ((says & 8) != 0) span.flops = body.real();
      if ((says & 16) != 0 && !unpack_arguments(body, &span)) return false;
    }
    const auto is_wrong = [&](const StoredSpan& span) {
      const bool is_ns = *of == StoredClock::nanoseconds;
      return static_cast<std::int64_t>(span.end - span.start) < 0 ||
             (is_ns &&
              !(is_time(static_cast<std::int64_t>(span.start)) && is_time(static_cast<std::int64_t>(span.end))));
    };
    return !body.is_broken() && std::ranges::none_of(batch_, is_wrong);
  }

  // Behind those that are there: a span says so once.
  bool unpack_arguments(BodyReader& body, StoredSpan* span) {
    if (span->arguments_end != 0) return false;
    span->arguments_begin = static_cast<std::uint32_t>(arguments_.size());
    for (std::uint64_t left = body.count(); left > 0 && !body.is_broken(); --left) {
      Argument argument{.column = body.small()};
      if (!has_room_for(1) || argument.column >= trace_.columns().size()) return false;
      switch (trace_.columns()[argument.column].type) {
        case ArgumentType::integer: argument.bits = static_cast<std::uint64_t>(body.signed_number()); break;
        case ArgumentType::real: argument.bits = std::bit_cast<std::uint64_t>(body.real()); break;
        case ArgumentType::text: argument.bits = trace_.intern(body.text()); break;
      }
      arguments_.push_back(argument);
    }
    span->arguments_end = static_cast<std::uint32_t>(arguments_.size());
    return !body.is_broken();
  }

  void add_arguments(SpanId to, const StoredSpan& span) {
    for (std::size_t i = span.arguments_begin; i < span.arguments_end; ++i) {
      const auto& [column, bits] = arguments_[i];
      switch (trace_.columns()[column].type) {
        case ArgumentType::integer: trace_.add_argument(to, column, static_cast<std::int64_t>(bits)); break;
        case ArgumentType::real: trace_.add_argument(to, column, std::bit_cast<double>(bits)); break;
        case ArgumentType::text: trace_.add_argument(to, column, trace_.text(static_cast<StringId>(bits))); break;
      }
    }
  }

  // Those of spans that are numbered as they are here.
  bool unpack_links(BodyReader& body) {
    const std::uint64_t first = body.number();
    has_links_ = has_links_ && first == std::uint64_t{trace_.size()} + 1;
    if (first == 0) return true;
    std::uint64_t own = first - 1;
    for (StoredSpan& span : batch_) {
      const std::uint64_t back = body.number();
      if (back > own) return false;
      if (back != 0) span.parent = static_cast<SpanId>(own - back);
      ++own;
    }
    own = first - 1;
    for (StoredSpan& span : batch_) {
      const std::int64_t away = body.signed_number();
      if (away != 0) span.cause = static_cast<SpanId>(static_cast<std::int64_t>(own) + away);
      ++own;
    }
    return own < kNone;
  }

  bool add_spans(const StoredChunk& chunk) {
    TrackId track = 0;
    StoredClock clock = StoredClock::nanoseconds;
    if (!unpack(chunk, &body_)) return false;
    BodyReader body(body_);
    arguments_.clear();
    if (!unpack_spans(body, &track, &clock)) return false;
    const bool has_ticks = clock == StoredClock::ticks;
    for (const StoredSpan& span : batch_) {
      const std::int64_t start = has_ticks ? to_ns(span.start) : static_cast<std::int64_t>(span.start);
      const std::int64_t end = has_ticks ? to_ns(span.end) : static_cast<std::int64_t>(span.end);
      const SpanId id = trace_.add({.track = tracks_[track],
                                    .site = sites_[span.site],
                                    .start_ns = start,
                                    .duration_ns = std::max<std::int64_t>(end - start, 0),
                                    .run = span.run,
                                    .correlation = span.correlation,
                                    .parent = span.parent,
                                    .cause = span.cause,
                                    .bytes = span.bytes,
                                    .flops = span.flops});
      if (!flows_.empty()) id_of_.push_back(id);
      if (id == kNone) continue;
      if (span.cut.at_start || span.cut.at_end) trace_.set_cut(id, span.cut);
      add_arguments(id, span);
    }
    return true;
  }

  void add_flows() {
    for (const Flow& flow : flows_) {
      if (flow.from >= id_of_.size() || flow.to >= id_of_.size()) continue;
      const SpanId from = id_of_[flow.from], to = id_of_[flow.to];
      if (from != kNone && to != kNone) trace_.add_flow(from, to);
    }
  }

  // Far from where sums overflow.
  static bool is_time(std::int64_t ns) { return ns > -(std::int64_t{1} << 61) && ns < std::int64_t{1} << 61; }

  // On the line through the pairs around it; before the first and behind the last on that of the two next to it.
  std::int64_t to_ns(std::uint64_t ticks) const {
    if (clock_.size() < 2) return clock_.empty() ? 0 : clock_[0].ns;
    const auto behind = std::upper_bound(clock_.begin() + 1, clock_.end() - 1, ticks,
                                         [](std::uint64_t t, const Pair& pair) { return t < pair.ticks; });
    const Pair &from = *std::prev(behind), &to = *behind;
    const double rate = static_cast<double>(to.ns - from.ns) / static_cast<double>(to.ticks - from.ticks);
    const double since = rate * static_cast<double>(static_cast<std::int64_t>(ticks - from.ticks));
    return from.ns + static_cast<std::int64_t>(std::clamp(since, -1e18, 1e18));
  }

  Trace finish() {
    std::optional<LiveRest> rest;
    if (!is_whole_) {
      if (!recording_.empty() && !clock_.empty()) {
        rest = read_live(recording_, spans_end_, {clock_[0].ticks, clock_[0].ns});
      }
      if (rest.has_value()) {
        use_clock_of(*rest);
      } else {
        trace_.add_note("the recording was never finished: " + problem_);
        if (!clock_.empty()) window_end_ = std::max(window_end_, clock_.back().ns);
        has_window_ = has_window_ && !clock_.empty();  // all behind the last span that is left was lost
      }
    }
    if (has_window_) trace_.set_window(window_start_, window_end_);
    std::uint64_t broken = 0;
    has_links_ = !spans_.empty();
    for (const StoredChunk& chunk : spans_) broken += add_spans(chunk) ? 0 : 1;
    if (broken > 0) trace_.add_note("chunks of spans that contradict themselves, left out", broken);
    if (!is_whole_) {
      const UnfinishedTrace to{trace_, {window_start_, window_end_}, has_window_, [&](Ticks t) { return to_ns(t); }};
      if (rest.has_value()) add_rest(to, *rest);
      add_lost(to, rest, last_pair_ns_);
    }
    if (has_links_ && broken == 0 && is_whole_ && trace_.has_sound_links()) {
      add_flows();
      trace_.finish(Links::known);
    } else {
      trace_.forget_links();
      if (broken == 0) add_flows();
      trace_.finish();
    }
    return std::move(trace_);
  }

  // The recording ends where the program ended.
  void use_clock_of(const LiveRest& rest) {
    if (clock_.size() < 2) {  // its clock is a line
      constexpr Ticks kFar = Ticks{1} << 32;
      const auto ns = static_cast<std::int64_t>(static_cast<double>(kFar) * rest.ns_per_tick);
      clock_.push_back({clock_[0].ticks + kFar, clock_[0].ns + ns});
    }
    window_start_ = clock_[0].ns;
    window_end_ = std::max(window_start_, to_ns(rest.end));
    has_window_ = true;
    trace_.add_note("the program ended before its recording was: what was under way is cut");
    if (rest.broken > 0) trace_.add_note("spans of its end that contradict themselves, left out", rest.broken);
    if (!rest.is_all) trace_.add_note("spans of its end that there was no room for are lost");
  }

  static constexpr std::size_t kMostNames = 1 << 14;
  static constexpr std::uint64_t kFreeThings = 1 << 20,
                                 kThingsEach = 8;  // whatever the file, and for each of its bytes
  static constexpr std::uint64_t kFreeBytes = kMostChunkBytes, kBytesEach = 64;  // of chunks that are no spans

  const std::string_view file_;
  const std::string name_, recording_;
  int version_ = kRecordingVersion;
  Trace trace_;
  std::vector<TrackId> tracks_;  // the trace's, by the file's
  std::vector<SiteId> sites_;
  std::vector<CounterId> counters_;
  std::vector<Pair> clock_;
  std::vector<StoredChunk> spans_;
  std::string body_;                 // of the chunk at hand
  std::vector<StoredSpan> batch_;    // of the chunk of spans at hand
  std::vector<Argument> arguments_;  // of those
  std::vector<Flow> flows_;          // by the numbers of spans in the file
  std::vector<SpanId> id_of_;        // the trace's, by those; where there are flows
  std::int64_t window_start_ = 0, window_end_ = 0;
  bool has_window_ = false, is_whole_ = false;
  bool has_links_ = true;  // of all spans so far
  std::string problem_;
  std::uint64_t things_ = 0, unpacked_bytes_ = 0;
  std::uint64_t spans_end_ = 0;    // where the last chunk of spans ends in the file
  std::int64_t last_pair_ns_ = 0;  // of the clocks, in the file
};

}  // namespace

Trace read_recording_text(std::string_view file, const std::string& name) { return RecordingReader(file, name).read(); }

namespace {
std::string bytes_of(const std::string& path) {
  const files::InputFile file(path);
  std::string bytes(file.size_bytes(), '\0');
  file.read_at(0, bytes.data(), bytes.size());
  return bytes;
}
}  // namespace

Trace read_recording(const std::string& path) { return read_recording_text(bytes_of(path), path); }

Trace read_recording_of_killed(const std::string& path) {
  const std::string bytes = bytes_of(path);
  return RecordingReader(bytes, path, path).read();
}

}  // namespace paoding::profile
