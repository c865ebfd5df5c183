// SPDX-License-Identifier: Apache-2.0
// Traces of PyTorch's profiler, of every era since 2021: ops with their launches, joined by correlation.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <set>
#include <unordered_set>

#include "trace/api_names.h"
#include "trace/json_build.h"
#include "trace/kineto_waits.h"
#include "trace/module_scopes.h"

namespace paoding::trace {

using namespace profile;

namespace {

bool is_gpu_work(Category category) {
  return category == Category::kernel || category == Category::memcpy || category == Category::memset;
}

// The last number in a text: 7 of "stream 7 ".
std::optional<std::int64_t> last_number(std::string_view text) {
  const std::size_t end = text.find_last_of("0123456789");
  if (end == text.npos) return {};
  std::size_t begin = end;
  while (begin > 0 && text[begin - 1] >= '0' && text[begin - 1] <= '9') --begin;
  if (end - begin > 17) return {};
  std::int64_t value = 0;
  for (std::size_t i = begin; i <= end; ++i) value = value * 10 + (text[i] - '0');
  return value;
}

class Kineto {
 public:
  Kineto(JsonEvents& events, const TraceFile& file)
      : events_(events),
        file_(file),
        sink_(Source::pytorch),
        names_(events, sink_),
        ops_(events, kNone),
        calls_(events, kNone),
        annotations_(events, kNone),
        frames_(events, kNone),
        hosts_(events, kNone),
        kernels_(events, kNone),
        sets_(events, kNone) {}

  Trace build() {
    find_processes();
    find_steps();
    scopes_.find(events_, names_, sink_);
    std::size_t count = 0;
    for (const EventBlock& block : events_.blocks) count += block.events.size();
    sink_.trace().reserve(count);
    for (EventBlock& block : events_.blocks) {
      for (const RawEvent& event : block.events) add(block, event);
      block = {};
    }
    add_clock();
    add_devices();
    waits_.finish(sink_);
    note_losses(events_, file_, sink_);
    for (const auto& [category, lost] : events_.losses.categories) {
      sink_.lose(fmt::format("events of the unknown category '{}', taken as work of the host", category), lost);
    }
    sink_.lose("names that are no UTF-8", names_.unclean());
    sink_.lose("GPU rows of the user's ranges, left out: copies of the host's", gpu_annotations_);
    return sink_.finish();
  }

 private:
  // The GPU's rows belong to the process that launches, which is one as a rule.
  void find_processes() {
    std::map<std::int64_t, std::uint64_t> launchers;
    for (const EventBlock& block : events_.blocks) {
      for (const RawEvent& event : block.events) {
        const Id& pid = names_.places()[names_.place(block, event.place)].pid;
        if (pid.is_text) continue;
        if (event.category == Category::runtime) launchers[pid.value] += 1;
        if (event.category == Category::op) launchers[pid.value] += 0;
      }
    }
    const auto most = std::ranges::max_element(launchers, {}, [](const auto& one) { return one.second; });
    if (most != launchers.end()) main_pid_ = most->first;
    const auto many = std::ranges::count_if(launchers, [](const auto& one) { return one.second > 0; });
    rank_ = rank_of(events_.head.distributed_info);
    if (many > 1) find_owners();
  }

  static int rank_of(std::string_view info) {
    const std::size_t at = info.find("\"rank\"");
    if (at == info.npos) return -1;
    std::size_t from = info.find(':', at);
    if (from == info.npos) return -1;
    from = info.find_first_not_of(" \n\t\r\"", from + 1);
    if (from == info.npos || info[from] < '0' || info[from] > '9') return -1;
    int rank = 0;
    for (; from < info.size() && info[from] >= '0' && info[from] <= '9' && rank < 100'000'000; ++from) {
      rank = rank * 10 + (info[from] - '0');
    }
    return rank;
  }

  // The process of every correlation's call; none where several have it.
  void find_owners() {
    for (const EventBlock& block : events_.blocks) {
      for (const RawEvent& event : block.events) {
        if (event.category != Category::runtime || event.correlation == 0) continue;
        const std::int64_t pid = names_.places()[names_.place(block, event.place)].pid.value;
        const auto [found, is_new] = owners_.try_emplace(event.correlation, pid);
        if (!is_new && found->second != pid) found->second = kSeveral;
      }
    }
  }

  // Ranks are set by the wall clock beside each other. Times count from baseTimeNanoseconds, or from 1970 before 2024.
  void add_clock() {
    constexpr std::int64_t kFirst = 1'600'000'000'000'000'000, kYears = std::int64_t{1} << 58;  // 2020, about nine
    if (first_ns_ == std::numeric_limits<std::int64_t>::max()) return;
    const std::int64_t base = events_.head.base_time_ns;
    if (base < 0 || base >= kFirst + kYears) return;
    const std::int64_t wall = base + first_ns_;
    if (wall < kFirst || wall >= kFirst + kYears) return;
    sink_.trace().add_anchor(process(main_pid_), fmt::format("trace of rank {} ?", rank_),
                             {first_ns_, wall - kFirst, wall});
  }

  // Those that did something; the file names all of its host. ROCm counts CPUs too where it says who ran a kernel: then
  // the numbers are others, which does not matter where all devices are alike.
  void add_devices() {
    std::set<std::int32_t> seen;
    for (const Track& track : sink_.trace().tracks()) {
      if (track.kind != TrackKind::thread) seen.insert(track.device);
    }
    const std::vector<Limit> named = devices_of(events_.head.device_properties);
    const bool are_alike = std::ranges::all_of(named, [&](const Limit& one) { return one.name == named[0].name; });
    for (const std::int32_t device : seen) {
      const auto own = std::ranges::find(named, device, &Limit::device);
      if (own == named.end() && (named.empty() || !are_alike)) continue;
      Limit limit = own != named.end() ? *own : named[0];
      limit.device = device;
      sink_.trace().add_limit(limit);
    }
  }

  void find_steps() {
    for (const EventBlock& block : events_.blocks) {
      for (const RawEvent& event : block.events) {
        if (event.phase == 'X' && event.has_start && event.start_ns > 0 && event.category != Category::trace) {
          first_ns_ = std::min(first_ns_, event.start_ns);
        }
        if (event.category == Category::runtime && is_blocking_copy(block, event)) blocking_.insert(event.correlation);
        if (event.category != Category::annotation || event.phase != 'X') continue;
        std::string_view name;
        if (is_step_name(names_.raw(block, event.name), &name)) steps_.push_back(event.start_ns);
      }
    }
    std::ranges::sort(steps_);
  }

  bool is_blocking_copy(const EventBlock& block, const RawEvent& event) const {
    const std::string_view name = names_.raw(block, event.name);
    return name.find("Memcpy") != name.npos && !is_async_copy(name);
  }

  // The number of the step in which it begins; before the first 0.
  std::uint32_t step_at(std::int64_t ns) const {
    return static_cast<std::uint32_t>(std::ranges::upper_bound(steps_, ns) - steps_.begin());
  }

  ProcessId process(std::int64_t pid) {
    const auto [found, is_new] = processes_.try_emplace(pid, 0);
    if (is_new) found->second = sink_.process(pid, pid == main_pid_ ? rank_ : -1);
    return found->second;
  }

  TrackId thread(std::uint32_t place) {
    if (threads_.size() <= place) threads_.resize(names_.places().size(), kNone);
    TrackId& track = threads_[place];
    if (track == kNone) {
      const JsonNames::Place& own = names_.places()[place];
      std::string name(own.thread);
      while (name.ends_with(' ')) name.pop_back();
      const std::int64_t tid = own.tid.is_text ? -2 - own.tid.value : own.tid.value;
      if (name.empty() && own.tid.is_text) name = sink_.trace().text(static_cast<StringId>(own.tid.value));
      track = sink_.thread(process(own.pid.is_text ? main_pid_ : own.pid.value), tid, name);
    }
    return track;
  }

  TrackId stream(const RawEvent& event, const EventArgs& args) {
    const JsonNames::Place& own = names_.places()[place_];
    const auto text_of = [&](const Id& id) { return sink_.trace().text(static_cast<StringId>(id.value)); };
    std::int64_t device = own.pid.is_text ? last_number(text_of(own.pid)).value_or(0) : own.pid.value;
    std::int64_t number = own.tid.is_text ? last_number(text_of(own.tid)).value_or(0) : own.tid.value;
    device = args.integer(ArgKey::device, device);
    number = args.integer(ArgKey::stream, number);
    std::int64_t pid = main_pid_;
    if (const auto owner = owners_.find(event.correlation); owner != owners_.end() && owner->second != kSeveral) {
      pid = owner->second;
    }
    return sink_.stream(process(pid), device, number);
  }

  void add(const EventBlock& block, const RawEvent& event) {
    place_ = names_.place(block, event.place);
    switch (event.phase) {
      case 'X': break;
      case 'i':
      case 'I':
      case 'R': return add_instant(block, event);
      case 'M': return;
      default: sink_.lose(fmt::format("events of phase '{}', left out", event.phase)); return;
    }
    if (!event.has_start) return sink_.lose("events without a time", 1, Note::Kind::timeless);
    if (is_gpu_work(event.category)) return add_gpu_work(block, event);
    Span span{.start_ns = event.start_ns, .duration_ns = event.duration_ns};
    switch (event.category) {
      case Category::op: return add_op(block, event);
      case Category::annotation: span.site = annotation(block, event); break;
      case Category::runtime: span.site = call(block, event); break;
      case Category::python: span.site = frame(block, event); break;
      case Category::gpu_annotation: ++gpu_annotations_; return;
      case Category::sync: return add_wait(block, event);
      case Category::trace: return;
      case Category::overhead:
        sink_.add({.track = sink_.thread(process(main_pid_), kOverheadThread, kOverheadTrack),
                   .site = overhead(block, event),
                   .start_ns = event.start_ns,
                   .duration_ns = event.duration_ns});
        return;
      default: span.site = site(hosts_, block, event, SpanKind::host); break;
    }
    span.track = thread(place_);
    span.correlation = event.correlation;
    if (is_step_) span.run = step_at(event.start_ns);
    is_step_ = false;
    const SpanId id = sink_.add(span);
    if (event.category == Category::runtime && may_wait(block, event)) waits_.add_call(event.correlation, id);
  }

  bool may_wait(const EventBlock& block, const RawEvent& event) {
    std::int8_t& known = may_wait_.at(block, event.name);
    if (known < 0) known = KinetoWaits::may_wait(names_.raw(block, event.name)) ? 1 : 0;
    return known == 1;
  }

  void add_wait(const EventBlock& block, const RawEvent& event) {
    const EventArgs args(block, event);
    const std::uint32_t kind = args.text(ArgKey::sync_kind);
    waits_.add({.correlation = event.correlation,
                .kind = names_.text(block, kind != 0 ? kind : event.name),
                .stream = args.integer(ArgKey::stream, -1),
                .event_stream = args.integer(ArgKey::event_stream, -1),
                .recorded_by = args.integer(ArgKey::event_record, -1)});
  }

  SiteId site(PerRaw<SiteId>& sites, const EventBlock& block, const RawEvent& event, SpanKind kind) {
    SiteId& id = sites.at(block, event.name);
    if (id == kNone) id = sink_.site({.kind = kind, .name = names_.text(block, event.name)});
    return id;
  }
  SiteId call(const EventBlock& block, const RawEvent& event) {
    SiteId& id = calls_.at(block, event.name);
    if (id == kNone) {
      id = sink_.site({.kind = kind_of_call(names_.raw(block, event.name)), .name = names_.text(block, event.name)});
    }
    return id;
  }
  SiteId frame(const EventBlock& block, const RawEvent& event) { return site(frames_, block, event, SpanKind::frame); }

  // CUPTI's rows: the driver loads and compiles, a full queue makes wait; the rest is the profiler's.
  SiteId overhead(const EventBlock& block, const RawEvent& event) {
    const std::string_view name = names_.raw(block, event.name);
    SpanKind kind = SpanKind::recording;
    if (name.find("Loading") != name.npos || name.find("Compiler") != name.npos) kind = SpanKind::compile;
    if (name == "Command Buffer Full") kind = SpanKind::wait;
    return sink_.site({.kind = kind, .name = names_.text(block, event.name)});
  }

  SiteId annotation(const EventBlock& block, const RawEvent& event) {
    std::string_view step;
    is_step_ = is_step_name(names_.raw(block, event.name), &step);
    SiteId& id = annotations_.at(block, event.name);
    if (id == kNone) {
      const bool feeds = is_feed(names_.raw(block, event.name));
      id = sink_.site({.kind = is_step_ ? SpanKind::step
                               : feeds  ? SpanKind::feed
                                        : SpanKind::range,
                       .name = is_step_ ? sink_.text(step) : names_.text(block, event.name)});
    }
    return id;
  }

  static bool is_feed(std::string_view name) { return name.starts_with("enumerate(DataLoader)"); }

  void add_op(const EventBlock& block, const RawEvent& event) {
    const std::uint32_t run = step_at(event.start_ns);
    const StringId scope = scopes_.at(place_, event.start_ns);
    SiteId id = kNone;
    if (scope == 0) {
      SiteId& known = ops_.at(block, event.name);
      if (known == kNone) known = op_site(block, event, 0);
      id = known;
    } else {
      id = op_site(block, event, scope);
    }
    const SpanId span = sink_.add({.track = thread(place_),
                                   .site = id,
                                   .start_ns = event.start_ns,
                                   .duration_ns = event.duration_ns,
                                   .run = run});
    if (span == kNone) return;
    const EventArgs args(block, event);
    if (const auto shapes = args.text(ArgKey::shapes); shapes != 0) argue(span, shapes_, names_.text(block, shapes));
    if (const auto types = args.text(ArgKey::types); types != 0) argue(span, types_, names_.text(block, types));
    if (const auto concrete = args.text(ArgKey::concrete); concrete != 0)
      argue(span, concrete_, names_.text(block, concrete));
    if (const auto sequence = args.bits(ArgKey::sequence)) {
      count(span, sequence_, static_cast<std::int64_t>(*sequence));
    }
  }

  SiteId op_site(const EventBlock& block, const RawEvent& event, StringId scope) {
    const bool feeds = is_feed(names_.raw(block, event.name));
    const StringId name = names_.text(block, event.name);
    if (feeds) return sink_.site({.kind = SpanKind::feed, .name = name});
    return sink_.site({.kind = SpanKind::op, .op = name, .scope = scope});
  }

  void add_gpu_work(const EventBlock& block, const RawEvent& event) {
    if (event.start_ns == 0 && event.duration_ns == 0) {
      return sink_.lose("work of GPUs that was not stamped", 1, Note::Kind::timeless);
    }
    const EventArgs args(block, event);
    const std::int64_t bytes = args.integer(ArgKey::bytes, -1);
    const TrackId track = stream(event, args);
    CopyName copy;
    SiteId id = kNone;
    if (event.category == Category::kernel) {
      SiteId& known = kernels_.at(block, event.name);
      if (known == kNone) {
        const StringId name = names_.text(block, event.name);
        known = sink_.site({.kind = SpanKind::kernel, .name = name, .kernel = name});
      }
      id = known;
    } else if (event.category == Category::memset) {
      id = site(sets_, block, event, SpanKind::memset);
    } else {
      copy = copy_of_name(names_.raw(block, event.name));
      id = sink_.site({.kind = SpanKind::memcpy,
                       .name = names_.text(block, event.name),
                       .copy = copy.copy,
                       .async = !blocking_.contains(event.correlation)});
    }
    const SpanId span = sink_.add({.track = track,
                                   .site = id,
                                   .start_ns = event.start_ns,
                                   .duration_ns = event.duration_ns,
                                   .correlation = event.correlation,
                                   .bytes = bytes});
    if (span == kNone) return;
    if (!copy.memory.empty()) argue(span, memory_, sink_.text(copy.memory));
    if (event.category != Category::kernel) return;
    if (const auto grid = args.text(ArgKey::grid); grid != 0) argue(span, grid_, extent(block, grid));
    if (const auto size = args.text(ArgKey::block); size != 0) argue(span, block_, extent(block, size));
    if (const auto each = args.bits(ArgKey::registers)) count(span, registers_, static_cast<std::int64_t>(*each));
    if (const auto bytes_of = args.bits(ArgKey::shared)) count(span, shared_, static_cast<std::int64_t>(*bytes_of));
    // A kernel that ran occupied something: Kineto writes 0 where it does not know.
    if (const auto real = args.bits(ArgKey::occupancy); real && std::bit_cast<double>(*real) > 0) {
      sink_.trace().add_argument(span, id_of(occupancy_), std::bit_cast<double>(*real));
    }
    if (const auto name = args.text(ArgKey::collective); name != 0) {
      argue(span, collective_, names_.text(block, name));
    }
  }

  StringId extent(const EventBlock& block, std::uint32_t raw) {
    const StringId list = names_.text(block, raw);
    const auto [found, is_new] = extents_.try_emplace(list, 0);
    if (is_new) found->second = sink_.text(extents(sink_.trace().text(list)));
    return found->second;
  }

  // Those of memory say how much is held; others are marks.
  void add_instant(const EventBlock& block, const RawEvent& event) {
    if (!event.has_start) return sink_.lose("events without a time", 1, Note::Kind::timeless);
    if (!sink_.is_sound(event.start_ns, 0)) return;
    if (event.category == Category::memory) {
      const EventArgs args(block, event);
      const bool on_gpu = args.integer(ArgKey::device_type, 1) != 0;
      const int device =
          on_gpu ? static_cast<int>(std::clamp<std::int64_t>(args.integer(ArgKey::device, 0), 0, 4095)) : -1;
      if (const auto held = args.bits(ArgKey::allocated)) {
        const CounterId counter = sink_.trace().add_counter(device, "tensors", process(main_pid_));
        sink_.trace().add_sample({counter, event.start_ns, static_cast<std::int64_t>(*held)});
      }
      return;
    }
    if (names_.places()[place_].pid.is_text) return;  // marks of the profiler's own
    sink_.add(
        {.track = thread(place_), .site = site(marks_, block, event, SpanKind::instant), .start_ns = event.start_ns});
  }

  // Made when the first argument of it comes.
  struct Column {
    std::string_view name;
    ArgumentType type;
    ColumnId id = kNone;
  };
  ColumnId id_of(Column& column) {
    if (column.id == kNone) column.id = sink_.trace().add_column(column.name, column.type);
    return column.id;
  }
  void argue(SpanId span, Column& column, StringId text) { sink_.trace().add_text_argument(span, id_of(column), text); }
  void count(SpanId span, Column& column, std::int64_t value) {
    sink_.trace().add_argument(span, id_of(column), value);
  }

  static constexpr std::int64_t kSeveral = -1, kOverheadThread = std::numeric_limits<std::int64_t>::min();

  JsonEvents& events_;
  const TraceFile& file_;
  TraceSink sink_;
  JsonNames names_;
  ModuleScopes scopes_;
  KinetoWaits waits_;
  PerRaw<std::int8_t> may_wait_{events_, -1};
  PerRaw<SiteId> ops_, calls_, annotations_, frames_, hosts_, kernels_, sets_, marks_{events_, kNone};
  std::map<std::int64_t, ProcessId> processes_;
  std::unordered_map<std::uint32_t, std::int64_t> owners_;  // of correlations: processes, where several launch
  std::unordered_set<std::uint32_t> blocking_;              // correlations of copies that the host waited for
  std::unordered_map<StringId, StringId> extents_;
  Column shapes_{argument::kShapes, ArgumentType::text}, types_{argument::kTypes, ArgumentType::text},
      concrete_{argument::kConcrete, ArgumentType::text}, sequence_{argument::kSequence, ArgumentType::integer},
      memory_{argument::kMemory, ArgumentType::text}, grid_{argument::kGrid, ArgumentType::text},
      block_{argument::kBlock, ArgumentType::text}, registers_{argument::kRegisters, ArgumentType::integer},
      shared_{argument::kShared, ArgumentType::integer}, occupancy_{argument::kOccupancy, ArgumentType::real},
      collective_{argument::kCollective, ArgumentType::text};
  std::vector<TrackId> threads_;  // by place
  std::vector<std::int64_t> steps_;
  std::int64_t main_pid_ = 0, first_ns_ = std::numeric_limits<std::int64_t>::max();
  int rank_ = -1;
  std::uint32_t place_ = 0;  // of the event at hand
  bool is_step_ = false;     // it is one
  std::uint64_t gpu_annotations_ = 0;
};

}  // namespace

bool is_kineto(const JsonEvents& events) {
  if (events.head.has_schema) return true;
  bool has_work = false, has_others = !events.losses.categories.empty();
  for (const EventBlock& block : events.blocks) {
    for (const RawEvent& event : block.events) {
      switch (event.category) {
        case Category::none:
        case Category::other: break;
        case Category::kernel:
        case Category::memcpy:
        case Category::memset: has_work = true; break;  // timelines of others have such words too
        default: return true;
      }
    }
  }
  return has_work && !has_others;
}

Trace build_kineto(JsonEvents& events, const TraceFile& file) { return Kineto(events, file).build(); }

}  // namespace paoding::trace
