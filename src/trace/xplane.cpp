// SPDX-License-Identifier: Apache-2.0
#include "trace/xplane.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "base/one_line.h"
#include "trace/api_names.h"
#include "trace/hlo.h"
#include "trace/sink.h"
#include "trace/xplane_plane.h"

namespace paoding::trace {
namespace {

using namespace profile;

constexpr std::string_view kGpuPlane = "/device:GPU:", kTpuPlane = "/device:TPU:", kHostPlane = "/host:CPU",
                           kProgramPlane = "/host:metadata", kTaskPlane = "Task Environment";

// The number at the beginning; 0 where there is none, or it is too large.
std::int64_t number_at(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  return problem == std::errc{} ? number : 0;
}

// The text behind "word:" up to a blank; empty where the word is missing.
std::string_view detail(std::string_view details, std::string_view word) {
  for (std::size_t at = details.find(word); at != details.npos; at = details.find(word, at + 1)) {
    const std::size_t value = at + word.size();
    if ((at > 0 && details[at - 1] != ' ') || value >= details.size() || details[value] != ':') continue;
    return details.substr(value + 1, details.find(' ', value) - value - 1);
  }
  return {};
}

// Rounded down on both sides of 0.
std::int64_t ns_of(std::int64_t ps) { return ps / 1000 - (ps % 1000 < 0 ? 1 : 0); }

// "jit_step(7962)" and the like: the name of a module where it is kept.
std::string module_key(std::string_view module, std::uint64_t program) {
  return fmt::format("{}({})", module, program);
}

// The programs of the file, each decoded when it is first asked for.
class Programs {
 public:
  void add(const XPlane& plane) {
    for (const std::uint64_t id : plane.metadata_ids()) {
      const XPlane::EventMetadata& own = plane.metadata(id);
      for (const XStat& stat : plane.stats_of(own)) {
        if (stat.is_text && (stat.name == "Hlo Proto" || stat.name == "hlo_proto"))
          texts_[std::string(own.name)] = stat.text;
      }
    }
  }
  HloModule* find(std::string_view module, std::uint64_t program) {
    const std::string key = module_key(module, program);
    const auto [found, is_new] = modules_.try_emplace(key);
    if (is_new) {
      auto text = texts_.find(key);
      if (text == texts_.end()) text = texts_.find(std::string(module));
      if (text != texts_.end()) found->second = std::make_unique<HloModule>(text->second);
    }
    return found->second.get();
  }

 private:
  std::map<std::string, std::string_view> texts_;
  std::map<std::string, std::unique_ptr<HloModule>> modules_;
};

// A kernel's launch as it is said in "regs:16 static_shared:0 dynamic_shared:0 grid:8,1,1 block:128,1,1".
struct KernelDetails {
  StringId grid = 0, block = 0;
  std::int64_t registers = -1, shared = -1;
  KernelDetails(std::string_view text, TraceSink& sink) {
    const auto size = [&](std::string_view word) {
      std::string value(detail(text, word).substr(0, 64));
      std::ranges::replace(value, ',', 'x');
      return sink.text(value);
    };
    grid = size("grid");
    block = size("block");
    // Some profiles of ROCm have arbitrary bytes in place of these.
    const auto count = [&](std::string_view word, std::int64_t most) -> std::int64_t {
      const std::string_view value = detail(text, word);
      const std::int64_t number = number_at(value);
      return value.empty() || number < 0 || number > most ? -1 : number;
    };
    registers = count("regs", 1 << 10);
    constexpr std::int64_t kMostShared = 1 << 24;
    for (const char* word : {"static_shared", "dynamic_shared", "group_mem"}) {
      if (const std::int64_t more = count(word, kMostShared); more >= 0)
        shared = std::max<std::int64_t>(shared, 0) + more;
    }
  }
};

struct CopyDetails {
  Copy copy = Copy::none;
  std::int64_t bytes = -1;
  std::string_view memory;
  bool async = false;
  CopyDetails(std::string_view name, std::string_view text) {
    const CopyName named = copy_of_name(name);
    const std::string_view from = detail(text, "kind_src"), to = detail(text, "kind_dst"), size = detail(text, "size");
    copy = named.copy;
    const auto is_host = [](std::string_view kind) { return kind == "pageable" || kind == "pinned" || kind == "host"; };
    if (copy == Copy::none && !from.empty() && !to.empty()) {
      copy = is_host(from) ? (is_host(to) ? Copy::host_to_host : Copy::host_to_device)
                           : (is_host(to) ? Copy::device_to_host : Copy::same_device);
    }
    if (!size.empty()) bytes = std::max<std::int64_t>(number_at(size), -1);
    for (const std::string_view kind : {from, to}) {
      if (kind == "pageable" || kind == "pinned") memory = kind;
    }
    async = detail(text, "async") == "1" || text.empty();
  }
};

class XPlaneReader {
 public:
  explicit XPlaneReader(std::string_view file) : file_(file) {}

  // Nothing where there are no planes.
  std::optional<Trace> read() {
    std::vector<XPlane> planes;
    WireReader all(file_);
    while (all.next()) {
      if (all.type() != WireType::bytes) continue;
      if (all.field() == 1) planes.emplace_back(all.bytes());
      if (all.field() == 2) note_text("the profiler says: error", all.bytes());
      if (all.field() == 3) note_text("the profiler says: warning", all.bytes());
    }
    if (planes.empty()) return {};
    if (all.is_broken()) sink().lose("stretches of the file that are broken or cut off, with all that was in them");
    std::size_t events = 0;
    for (const XPlane& plane : planes) {
      for (const XLine& line : plane.lines()) events += line.events;
    }
    constexpr std::size_t kLeastBytes = 8;  // of an event that is one
    sink().trace().reserve(std::min(events, file_.size() / kLeastBytes));
    for (const XPlane& plane : planes) {
      if (plane.is_broken()) sink().lose("planes that are broken, read as far as they go");
      add_facts(plane);
    }
    for (XPlane& plane : planes) {
      if (plane.name().starts_with(kGpuPlane) || plane.name().starts_with(kTpuPlane)) add_device(plane);
    }
    for (XPlane& plane : planes) {
      if (plane.name() == kHostPlane) add_host(plane);
    }
    if (const std::uint64_t dropped = broken_; dropped > 0) {
      sink().lose("events that are broken", dropped, Note::Kind::dropped);
    }
    sink().lose("lines that the profiler made from others, left out", derived_);
    return sink().finish();
  }

 private:
  TraceSink& sink() { return sink_; }

  void note_text(std::string_view what, std::string_view text) {
    sink().lose(fmt::format("{}: {}", what, one_line(text.substr(0, 200))));
  }

  void add_facts(const XPlane& plane) {
    if (plane.name() == kProgramPlane) programs_.add(plane);
    for (const XStat& stat : plane.stats()) {
      if (stat.name == "process_id" && !stat.is_text) pid_ = static_cast<std::int64_t>(stat.number);
      if (stat.name.find("dropped") != stat.name.npos && !stat.is_text && stat.number > 0) {
        sink().lose("events that the profiler dropped", stat.number, Note::Kind::dropped);
      }
    }
    if (plane.name() != kTaskPlane) return;
    if (const XStat* start = plane.stat("profile_start_time"); start != nullptr) {
      constexpr std::uint64_t kLatest = 2'200'000'000'000'000'000;
      if (start->number >= static_cast<std::uint64_t>(kSince1970) && start->number < kLatest) {
        profile_start_ns_ = static_cast<std::int64_t>(start->number);
      }
    }
  }

  ProcessId process() {
    if (!process_) process_ = sink().process(pid_);
    return *process_;
  }

  // Times of the wall clock: as the file has it, or since the profile began.
  static constexpr std::int64_t kSince1970 = 1'000'000'000'000'000'000;
  std::optional<std::pair<std::int64_t, std::int64_t>> times_of(const XLine& line, const XEvent& event) {
    constexpr std::int64_t kLongest = std::int64_t{1} << 61;
    std::int64_t end_ps = 0, base = line.timestamp_ns;
    if (event.offset_ps < 0 || event.duration_ps < 0 ||
        __builtin_add_overflow(event.offset_ps, event.duration_ps, &end_ps) || base <= -kLongest || base >= kLongest) {
      sink().is_sound(0, -1);
      return {};
    }
    if (base < kSince1970) base += profile_start_ns_;
    return std::pair(base + ns_of(event.offset_ps), base + ns_of(end_ps));
  }

  // ---- devices ----

  void add_device(XPlane& plane) {
    const bool is_gpu = plane.name().starts_with(kGpuPlane);
    const std::int64_t device = number_at(plane.name().substr(kGpuPlane.size()));
    if (const auto limit = limit_of(plane, device)) sink().trace().add_limit(*limit);
    const bool has_streams = std::ranges::any_of(plane.lines(), [](const XLine& line) { return is_stream(line); });
    std::int64_t other = 0;
    for (const XLine& line : plane.lines()) {
      // A plane without streams has ops only; modules and steps lie around them.
      const bool is_work = has_streams ? is_stream(line) : line.name == "XLA Ops" || line.name == "Async XLA Ops";
      if (!is_work) {
        derived_ += 1;
        continue;
      }
      const std::int64_t number = is_stream(line) ? number_at(line.name.substr(kStream.size())) : other++;
      const TrackId track = sink().stream(process(), device, number, is_stream(line) ? "" : line.title());
      std::unordered_set<std::uint64_t> around;
      if (!is_stream(line)) around = events_around_others(plane, line);
      add_work(plane, line, track, is_gpu, around);
    }
  }

  static constexpr std::string_view kStream = "Stream #";
  static bool is_stream(const XLine& line) { return line.name.starts_with(kStream); }

  // The op and the program of a kernel.
  struct Key {
    std::uint64_t metadata = 0, op = 0, module = 0, program = 0, name = 0, copy = 0;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      std::size_t hash = 0;
      for (const std::uint64_t part : {key.metadata, key.op, key.module, key.program, key.name, key.copy}) {
        hash = (hash ^ part) * 0x9e3779b97f4a7c15ull;
        hash ^= hash >> 29;
      }
      return hash;
    }
  };
  struct Work {
    SiteId site = 0;
    std::int64_t bytes = -1;
    double flops = -1;
    StringId shapes = 0, source = 0, memory = 0;
    bool is_kernel = false;
  };

  // Loops and calls: their numbers among the events of the line. Their members are there too.
  std::unordered_set<std::uint64_t> events_around_others(XPlane& plane, const XLine& line) {
    struct Stretch {
      std::int64_t start, end;
      std::uint64_t number;
    };
    std::vector<Stretch> all;
    std::uint64_t number = 0;
    plane.for_each_event(line, [&](const XEvent& event) {
      std::int64_t end = 0;
      if (!__builtin_add_overflow(event.offset_ps, event.duration_ps, &end))
        all.push_back({event.offset_ps, end, number});
      ++number;
    });
    std::ranges::stable_sort(all, {}, [](const Stretch& s) { return std::pair(s.start, -s.end); });
    std::unordered_set<std::uint64_t> around;
    for (std::size_t i = 0; i + 1 < all.size(); ++i) {
      if (all[i + 1].end <= all[i].end && all[i + 1].start < all[i].end) around.insert(all[i].number);
    }
    return around;
  }

  void add_work(XPlane& plane, const XLine& line, TrackId track, bool is_gpu,
                const std::unordered_set<std::uint64_t>& around) {
    std::unordered_map<Key, Work, KeyHash> works;
    std::unordered_map<XText, KernelDetails> details;
    std::uint64_t number = 0;
    broken_ += plane.for_each_event(line, [&](const XEvent& event) {
      if (around.contains(number++)) return sink().lose("ops around others, left out for what is in them");
      const auto times = times_of(line, event);
      if (!times) return;
      const auto fact = [&](XFact which) { return event.has_fact(which) ? event.fact(which) : 0; };
      const Key key{event.metadata,       fact(XFact::hlo_op),  fact(XFact::hlo_module),
                    fact(XFact::program), fact(XFact::op_name), fact(XFact::memcpy_details)};
      const auto [found, is_new] = works.try_emplace(key);
      if (is_new) found->second = work_of(plane, event, key, is_gpu);
      const Work& work = found->second;
      Span span{.track = track,
                .site = work.site,
                .start_ns = times->first,
                .duration_ns = times->second - times->first,
                .bytes = work.bytes,
                .flops = work.flops};
      if (event.has_fact(XFact::correlation)) {
        span.correlation = sink().correlation(event.fact(XFact::correlation));
        launched_.insert(event.fact(XFact::correlation));
      }
      const SpanId id = sink().add(span);
      if (id == kNone) return;
      add_arguments(id, work);
      if (!work.is_kernel || !event.has_fact(XFact::kernel_details)) return;
      const XText text = event.fact(XFact::kernel_details);
      const auto known = details.find(text);
      add_details(id, known != details.end()
                          ? known->second
                          : details.emplace(text, KernelDetails(plane.text(text), sink())).first->second);
    });
  }

  // Arguments that spans of many sites have, each of one type.
  class Column {
   public:
    Column(std::string_view name, ArgumentType type) : name_(name), type_(type) {}
    ColumnId id(Trace& trace) {
      if (id_ == kNone) id_ = trace.add_column(name_, type_);
      return id_;
    }

   private:
    const std::string_view name_;
    const ArgumentType type_;
    ColumnId id_ = kNone;
  };
  void add_text(SpanId id, Column& column, StringId text) {
    if (text != 0) sink().trace().add_text_argument(id, column.id(sink().trace()), text);
  }
  void add_number(SpanId id, Column& column, std::int64_t number) {
    if (number >= 0) sink().trace().add_argument(id, column.id(sink().trace()), number);
  }

  void add_arguments(SpanId id, const Work& work) {
    add_text(id, shapes_, work.shapes);
    add_text(id, source_, work.source);
    add_text(id, memory_, work.memory);
  }

  void add_details(SpanId id, const KernelDetails& details) {
    add_text(id, grid_, details.grid);
    add_text(id, block_, details.block);
    add_number(id, registers_, details.registers);
    add_number(id, shared_, details.shared);
  }

  Work work_of(XPlane& plane, const XEvent& event, const Key& key, bool is_gpu) {
    const std::string_view name = plane.metadata(event.metadata).title();
    Work work;
    Place place{.kind = SpanKind::kernel};
    std::string_view symbol = name;
    if (symbol.ends_with(".kd")) symbol.remove_suffix(3);
    place.name = sink().text(symbol);
    if (key.copy != 0 || name.starts_with("Memcpy")) {
      const CopyDetails copy(name, plane.text(key.copy));
      place.kind = SpanKind::memcpy;
      place.copy = copy.copy;
      place.async = copy.async;
      work.bytes = copy.bytes;
      work.memory = sink().text(copy.memory);
    } else if (name.starts_with("Memset")) {
      place.kind = SpanKind::memset;
    } else {
      work.is_kernel = true;
      if (is_gpu) place.kernel = place.name;
    }
    name_op(plane, key, symbol, &place, &work);
    if (work.bytes < 0 && event.has_fact(XFact::bytes_accessed)) {
      work.bytes =
          static_cast<std::int64_t>(std::min<std::uint64_t>(event.fact(XFact::bytes_accessed), std::uint64_t{1} << 60));
    }
    if (event.has_fact(XFact::flops)) work.flops = static_cast<double>(event.fact(XFact::flops));
    work.site = sink().site(place);
    return work;
  }

  // Named by the program's instruction that it is a kernel of; else by the event itself.
  void name_op(XPlane& plane, const Key& key, std::string_view symbol, Place* place, Work* work) {
    const std::string_view instruction = plane.text(key.op);
    std::string_view path = plane.text(key.name);
    if (instruction.empty() && path.empty()) return;
    HloModule* module = programs_.find(plane.text(key.module), key.program);
    const HloOp* op = module == nullptr ? nullptr : module->find(instruction);
    // Where many are launched as one the event names the launch; the kernel is called as its own instruction.
    if (op == nullptr && module != nullptr) op = module->find_kernel(symbol);
    std::string title;
    if (op != nullptr) {
      if (!op->op_name.empty()) path = op->op_name;
      if (path.empty()) title = op->opcode;
      if (op->members.size() > 1) title = fusion_title(*op);
      place->instance = sink().text(op->name);
      work->shapes = sink().text(op->operands.empty() ? op->shape : op->operands + " -> " + op->shape);
      work->source = sink().text(op->source);
      if (work->bytes < 0 && op->bytes > 0 && work->is_kernel) work->bytes = op->bytes;
      if (op->flops > 0) work->flops = op->flops;
    } else {
      place->instance = sink().text(instruction);
    }
    if (title.empty()) title = last_word(path);
    if (title.empty() && !is_launch_of_many(instruction)) title = instruction.substr(0, instruction.rfind('.'));
    place->op = sink().text(title);
    place->scope = sink().text(scope_of(path));
  }

  static bool is_launch_of_many(std::string_view instruction) { return instruction.starts_with("command_buffer"); }

  static std::string fusion_title(const HloOp& op) {
    std::vector<std::pair<std::string_view, int>> members;
    for (const std::string_view member : op.members) {
      const auto known = std::ranges::find(members, member, &std::pair<std::string_view, int>::first);
      if (known == members.end()) {
        members.push_back({member, 1});
      } else {
        known->second += 1;
      }
    }
    std::string title = "fusion: ";
    constexpr std::size_t kLongest = 60;
    for (const auto& [member, count] : members) {
      std::string part = title.ends_with(' ') ? "" : "+";
      part += member;
      if (count > 1) part += fmt::format("*{}", count);
      if (title.size() + part.size() > kLongest) return title + fmt::format("+...({} ops)", op.members.size());
      title += part;
    }
    return title;
  }

  // ---- the host ----

  void add_host(XPlane& plane) {
    std::set<std::string_view> names;
    std::int64_t others = 0;
    for (const XLine& line : plane.lines()) {
      std::string title(line.title());
      std::int64_t tid = --others;
      if (!names.insert(line.title()).second) title += fmt::format(" #{}", line.id);
      add_thread(plane, line, sink().thread(process(), tid, title));
    }
  }

  struct HostWork {
    SiteId site = 0;
    SpanKind kind = SpanKind::host;
  };

  void add_thread(XPlane& plane, const XLine& line, TrackId track) {
    std::unordered_map<std::uint64_t, HostWork> plain;  // by metadata and whether it launched
    std::unordered_map<Key, Work, KeyHash> ops;
    broken_ += plane.for_each_event(line, [&](const XEvent& event) {
      const auto times = times_of(line, event);
      if (!times) return;
      if (event.has_fact(XFact::bytes_allocated)) return add_sample(plane, event, times->first);
      Span span{.track = track, .start_ns = times->first, .duration_ns = times->second - times->first};
      if (event.has_fact(XFact::hlo_op) && !event.has_fact(XFact::correlation))
        return add_cpu_op(plane, event, &ops, span);
      bool has_launched = false;
      if (event.has_fact(XFact::correlation)) {
        span.correlation = sink().correlation(event.fact(XFact::correlation));
        has_launched = launched_.contains(event.fact(XFact::correlation));
      }
      const std::uint64_t key = event.metadata << 3 | (has_launched ? 1u : 0u) | (event.has_duration ? 2u : 0u) |
                                (event.has_fact(XFact::step) ? 4u : 0u);
      const auto [found, is_new] = plain.try_emplace(key);
      if (is_new) found->second = host_work(plane, event, has_launched);
      span.site = found->second.site;
      if (found->second.kind == SpanKind::run) span.run = ++runs_;
      sink().add(span);
    });
  }

  HostWork host_work(const XPlane& plane, const XEvent& event, bool has_launched) {
    std::string_view name = plane.metadata(event.metadata).title();
    const SpanKind kind = host_kind(name, event, has_launched);
    if (kind == SpanKind::frame) name.remove_prefix(1);
    // "cuGraphLaunch (CudaGraph:194)": each graph would be a row of its own.
    if (const std::size_t graph = name.find(" (CudaGraph:"); graph != name.npos) name = name.substr(0, graph);
    // And each turn of a loop.
    if (name.starts_with("[iter=") && name.ends_with(']')) name = "[iter]";
    if (kind == SpanKind::run) {
      name.remove_prefix(kCall.size());
      if (name.ends_with(')')) name.remove_suffix(1);
    }
    return {sink().site({.kind = kind, .name = sink().text(name)}), kind};
  }

  static constexpr std::string_view kCall = "PjitFunction(";

  static SpanKind host_kind(std::string_view name, const XEvent& event, bool has_launched) {
    if (event.has_fact(XFact::step)) return SpanKind::step;
    if (!event.has_duration) return SpanKind::instant;
    if (name.starts_with('$')) return SpanKind::frame;
    if (event.has_fact(XFact::correlation)) {
      const SpanKind kind = kind_of_call(name);
      return kind == SpanKind::host && has_launched ? SpanKind::launch : kind;
    }
    if (name.starts_with(kCall)) return SpanKind::run;
    if (name == "BUFFER_FLUSH" || name == "INSTRUMENTATION" || name == "RESOURCE" ||
        name == "ACTIVITY_BUFFER_REQUEST") {
      return SpanKind::recording;
    }
    if (name == "COMPILER" || name.find("::Compile") != name.npos) return SpanKind::compile;
    if (name.starts_with("Wait for ") || name == "BlockHostUntilDone") return SpanKind::wait;
    return SpanKind::host;
  }

  // For a program that runs on the CPU.
  void add_cpu_op(XPlane& plane, const XEvent& event, std::unordered_map<Key, Work, KeyHash>* ops, Span span) {
    const Key key{event.metadata,
                  event.fact(XFact::hlo_op),
                  event.has_fact(XFact::hlo_module) ? event.fact(XFact::hlo_module) : 0,
                  event.has_fact(XFact::program) ? event.fact(XFact::program) : 0,
                  event.has_fact(XFact::op_name) ? event.fact(XFact::op_name) : 0,
                  0};
    const auto [found, is_new] = ops->try_emplace(key);
    if (is_new) {
      Place place{.kind = SpanKind::op};
      found->second.is_kernel = true;
      name_op(plane, key, plane.metadata(event.metadata).title(), &place, &found->second);
      if (place.op == 0) place.op = sink().text(plane.metadata(event.metadata).title());
      found->second.site = sink().site(place);
    }
    span.site = found->second.site;
    span.bytes = found->second.bytes;
    span.flops = found->second.flops;
    if (const SpanId id = sink().add(span); id != kNone) add_arguments(id, found->second);
  }

  // "GPU_0_bfc" holds so many bytes from here on.
  void add_sample(const XPlane& plane, const XEvent& event, std::int64_t ns) {
    std::string_view allocator =
        event.has_fact(XFact::allocator) ? plane.text(event.fact(XFact::allocator)) : std::string_view();
    if (allocator.empty()) allocator = "memory";
    const bool is_gpu = allocator.starts_with("GPU_");
    const int device =
        is_gpu ? static_cast<int>(std::clamp<std::int64_t>(number_at(allocator.substr(4)), 0, 4096)) : -1;
    const CounterId counter = sink().trace().add_counter(device, allocator, process());
    const std::uint64_t bytes = std::min<std::uint64_t>(event.fact(XFact::bytes_allocated), std::uint64_t{1} << 60);
    if (sink().is_sound(ns, 0)) sink().trace().add_sample({counter, ns, static_cast<std::int64_t>(bytes)});
  }

  const std::string_view file_;
  TraceSink sink_{Source::jax};
  Programs programs_;
  std::optional<ProcessId> process_;
  std::int64_t pid_ = 0, profile_start_ns_ = 0;
  std::unordered_set<std::uint64_t> launched_;  // correlations of work on GPUs
  std::uint32_t runs_ = 0;
  std::uint64_t broken_ = 0, derived_ = 0;
  Column shapes_{argument::kShapes, ArgumentType::text}, source_{argument::kSource, ArgumentType::text},
      memory_{argument::kMemory, ArgumentType::text}, grid_{argument::kGrid, ArgumentType::text},
      block_{argument::kBlock, ArgumentType::text}, registers_{argument::kRegisters, ArgumentType::integer},
      shared_{argument::kShared, ArgumentType::integer};
};

}  // namespace

bool is_xplane(std::string_view head) {
  // Planes come first, each with a name that says where it is from.
  constexpr int kEnough = 16;
  bool has_name = false;
  WireReader all(head, WireReader::Extent::beginning);
  for (int seen = 0; seen < kEnough && all.next(); ++seen) {
    if (all.field() > 4 || all.type() != WireType::bytes) return false;
    if (all.field() != 1) continue;
    WireReader plane(all.bytes(), WireReader::Extent::beginning);
    while (plane.next()) {
      if (plane.field() > 6 || (plane.type() == WireType::varint) != (plane.field() == 1)) return false;
      if (plane.field() == 2) has_name |= plane.bytes().starts_with('/') || plane.bytes() == kTaskPlane;
    }
  }
  return has_name;
}

Trace read_xplane_text(std::string_view file, const std::string& name) {
  std::optional<Trace> trace = XPlaneReader(file).read();
  if (!trace) fail(ErrorKind::file, "{}: it is no profile of XLA's: it has no planes", name);
  return std::move(*trace);
}

}  // namespace paoding::trace
