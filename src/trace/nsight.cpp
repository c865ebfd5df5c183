// SPDX-License-Identifier: Apache-2.0
#include "trace/nsight.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "base/check.h"
#include "base/one_line.h"
#include "trace/api_names.h"
#include "trace/nvtx_name.h"
#include "trace/sink.h"

namespace paoding::trace {
namespace {

using namespace profile;

constexpr std::string_view kKernels = "CUPTI_ACTIVITY_KIND_KERNEL", kCopies = "CUPTI_ACTIVITY_KIND_MEMCPY",
                           kFills = "CUPTI_ACTIVITY_KIND_MEMSET", kCalls = "CUPTI_ACTIVITY_KIND_RUNTIME",
                           kGraphs = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", kOverhead = "CUPTI_ACTIVITY_KIND_OVERHEAD",
                           kOwnOverhead = "PROFILER_OVERHEAD", kRanges = "NVTX_EVENTS";

// "cudaLaunchKernel_v7000" is cudaLaunchKernel.
std::string_view without_version(std::string_view name) {
  std::size_t digits = name.size();
  while (digits > 0 && std::isdigit(static_cast<unsigned char>(name[digits - 1])) != 0) --digits;
  return digits < name.size() && name.substr(0, digits).ends_with("_v") ? name.substr(0, digits - 2) : name;
}

// Nsight Systems packs a process and a thread into one number.
std::int64_t pid_of(std::int64_t global) { return global >> 24 & 0xffffff; }
std::int64_t tid_of(std::int64_t global) { return global & 0xffffff; }

class NsightReader {
 public:
  NsightReader(const SqliteFile& file, const std::string& name) : file_(file), name_(name) {}

  Trace read() {
    constexpr std::array kTables = {kKernels, kCopies, kFills, kCalls, kGraphs, kRanges};
    if (std::ranges::none_of(kTables, [&](std::string_view table) { return file_.has(table); })) {
      std::string names;
      for (const std::string_view table : kTables) names += fmt::format("{}{}", names.empty() ? "" : ", ", table);
      fail(ErrorKind::file, "{}: it is no export of Nsight Systems: of {} it has none", name_, names);
    }
    read_texts();
    read_names();
    read_limits();
    read_start();
    find_processes_of_calls();
    read_calls();
    read_ranges();
    read_overhead(kOverhead, false);
    read_overhead(kOwnOverhead, true);
    read_kernels();
    read_copies();
    read_fills();
    read_graphs();
    read_messages();
    return sink_.finish();
  }

 private:
  // ---- names ----

  void read_texts() {
    SqliteRows rows = file_.rows("StringIds", {"id", "value"});
    while (rows.next()) {
      const std::int64_t id = rows.integer(0);
      const StringId text = sink_.text(rows.text(1));
      if (id >= 0 && id < kSmall) {
        if (static_cast<std::size_t>(id) >= texts_.size())
          texts_.resize(std::max<std::size_t>(2 * texts_.size(), static_cast<std::size_t>(id) + 1));
        texts_[static_cast<std::size_t>(id)] = text;
      } else {
        more_texts_[id] = text;
      }
    }
  }

  StringId text(std::int64_t id) const {
    if (id >= 0 && static_cast<std::size_t>(id) < texts_.size()) return texts_[static_cast<std::size_t>(id)];
    const auto found = more_texts_.find(id);
    return found == more_texts_.end() ? 0 : found->second;
  }
  std::string_view view(std::int64_t id) { return sink_.trace().text(text(id)); }

  void read_names() {
    SqliteRows processes = file_.rows("PROCESSES", {"globalPid", "name"});
    while (processes.next()) {
      const std::string_view path = processes.text(1);
      process_names_[pid_of(processes.integer(0))] = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
    }
    SqliteRows threads = file_.rows("ThreadNames", {"globalTid", "nameId"});
    while (threads.next()) thread_names_[threads.integer(0)] = text(threads.integer(1));
  }

  // The wall clock is ahead of the times in the file by this.
  void read_start() {
    SqliteRows start = file_.rows("TARGET_INFO_SESSION_START_TIME", {"utcEpochNs", "systemClockNs"});
    SqliteRows analysis = file_.rows("ANALYSIS_DETAILS", {"startTime"});
    constexpr std::int64_t kFrom = 1'000'000'000'000'000'000, kTo = 2'200'000'000'000'000'000;
    if (!start.next() || start.integer(0) < kFrom || start.integer(0) > kTo) return;
    const std::int64_t began = analysis.next() ? analysis.integer(0) : start.integer(1);
    if (began >= 0 && began < kFrom) ahead_ns_ = start.integer(0) - began;
  }

  // The device's own description.
  void read_limits() {
    SqliteRows rows = file_.rows("TARGET_INFO_GPU", {"id", "memoryBandwidth", "name", "smCount", "maxWarpsPerSm",
                                                     "threadsPerWarp", "maxRegistersPerSm", "maxShmemPerSm"});
    std::map<std::int64_t, Limit> limits;
    constexpr std::int64_t kMost = 1'000'000'000'000'000, kMostDevices = 4096, kMostOfSm = 1 << 24;
    const auto count = [&](int column) {
      return static_cast<std::int32_t>(std::clamp<std::int64_t>(rows.integer(column), 0, kMostOfSm));
    };
    while (rows.next()) {
      const std::int64_t device = rows.integer(0), rate = rows.integer(1);
      if (device < 0 || device >= kMostDevices) continue;
      Limit& limit = limits[device];
      limit.device = static_cast<std::int32_t>(device);
      if (rate > 0 && rate <= kMost) limit.bytes_per_ns = static_cast<double>(rate) / 1e9;
      limit.name = one_line(rows.text(2).substr(0, 100));
      limit.sms = count(3);
      limit.threads_of_sm = std::min(count(4), 1 << 10) * std::min(count(5), 1 << 10);
      limit.registers_of_sm = count(6);
      limit.shared_of_sm = count(7);
    }
    for (const auto& [device, limit] : limits) {
      if (limit.bytes_per_ns > 0 || !limit.name.empty()) sink_.trace().add_limit(limit);
    }
  }

  // ---- where ----

  ProcessId process(std::int64_t pid) {
    if (near_pid_ == pid) return near_process_;
    const auto found = process_names_.find(pid);
    near_process_ = sink_.process(pid, -1, found == process_names_.end() ? "" : found->second);
    near_pid_ = pid;
    return near_process_;
  }

  TrackId thread(std::int64_t global) {
    if (near_thread_ == global && near_track_ != kNone) return near_track_;
    const auto named = thread_names_.find(global);
    near_track_ = sink_.thread(process(pid_of(global)), tid_of(global),
                               named == thread_names_.end() ? "" : sink_.trace().text(named->second));
    near_thread_ = global;
    return near_track_;
  }

  // Streams of different contexts may have the same number.
  TrackId stream(ProcessId process, std::int64_t device, std::int64_t context, std::int64_t stream) {
    const std::array<std::int64_t, 4> wanted = {process, device, context, stream};
    if (near_stream_ == wanted && near_stream_track_ != kNone) return near_stream_track_;
    const std::int64_t first = first_context_.try_emplace({process, device}, context).first->second;
    near_stream_track_ = context == first ? sink_.stream(process, device, stream)
                                          : sink_.stream(process, device, (context + 1) << 32 ^ stream,
                                                         fmt::format("stream {} of context {}", stream, context));
    near_stream_ = wanted;
    return near_stream_track_;
  }

  // Old versions do not say of which process a kernel is: of the one that launched it.
  void find_processes_of_calls() {
    if (const auto columns = file_.columns(kKernels); std::ranges::find(columns, "globalPid") != columns.end()) return;
    SqliteRows rows = file_.rows(kCalls, {"globalTid", "correlationId"});
    while (rows.next()) {
      const auto pid = pid_of(rows.integer(0));
      const auto [found, is_new] = pid_of_launch_.try_emplace(rows.integer(1), pid);
      if (!is_new && found->second != pid) found->second = kSeveral;
    }
  }

  // For work on a GPU.
  ProcessId process_of(const SqliteRows& rows, int global_pid, std::int64_t correlation) {
    if (!rows.is_null(global_pid)) return process(pid_of(rows.integer(global_pid)));
    const auto found = pid_of_launch_.find(correlation);
    if (found == pid_of_launch_.end()) return process(pid_of_launch_.empty() ? 0 : pid_of_launch_.begin()->second);
    if (found->second != kSeveral) return process(found->second);
    sink_.lose("spans of GPUs that several processes may have launched: the file does not say which");
    return process(0);
  }

  Span span_of(const SqliteRows& rows, int start, int end) {
    Span span{.start_ns = rows.integer(start)};
    if (__builtin_sub_overflow(rows.integer(end), span.start_ns, &span.duration_ns) ||
        __builtin_add_overflow(span.start_ns, ahead_ns_, &span.start_ns)) {
      span.duration_ns = -1;
    }
    return span;
  }

  // ---- the host ----

  void read_calls() {
    SqliteRows rows = file_.rows(kCalls, {"start", "end", "globalTid", "correlationId", "nameId"});
    std::unordered_map<std::int64_t, SiteId> sites;
    while (rows.next()) {
      const auto [found, is_new] = sites.try_emplace(rows.integer(4));
      if (is_new) {
        const std::string name(without_version(view(rows.integer(4))));
        found->second = sink_.site({.kind = kind_of_call(name), .name = sink_.text(name)});
      }
      Span span = span_of(rows, 0, 1);
      span.track = thread(rows.integer(2));
      span.site = found->second;
      span.correlation = sink_.correlation(static_cast<std::uint64_t>(rows.integer(3)));
      sink_.add(span);
    }
  }

  void read_overhead(std::string_view table, bool is_profilers) {
    SqliteRows rows = file_.rows(table, {"start", "end", "globalTid", "nameId", "overheadType"});
    while (rows.next()) {
      constexpr std::int64_t kCompiler = 2, kLoading = 6, kLazyLoading = 7, kFull = 8;
      const std::int64_t type = rows.integer(4);
      SpanKind kind = SpanKind::recording;
      if (!is_profilers && (type == kCompiler || type == kLoading || type == kLazyLoading)) kind = SpanKind::compile;
      if (!is_profilers && type == kFull) kind = SpanKind::wait;
      Span span = span_of(rows, 0, 1);
      span.track = thread(rows.integer(2));
      span.site = sink_.site({.kind = kind, .name = text(rows.integer(3))});
      sink_.add(span);
    }
  }

  void read_ranges() {
    constexpr std::int64_t kMark = 34, kPushPop = 59, kStartEnd = 60, kTextMark = 65, kTextPushPop = 70,
                           kTextStartEnd = 71;
    SqliteRows rows = file_.rows(kRanges, {"start", "end", "eventType", "globalTid", "endGlobalTid", "text", "textId"});
    std::unordered_map<std::int64_t, NvtxName> known;  // texts that stand in a table of their own
    while (rows.next()) {
      const std::int64_t type = rows.integer(2);
      const bool is_mark = type == kMark || type == kTextMark;
      const bool is_stretch = type == kStartEnd || type == kTextStartEnd;
      if (!is_mark && !is_stretch && type != kPushPop && type != kTextPushPop) continue;
      if (!is_mark && rows.is_null(1)) {
        sink_.lose("NVTX ranges that did not end");
        continue;
      }
      if (is_stretch && !rows.is_null(4) && rows.integer(4) != rows.integer(3)) {
        sink_.lose("NVTX ranges that began on one thread and ended on another");
        continue;
      }
      NvtxName name;
      if (rows.is_null(5)) {
        const auto [found, is_new] = known.try_emplace(rows.integer(6));
        if (is_new) found->second = parse_nvtx_name(view(rows.integer(6)));
        name = found->second;
      } else {
        name = parse_nvtx_name(rows.text(5));
      }
      Span span = span_of(rows, 0, is_mark ? 0 : 1);
      span.track = thread(rows.integer(3));
      add_range(name, is_mark, span);
    }
  }

  void add_range(const NvtxName& name, bool is_mark, Span span) {
    Place place{.kind = is_mark ? SpanKind::instant : name.kind};
    if (place.kind == SpanKind::op) {
      place.op = sink_.text(name.name);
      place.instance = sink_.text(name.instance);
    } else {
      place.name = sink_.text(name.name);
    }
    if (place.kind == SpanKind::run) span.run = ++runs_;
    span.site = sink_.site(place);
    const SpanId id = sink_.add(span);
    if (id == kNone) return;
    Trace& trace = sink_.trace();
    if (!name.shapes.empty())
      trace.add_argument(id, trace.add_column(argument::kShapes, ArgumentType::text), name.shapes);
    if (name.sequence >= 0) {
      trace.add_argument(id, trace.add_column(argument::kSequence, ArgumentType::integer), name.sequence);
    }
  }

  // ---- GPUs ----

  void read_kernels() {
    if (!file_.has(kKernels)) return;
    SqliteRows rows = file_.rows(kKernels, {"start",
                                            "end",
                                            "deviceId",
                                            "contextId",
                                            "streamId",
                                            "correlationId",
                                            "globalPid",
                                            "demangledName",
                                            "shortName",
                                            "registersPerThread",
                                            "staticSharedMemory",
                                            "dynamicSharedMemory",
                                            "gridX",
                                            "gridY",
                                            "gridZ",
                                            "blockX",
                                            "blockY",
                                            "blockZ",
                                            "clusterX",
                                            "clusterY",
                                            "clusterZ"});
    Trace& trace = sink_.trace();
    const ColumnId grid = trace.add_column(argument::kGrid, ArgumentType::text);
    const ColumnId block = trace.add_column(argument::kBlock, ArgumentType::text);
    const ColumnId registers = trace.add_column(argument::kRegisters, ArgumentType::integer);
    const ColumnId shared = trace.add_column(argument::kShared, ArgumentType::integer);
    const bool has_graphs = file_.has(kGraphs);
    Sizes grids, blocks;
    std::unordered_map<std::int64_t, SiteId> sites;
    while (rows.next()) {
      const std::int64_t full = rows.is_null(7) ? rows.integer(8) : rows.integer(7);
      const auto [found, is_new] = sites.try_emplace(full);
      if (is_new) {
        const StringId name = text(full);
        found->second = sink_.site({.kind = SpanKind::kernel, .name = name, .kernel = name});
      }
      Span span = span_of(rows, 0, 1);
      const std::int64_t correlation = rows.integer(5);
      span.track = stream(process_of(rows, 6, correlation), rows.integer(2), rows.integer(3), rows.integer(4));
      span.site = found->second;
      span.correlation = sink_.correlation(static_cast<std::uint64_t>(correlation));
      const SpanId id = sink_.add(span);
      if (id == kNone) continue;
      if (has_graphs) of_kernels_.insert({trace.tracks()[span.track].process, span.correlation});
      if (rows.has(12)) trace.add_argument(id, grid, grids.text(rows, 12));
      if (rows.has(15)) trace.add_argument(id, block, blocks.text(rows, 15));
      if (rows.has(9)) trace.add_argument(id, registers, rows.integer(9));
      if (rows.has(10) || rows.has(11)) trace.add_argument(id, shared, rows.integer(10) + rows.integer(11));
    }
  }

  // "264x1x1" of three columns; most often they are those of before.
  class Sizes {
   public:
    std::string_view text(const SqliteRows& rows, int first) {
      const std::array<std::int64_t, 3> now = {rows.integer(first), rows.integer(first + 1), rows.integer(first + 2)};
      if (now != of_ || text_.empty()) {
        of_ = now;
        text_ = fmt::format("{}x{}x{}", now[0], now[1], now[2]);
      }
      return text_;
    }

   private:
    std::array<std::int64_t, 3> of_ = {};
    std::string text_;
  };

  void read_copies() {
    SqliteRows rows = file_.rows(kCopies, {"start", "end", "deviceId", "contextId", "streamId", "correlationId",
                                           "globalPid", "bytes", "copyKind", "srcKind", "dstKind"});
    Trace& trace = sink_.trace();
    while (rows.next()) {
      const Copy copy = copy_of(rows.integer(8));
      Place place{.kind = SpanKind::memcpy, .name = sink_.text(to_string(copy)), .copy = copy, .async = true};
      Span span = span_of(rows, 0, 1);
      const std::int64_t correlation = rows.integer(5);
      span.track = stream(process_of(rows, 6, correlation), rows.integer(2), rows.integer(3), rows.integer(4));
      span.site = sink_.site(place);
      span.correlation = sink_.correlation(static_cast<std::uint64_t>(correlation));
      if (!rows.is_null(7)) span.bytes = std::max<std::int64_t>(rows.integer(7), 0);
      const SpanId id = sink_.add(span);
      if (id == kNone) continue;
      for (const int side : {9, 10}) {
        if (rows.is_null(side) || rows.integer(side) < 0 || rows.integer(side) > 1) continue;
        const std::string_view memory = rows.integer(side) == 0 ? "pageable" : "pinned";
        trace.add_argument(id, trace.add_column(argument::kMemory, ArgumentType::text), memory);
      }
    }
  }

  static Copy copy_of(std::int64_t kind) {
    switch (kind) {
      case 1:
      case 3:
      case 11: return Copy::host_to_device;
      case 2:
      case 4:
      case 12: return Copy::device_to_host;
      case 5:
      case 6:
      case 7:
      case 8: return Copy::same_device;
      case 9: return Copy::host_to_host;
      case 10:
      case 13: return Copy::device_to_device;
      default: return Copy::none;
    }
  }

  void read_fills() {
    SqliteRows rows = file_.rows(
        kFills, {"start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "bytes"});
    while (rows.next()) {
      Span span = span_of(rows, 0, 1);
      const std::int64_t correlation = rows.integer(5);
      span.track = stream(process_of(rows, 6, correlation), rows.integer(2), rows.integer(3), rows.integer(4));
      span.site = sink_.site({.kind = SpanKind::memset, .name = sink_.text("memset")});
      span.correlation = sink_.correlation(static_cast<std::uint64_t>(correlation));
      if (!rows.is_null(7)) span.bytes = std::max<std::int64_t>(rows.integer(7), 0);
      sink_.add(span);
    }
  }

  // Graphs of which the profiler recorded the ends only, as it does unless it is told otherwise.
  void read_graphs() {
    SqliteRows rows = file_.rows(
        kGraphs, {"start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "graphId"});
    std::uint64_t seen = 0;
    while (rows.next()) {
      Span span = span_of(rows, 0, 1);
      const std::int64_t correlation = rows.integer(5);
      span.track = stream(process_of(rows, 6, correlation), rows.integer(2), rows.integer(3), rows.integer(4));
      span.site = sink_.site({.kind = SpanKind::replay,
                              .name = sink_.text("CUDA graph"),
                              .instance = sink_.text(fmt::format("graph {}", rows.integer(7)))});
      span.correlation = sink_.correlation(static_cast<std::uint64_t>(correlation));
      if (of_kernels_.contains({sink_.trace().tracks()[span.track].process, span.correlation})) {
        sink_.lose("rows of whole graphs beside those of their kernels, left out");
      } else if (sink_.add(span) != kNone) {
        ++seen;
      }
    }
    sink_.lose("launches of graphs whose kernels were not recorded (nsys profile --cuda-graph-trace=node records them)",
               seen);
  }

  // Problems, in the profiler's own words.
  void read_messages() {
    SqliteRows rows = file_.rows("DIAGNOSTIC_EVENT", {"severity", "text"});
    while (rows.next()) {
      constexpr std::int64_t kWarning = 2;
      constexpr std::size_t kMost = 200;
      if (rows.integer(0) < kWarning) continue;
      sink_.lose(fmt::format("Nsight Systems says: {}", one_line(rows.text(1).substr(0, kMost))));
    }
  }

  static constexpr std::int64_t kSmall = 1 << 22;
  static constexpr std::int64_t kSeveral = -1;

  const SqliteFile& file_;
  const std::string& name_;
  TraceSink sink_{Source::nsight_systems};
  std::vector<StringId> texts_;
  std::unordered_map<std::int64_t, StringId> more_texts_;
  std::map<std::int64_t, std::string> process_names_;
  std::unordered_map<std::int64_t, StringId> thread_names_;
  std::unordered_map<std::int64_t, std::int64_t> pid_of_launch_;
  std::map<std::pair<ProcessId, std::int64_t>, std::int64_t> first_context_;
  std::set<std::pair<ProcessId, std::uint32_t>> of_kernels_;  // numbers of launches, where there are graphs too
  std::uint32_t runs_ = 0;
  std::int64_t ahead_ns_ = 0;
  // Looked up last: rows of one place come one behind the other.
  std::int64_t near_pid_ = -1, near_thread_ = 0;
  ProcessId near_process_ = 0;
  TrackId near_track_ = kNone, near_stream_track_ = kNone;
  std::array<std::int64_t, 4> near_stream_ = {};
};

}  // namespace

Trace read_nsight(const SqliteFile& file, const std::string& name) { return NsightReader(file, name).read(); }

}  // namespace paoding::trace
