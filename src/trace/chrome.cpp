// SPDX-License-Identifier: Apache-2.0
// Chrome's trace format as XLA (JAX), TensorFlow and others write it: processes and threads say by their names whether
// they are a GPU's streams; ops by arguments of the kernels.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "trace/api_names.h"
#include "trace/json_build.h"

namespace paoding::trace {

using namespace profile;

namespace {

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

// The number behind a word: 3 of "/device:GPU:3 (pid 4)" behind "GPU:"; -1 where there is none.
int number_behind(std::string_view text, std::string_view word) {
  std::size_t at = text.find(word);
  if (at == text.npos) return -1;
  at += word.size();
  int number = -1;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9' && number < 100'000'000; ++at) {
    number = std::max(number, 0) * 10 + (text[at] - '0');
  }
  return number;
}

// What lines of a device are: its streams, or rows that XLA made of them.
enum class Line : std::uint8_t { host, stream, derived };

struct Where {
  Line line = Line::host;
  int device = 0;
  bool is_timeline = false;  // of TensorFlow 1: a process for each device
};

Where where_is(const JsonNames::Place& place) {
  Where where;
  const std::string_view process = place.process, thread = place.thread;
  int device = number_behind(process, "/device:GPU:");
  if (device < 0) device = number_behind(process, "/gpu:");
  if (device < 0) device = number_behind(process, "/device:TPU:");
  const bool is_of_ours = process.starts_with("GPU ") || contains(process, " GPU ");  // timelines of paoding
  if (device < 0 && is_of_ours) device = number_behind(process, "GPU ");
  where.is_timeline = process.ends_with(" Compute") || process.ends_with(" Tensors");
  if (device < 0) return where;
  where.device = device;
  where.line = Line::stream;
  static constexpr std::string_view kDerived[] = {
      "XLA Modules", "XLA Ops",      "XLA TraceMe",          "Steps",          "Framework Ops",
      "Source code", "Launch Stats", "Framework Name Scope", "TensorFlow Ops", "TensorFlow Name Scope"};
  const auto is_of = [&](std::string_view name) { return thread.starts_with(name); };
  if (std::ranges::any_of(kDerived, is_of) || contains(process, "stream:all") || process.ends_with(" Tensors")) {
    where.line = Line::derived;
  }
  return where;
}

// "fusion" of "fusion.12".
std::string_view without_number(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  const bool is_numbered = dot != name.npos && dot > 0 && dot + 1 < name.size() &&
                           name.find_first_not_of("0123456789", dot + 1) == name.npos;
  return is_numbered ? name.substr(0, dot) : name;
}

bool has_xplane_beside(const TraceFile& file) {
  if (!file.is_on_disk()) return false;
  std::error_code problem;
  const std::filesystem::path folder = std::filesystem::path(file.name()).parent_path();
  for (const auto& entry : std::filesystem::directory_iterator(folder.empty() ? "." : folder, problem)) {
    if (entry.path().filename().string().ends_with(".xplane.pb")) return true;
  }
  return false;
}

class Chrome {
 public:
  Chrome(JsonEvents& events, const TraceFile& file)
      : events_(events), file_(file), sink_(source_of(events)), names_(events, sink_), hosts_(events, kNone) {}

  Trace build() {
    for (const JsonNames::Place& place : names_.places()) wheres_.push_back(where_is(place));
    find_launching_process();
    for (const EventBlock& block : events_.blocks) {
      for (const RawEvent& event : block.events) add(block, event);
    }
    for (auto& [place, ends] : ends_) pair_ends(place, ends);
    if (is_capped_) sink_.lose("limit of XLA's for events in such a file; its .xplane.pb has all of them");
    if (events_.head.has_jax_metadata && has_xplane_beside(file_)) {
      sink_.lose("this was made from an .xplane.pb, which lies beside it and says more");
    }
    note_losses(events_, file_, sink_);
    sink_.lose("names that are no UTF-8", names_.unclean());
    sink_.lose("rows that XLA or TensorFlow made of others, left out", derived_);
    sink_.lose("values of counters, left out", counters_);
    return sink_.finish();
  }

 private:
  // XLA's and TensorFlow's name devices, in the metadata that stands in front.
  static Source source_of(const JsonEvents& events) {
    if (events.head.has_jax_metadata) return Source::jax;
    Source found = Source::chrome;
    for (const EventBlock& block : events.blocks) {
      for (const RawEvent& event : block.events) {
        if (event.phase != 'M') continue;
        const auto& strings = events.names[block.names]->strings;
        const std::string_view name = strings[EventArgs(block, event).text(ArgKey::name)];
        if (name.starts_with("/job:")) return Source::tensorflow;
        if (name.starts_with("/device:") || name == "/host:CPU") found = Source::jax;
      }
    }
    return found;
  }

  // Of the devices, which are processes in the file, it is the host's.
  void find_launching_process() {
    std::map<std::int64_t, std::uint64_t> hosts;
    std::uint64_t count = 0;
    for (const EventBlock& block : events_.blocks) {
      count += block.events.size();
      for (const RawEvent& event : block.events) {
        const std::uint32_t place = names_.place(block, event.place);
        const Id& pid = names_.places()[place].pid;
        if (event.phase == 'M' || pid.is_text || wheres_[place].line != Line::host) continue;
        hosts[pid.value] += event.correlation != 0 ? 1000 : 1;
      }
    }
    sink_.trace().reserve(count);
    constexpr std::uint64_t kMostOfXla = 1'000'000;
    is_capped_ = events_.head.has_jax_metadata && count >= kMostOfXla;
    const auto most = std::ranges::max_element(hosts, {}, [](const auto& one) { return one.second; });
    if (most != hosts.end()) main_pid_ = most->first;
  }

  ProcessId process(std::int64_t pid) {
    const auto [found, is_new] = processes_.try_emplace(pid, 0);
    if (is_new) found->second = sink_.process(pid);
    return found->second;
  }

  // Processes that are called by a text, and devices, are the main one's.
  TrackId track(std::uint32_t place) {
    if (tracks_.size() <= place) tracks_.resize(names_.places().size(), kNone);
    TrackId& track = tracks_[place];
    if (track != kNone) return track;
    const JsonNames::Place& own = names_.places()[place];
    const Where& where = wheres_[place];
    const auto text_of = [&](const Id& id) { return sink_.trace().text(static_cast<StringId>(id.value)); };
    std::string name(own.thread);
    if (name.empty() && own.tid.is_text) name = text_of(own.tid);
    const std::int64_t tid = own.tid.is_text ? -2 - own.tid.value : own.tid.value;
    if (where.line == Line::stream) {
      const int numbered = number_behind(name, "Stream #");
      if (name.empty() && where.is_timeline) name = own.process;
      // Each process of TensorFlow's timeline is a stream, whose threads are its lanes.
      const std::int64_t number = where.is_timeline ? own.pid.value : numbered >= 0 ? numbered : tid;
      return track = sink_.stream(process(main_pid_), where.device, number,
                                  numbered >= 0 ? fmt::format("stream {}", numbered) : name);
    }
    const bool is_own = !own.pid.is_text && !where.is_timeline;
    const std::int64_t lane = is_own ? tid : tid * 1'000'003 + (own.pid.is_text ? ~own.pid.value : own.pid.value);
    if (name.empty() && !is_own) name = fmt::format("{} {}", own.pid.is_text ? text_of(own.pid) : own.process, tid);
    return track = sink_.thread(process(is_own ? own.pid.value : main_pid_), lane, name);
  }

  void add(const EventBlock& block, const RawEvent& event) {
    const std::uint32_t place = names_.place(block, event.place);
    if (event.phase == 'M') return;
    if (wheres_[place].line == Line::derived) {
      ++derived_;
      return;
    }
    if (!event.has_start) return sink_.lose("events without a time", 1, Note::Kind::timeless);
    switch (event.phase) {
      case 'X': return add_span(block, event, place, event.start_ns, event.duration_ns);
      case 'B':
      case 'E': ends_[place].push_back({&block, &event}); return;
      case 'i':
      case 'I':
      case 'R':
        if (!sink_.is_sound(event.start_ns, 0)) return;
        sink_.add({.track = track(place), .site = site(block, event, SpanKind::instant), .start_ns = event.start_ns});
        return;
      case 'C': ++counters_; return;
      case 'b':
      case 'n':
      case 'e':
      case 'S':
      case 'T':
      case 'p':
      case 'F': return sink_.lose("events that are on no thread (asynchronous ones), left out");
      default: return sink_.lose(fmt::format("events of phase '{}', left out", printable(event.phase)));
    }
  }

  static char printable(char c) { return c >= ' ' && c <= '~' ? c : '?'; }

  struct End {
    const EventBlock* block;
    const RawEvent* event;
  };

  // An end is that of the last one that began on its thread.
  void pair_ends(std::uint32_t place, std::vector<End>& ends) {
    std::ranges::stable_sort(ends, {}, [](const End& end) { return end.event->start_ns; });
    std::vector<End> open;
    for (const End& end : ends) {
      if (end.event->phase == 'B') {
        open.push_back(end);
      } else if (open.empty()) {
        sink_.lose("ends without a beginning, left out", 1, Note::Kind::timeless);
      } else {
        const auto [block, event] = open.back();
        open.pop_back();
        add_span(*block, *event, place, event->start_ns, end.event->start_ns - event->start_ns);
      }
    }
    sink_.lose("beginnings without an end, left out", open.size(), Note::Kind::timeless);
  }

  SiteId site(const EventBlock& block, const RawEvent& event, SpanKind kind) {
    return sink_.site({.kind = kind, .name = names_.text(block, event.name)});
  }

  void add_span(const EventBlock& block, const RawEvent& event, std::uint32_t place, std::int64_t start,
                std::int64_t duration) {
    if (wheres_[place].line == Line::stream) return add_gpu_work(block, event, place, start, duration);
    SiteId& known = hosts_.at(block, event.name);
    const EventArgs args(block, event);
    SiteId id = known;
    if (event.correlation != 0 || id == kNone) {
      Place of = host_place(block, event, place, args);
      id = sink_.site(of);
      if (event.correlation == 0 && of.instance == 0) known = id;
    }
    sink_.add({.track = track(place),
               .site = id,
               .start_ns = start,
               .duration_ns = duration,
               .correlation = event.correlation});
  }

  Place host_place(const EventBlock& block, const RawEvent& event, std::uint32_t place, const EventArgs& args) {
    const StringId text = names_.text(block, event.name);
    const std::string_view name = sink_.trace().text(text);
    if (wheres_[place].is_timeline) {
      const StringId op = names_.text(block, args.text(ArgKey::op));
      return {.kind = SpanKind::op, .op = op == 0 ? text : op, .instance = names_.text(block, args.text(ArgKey::name))};
    }
    if (name.starts_with('$')) return {.kind = SpanKind::frame, .name = text};
    if (args.bits(ArgKey::step)) return {.kind = SpanKind::step, .name = text};
    const std::string_view call = name.substr(0, name.find(" ("));
    SpanKind kind = kind_of_call(call);
    if (event.correlation != 0 && kind == SpanKind::host) kind = SpanKind::launch;  // called by the kernel's name
    return {.kind = kind, .name = text};
  }

  void add_gpu_work(const EventBlock& block, const RawEvent& event, std::uint32_t place, std::int64_t start,
                    std::int64_t duration) {
    const EventArgs args(block, event);
    const StringId text = names_.text(block, event.name);
    const std::string_view details = names_.raw(block, args.text(ArgKey::details));
    const std::string_view name = sink_.trace().text(text);
    Place of{.kind = SpanKind::kernel, .name = text};
    std::int64_t bytes = -1;
    if (contains(name, "memset") || contains(name, "Memset")) of.kind = SpanKind::memset;
    const CopyName copy = copy_of_name(name);
    if (name.starts_with("Memcpy") && copy.copy != Copy::none) {
      of.kind = SpanKind::memcpy;
      of.copy = copy.copy;
      of.async = contains(details, "async:1");
      if (const int size = number_behind(details, "size:"); size >= 0) bytes = size;
    }
    name_op(block, args, &of);
    if (of.kind == SpanKind::kernel) of.kernel = text;
    const SpanId span = sink_.add({.track = track(place),
                                   .site = sink_.site(of),
                                   .start_ns = start,
                                   .duration_ns = duration,
                                   .correlation = event.correlation,
                                   .bytes = bytes});
    if (span != kNone && of.kind == SpanKind::kernel && !details.empty()) add_details(span, details);
  }

  // "jit(f)/transformer/dot_general" is op dot_general in scope jit(f)/transformer.
  void name_op(const EventBlock& block, const EventArgs& args, Place* of) {
    const std::string_view path = sink_.trace().text(names_.text(block, args.text(ArgKey::name)));
    const std::string_view hlo = sink_.trace().text(names_.text(block, args.text(ArgKey::hlo_op)));
    if (const StringId op = names_.text(block, args.text(ArgKey::op)); op != 0) {  // of TensorFlow
      of->op = op;
      of->instance = names_.text(block, args.text(ArgKey::name));
      return;
    }
    const std::size_t slash = path.rfind('/');
    if (slash != path.npos && slash + 1 < path.size()) {
      of->op = sink_.text(std::string(path.substr(slash + 1)));
      of->scope = sink_.text(std::string(path.substr(0, slash)));
    } else if (!hlo.empty()) {
      of->op = sink_.text(std::string(without_number(hlo)));
      of->scope = names_.text(block, args.text(ArgKey::hlo_module));
    }
    if (of->op != 0) of->instance = names_.text(block, args.text(ArgKey::hlo_op));
  }

  // "regs:121 static_shared:0 dynamic_shared:32768 grid:128,1,1 block:64,1,1 occ_pct:21.875"
  void add_details(SpanId span, std::string_view details) {
    const auto part = [&](std::string_view word) {
      const std::size_t at = details.find(word);
      if (at == details.npos) return std::string_view();
      const std::string_view from = details.substr(at + word.size());
      return from.substr(0, from.find(' '));
    };
    constexpr int kMostRegisters = 1024;  // ROCm's are garbage
    Trace& trace = sink_.trace();
    if (const int count = number_behind(details, "regs:"); count > 0 && count < kMostRegisters) {
      trace.add_argument(span, trace.add_column(argument::kRegisters, ArgumentType::integer), std::int64_t{count});
    }
    for (const auto& [word, name] : {std::pair("grid:", argument::kGrid), {"block:", argument::kBlock}}) {
      const std::string text = extents(part(word));
      if (!text.empty()) trace.add_argument(span, trace.add_column(name, ArgumentType::text), text);
    }
  }

  JsonEvents& events_;
  const TraceFile& file_;
  TraceSink sink_;
  JsonNames names_;
  PerRaw<SiteId> hosts_;
  std::vector<Where> wheres_;    // by place
  std::vector<TrackId> tracks_;  // by place
  std::map<std::int64_t, ProcessId> processes_;
  std::map<std::uint32_t, std::vector<End>> ends_;  // and beginnings, by place
  std::int64_t main_pid_ = 0;
  bool is_capped_ = false;
  std::uint64_t derived_ = 0, counters_ = 0;
};

}  // namespace

Trace build_chrome(JsonEvents& events, const TraceFile& file) { return Chrome(events, file).build(); }

}  // namespace paoding::trace
