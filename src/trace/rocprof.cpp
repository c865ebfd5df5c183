// SPDX-License-Identifier: Apache-2.0
#include "trace/rocprof.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "text/lexer.h"
#include "trace/api_names.h"
#include "trace/nvtx_name.h"
#include "trace/sink.h"

namespace paoding::trace {
namespace {

using namespace profile;
namespace json = simdjson::ondemand;

constexpr std::string_view kTool = "rocprofiler-sdk-tool";

// The number, also one in quotes; nothing where it is none.
std::optional<std::uint64_t> number_of(json::value value) {
  json::json_type type{};
  if (value.type().get(type) != simdjson::SUCCESS) return {};
  if (type == json::json_type::number) {
    std::uint64_t number = 0;
    if (value.get_uint64().get(number) == simdjson::SUCCESS) return number;
    std::int64_t below = 0;
    if (value.get_int64().get(below) == simdjson::SUCCESS) return static_cast<std::uint64_t>(below);
    return {};
  }
  std::string_view text;
  if (type != json::json_type::string || value.get_string().get(text) != simdjson::SUCCESS) return {};
  std::uint64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc{} || end != text.data() + text.size()) return {};
  return number;
}

std::uint64_t number_or(json::value value, std::uint64_t otherwise) { return number_of(value).value_or(otherwise); }

std::string text_of(json::value value) {
  std::string_view text;
  return value.get_string().get(text) == simdjson::SUCCESS ? std::string(text) : std::string();
}

// {"handle": 7}, or 7.
std::uint64_t handle_of(json::value value) {
  json::json_type type{};
  if (value.type().get(type) != simdjson::SUCCESS) return 0;
  if (type != json::json_type::object) return number_or(value, 0);
  json::object object;
  std::uint64_t handle = 0;
  if (value.get_object().get(object) != simdjson::SUCCESS) return 0;
  for (auto field : object) {
    std::string_view key;
    if (field.unescaped_key().get(key) == simdjson::SUCCESS && (key == "handle" || key == "internal")) {
      handle = number_or(field.value(), 0);
    }
  }
  return handle;
}

std::string size_of(json::value value) {
  std::array<std::uint64_t, 3> size = {0, 0, 0};
  json::object object;
  if (value.get_object().get(object) != simdjson::SUCCESS) return {};
  for (auto field : object) {
    std::string_view key;
    if (field.unescaped_key().get(key) != simdjson::SUCCESS || key.size() != 1 || key[0] < 'x' || key[0] > 'z')
      continue;
    size[static_cast<std::size_t>(key[0] - 'x')] = number_or(field.value(), 0);
  }
  return fmt::format("{}x{}x{}", size[0], size[1], size[2]);
}

// Calls `take` with every member of an object, an error of the text ends it.
template <class Take>
void for_each_member(json::value value, Take&& take) {
  for (auto field : value.get_object()) {
    std::string_view key = field.unescaped_key();
    take(key, field.value());
  }
}

template <class Take>
void for_each_item(json::value value, Take&& take) {
  for (auto item : value.get_array()) take(item.value());
}

// ---- rocprofv3 ----

class RocprofReader {
 public:
  // A process, as far as it goes. Throws simdjson's errors: what was read stays.
  void read_names(json::value tool) {
    all_.emplace_back();
    one_ = {};
    try {
      for_each_member(tool, [&](std::string_view key, json::value value) {
        if (key == "metadata") return read_metadata(value);
        if (key == "agents") return read_agents(value);
        if (key == "strings") return read_strings(value);
        if (key == "kernel_symbols") return read_kernels(value);
        if (key == "buffer_records") return find_kinds(value);
      });
    } catch (const simdjson::simdjson_error&) {  // found again where the records are read
    }
    one_.process = sink_.process(one_.pid);
    all_.back() = std::move(one_);
  }

  void read_records(json::value tool, std::size_t which) {
    one_ = std::move(all_[which]);
    for_each_member(tool, [&](std::string_view key, json::value value) {
      if (key != "buffer_records" && key != "callback_records") return;
      const bool is_buffer = key == "buffer_records";
      for_each_member(value, [&](std::string_view kind, json::value records) {
        if (!is_buffer && one_.kinds.contains(std::string(kind))) return;  // the same once more
        for_each_item(records, [&](json::value record) { read_record(kind, record, is_buffer); });
      });
    });
  }
  std::size_t processes() const { return all_.size(); }

  TraceSink& sink() { return sink_; }

 private:
  struct Agent {
    bool is_gpu = false;
    std::int64_t number = 0;
  };
  using Operations = std::vector<std::vector<std::string>>;
  struct Process {
    std::int64_t pid = 0;
    ProcessId process = 0;
    std::map<std::uint64_t, Agent> agents;
    Operations buffer_names, callback_names;
    std::set<std::string, std::less<>> kinds;  // of records that the buffers have
    std::unordered_map<std::uint64_t, std::string> kernels, markers;
    std::unordered_map<std::uint64_t, std::int64_t> queues, streams;
    std::unordered_map<std::uint64_t, SiteId> kernel_sites;
    std::map<std::tuple<bool, std::uint64_t, std::uint64_t>, SiteId> call_sites;
  };

  void read_metadata(json::value value) {
    for_each_member(value, [&](std::string_view key, json::value v) {
      if (key == "pid") one_.pid = static_cast<std::int64_t>(number_or(v, 0));
    });
  }

  void read_agents(json::value value) {
    constexpr std::uint64_t kGpu = 2;
    std::map<std::uint64_t, std::uint64_t> gpus;  // handles by where they are
    for_each_item(value, [&](json::value item) {
      std::uint64_t handle = 0, type = 0, node = 0;
      for_each_member(item, [&](std::string_view key, json::value v) {
        if (key == "id") handle = handle_of(v);
        if (key == "type") type = number_or(v, 0);
        if (key == "node_id") node = number_or(v, 0);
      });
      one_.agents[handle].is_gpu = type == kGpu;
      if (type == kGpu) gpus[node] = handle;
    });
    std::int64_t number = 0;
    for (const auto& [node, handle] : gpus) one_.agents[handle].number = number++;
  }

  void read_strings(json::value value) {
    for_each_member(value, [&](std::string_view key, json::value v) {
      if (key == "buffer_records") read_operations(v, &one_.buffer_names);
      if (key == "callback_records") read_operations(v, &one_.callback_names);
      if (key != "marker_api") return;
      for_each_item(v, [&](json::value item) {
        std::uint64_t id = 0;
        std::string text;
        for_each_member(item, [&](std::string_view name, json::value part) {
          if (name == "key") id = number_or(part, 0);
          if (name == "value") text = text_of(part);
        });
        one_.markers[id] = std::move(text);
      });
    });
  }

  void find_kinds(json::value value) {
    for_each_member(value, [&](std::string_view kind, json::value records) {
      json::array all = records.get_array();
      if (!all.is_empty()) one_.kinds.emplace(kind);
    });
  }

  static void read_operations(json::value value, Operations* names) {
    for_each_item(value, [&](json::value item) {
      names->emplace_back();
      for_each_member(item, [&](std::string_view key, json::value v) {
        if (key == "operations") for_each_item(v, [&](json::value one) { names->back().push_back(text_of(one)); });
      });
    });
  }

  void read_kernels(json::value value) {
    for_each_item(value, [&](json::value item) {
      std::uint64_t id = 0;
      std::string name, formatted;
      for_each_member(item, [&](std::string_view key, json::value v) {
        if (key == "kernel_id") id = number_or(v, 0);
        if (key == "kernel_name") name = text_of(v);
        if (key == "formatted_kernel_name") formatted = text_of(v);
      });
      if (formatted.empty()) formatted = std::move(name);
      if (formatted.ends_with(".kd")) formatted.resize(formatted.size() - 3);
      one_.kernels[id] = std::move(formatted);
    });
  }

  // ---- records ----

  struct Record {
    std::uint64_t kind = 0, operation = 0, correlation = 0, thread = 0, start = 0, end = 0, bytes = 0;
    std::uint64_t agent = 0, queue = 0, stream = 0, kernel = 0, from = 0, to = 0, shared = 0;
    bool has_times = true, has_stream = false;
    std::string grid, block;
  };

  void read_record(std::string_view name, json::value value, bool is_buffer) {
    const bool is_kernel = name == "kernel_dispatch", is_copy = name == "memory_copy", is_call = name.ends_with("_api");
    if (!is_kernel && !is_copy && !is_call) {
      sink_.lose("records of kinds that are no calls, kernels or copies, left out");
      return;
    }
    Record record;
    std::optional<std::uint64_t> start, end;
    for_each_member(value, [&](std::string_view key, json::value v) {
      if (key == "kind") record.kind = number_or(v, 0);
      if (key == "operation") record.operation = number_or(v, 0);
      if (key == "thread_id") record.thread = number_or(v, 0);
      if (key == "correlation_id") record.correlation = handle_of(v);
      if (key == "start_timestamp") start = number_of(v);
      if (key == "end_timestamp") end = number_of(v);
      if (key == "bytes") record.bytes = number_or(v, 0);
      if (key == "src_agent_id") record.from = handle_of(v);
      if (key == "dst_agent_id") record.to = handle_of(v);
      if (key == "stream_id") {
        record.stream = handle_of(v);
        record.has_stream = true;
      }
      if (key == "dispatch_info" && is_kernel) read_dispatch(v, &record);
    });
    constexpr std::uint64_t kLast = std::uint64_t{1} << 61;
    if (!start || !end || *start >= kLast || *end >= kLast) {
      sink_.lose("records without a time", 1, Note::Kind::timeless);
      return;
    }
    Span span{.start_ns = static_cast<std::int64_t>(*start),
              .duration_ns = static_cast<std::int64_t>(*end) - static_cast<std::int64_t>(*start)};
    span.correlation = sink_.correlation(record.correlation);
    if (is_kernel) return add_kernel(record, span);
    if (is_copy) return add_copy(record, span);
    add_call(name, record, span, is_buffer);
  }

  void read_dispatch(json::value value, Record* record) {
    for_each_member(value, [&](std::string_view key, json::value v) {
      if (key == "agent_id") record->agent = handle_of(v);
      if (key == "queue_id") record->queue = handle_of(v);
      if (key == "kernel_id") record->kernel = number_or(v, 0);
      if (key == "group_segment_size") record->shared = number_or(v, 0);
      if (key == "grid_size") record->grid = size_of(v);
      if (key == "workgroup_size") record->block = size_of(v);
    });
  }

  std::int64_t device_of(std::uint64_t agent) const {
    const auto found = one_.agents.find(agent);
    return found == one_.agents.end() ? 0 : found->second.number;
  }
  bool is_gpu(std::uint64_t agent) const {
    const auto found = one_.agents.find(agent);
    return found != one_.agents.end() && found->second.is_gpu;
  }

  // Handles are addresses: they are counted as they come. What a program calls a stream is known to newer versions;
  // others say which queue of the hardware it was.
  TrackId track_of(const Record& record) {
    if (record.has_stream) {
      const auto number =
          one_.streams.try_emplace(record.stream, static_cast<std::int64_t>(one_.streams.size())).first->second;
      return sink_.stream(one_.process, device_of(record.agent), kStreams + number, fmt::format("stream {}", number));
    }
    const auto number =
        one_.queues.try_emplace(record.queue, static_cast<std::int64_t>(one_.queues.size())).first->second;
    return sink_.stream(one_.process, device_of(record.agent), number, fmt::format("queue {}", number));
  }
  static constexpr std::int64_t kStreams = std::int64_t{1} << 32, kCopies = std::int64_t{1} << 33;

  void add_kernel(const Record& record, Span span) {
    const auto [found, is_new] = one_.kernel_sites.try_emplace(record.kernel);
    if (is_new) {
      const auto named = one_.kernels.find(record.kernel);
      const StringId name = sink_.text(named == one_.kernels.end() ? "?" : named->second);
      found->second = sink_.site({.kind = SpanKind::kernel, .name = name, .kernel = name});
    }
    span.track = track_of(record);
    span.site = found->second;
    const SpanId id = sink_.add(span);
    if (id == kNone) return;
    Trace& trace = sink_.trace();
    // AMD's grid is one of threads, others' one of blocks, and blocks are compared.
    if (!record.grid.empty())
      trace.add_argument(id, trace.add_column("grid of threads", ArgumentType::text), std::string_view(record.grid));
    if (!record.block.empty())
      trace.add_argument(id, trace.add_column(argument::kBlock, ArgumentType::text), std::string_view(record.block));
    constexpr std::uint64_t kMostShared = 1 << 24;
    if (record.shared <= kMostShared) {
      trace.add_argument(id, trace.add_column(argument::kShared, ArgumentType::integer),
                         static_cast<std::int64_t>(record.shared));
    }
  }

  void add_copy(const Record& record, Span span) {
    const bool from_gpu = is_gpu(record.from), to_gpu = is_gpu(record.to);
    Copy copy = from_gpu ? (to_gpu ? Copy::device_to_device : Copy::device_to_host)
                         : (to_gpu ? Copy::host_to_device : Copy::host_to_host);
    if (from_gpu && to_gpu && record.from == record.to) copy = Copy::same_device;
    span.track = sink_.stream(one_.process, device_of(to_gpu ? record.to : record.from), kCopies, "copies");
    span.site =
        sink_.site({.kind = SpanKind::memcpy, .name = sink_.text(to_string(copy)), .copy = copy, .async = true});
    constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 60;
    if (record.bytes <= kMostBytes) span.bytes = static_cast<std::int64_t>(record.bytes);
    sink_.add(span);
  }

  std::string_view name_of(const Record& record, bool is_buffer) const {
    const Operations& names = is_buffer ? one_.buffer_names : one_.callback_names;
    if (record.kind >= names.size() || record.operation >= names[record.kind].size()) return {};
    return names[record.kind][record.operation];
  }

  void add_call(std::string_view api, const Record& record, Span span, bool is_buffer) {
    span.track = sink_.thread(one_.process, static_cast<std::int64_t>(record.thread & 0x7fffffffffffffff));
    if (api == "marker_api") {
      const auto text = one_.markers.find(record.correlation);
      const std::string_view operation = name_of(record, is_buffer);
      if (text == one_.markers.end() || operation.find("Pop") != operation.npos ||
          operation.find("Stop") != operation.npos)
        return;
      const bool is_moment = operation.find("Mark") != operation.npos;
      if (is_moment) span.duration_ns = 0;
      span.correlation = 0;
      span.site =
          sink_.site({.kind = is_moment ? SpanKind::instant : SpanKind::range, .name = sink_.text(text->second)});
      sink_.add(span);
      return;
    }
    const auto [found, is_new] = one_.call_sites.try_emplace({is_buffer, record.kind, record.operation});
    if (is_new) {
      const std::string_view name = name_of(record, is_buffer);
      found->second = sink_.site({.kind = kind_of_call(name), .name = sink_.text(name.empty() ? api : name)});
    }
    span.site = found->second;
    sink_.add(span);
  }

  TraceSink sink_{Source::rocprof};
  Process one_;
  std::vector<Process> all_;
};

// ---- rocprof before it ----

class OldReader {
 public:
  void read(json::value events) {
    for_each_item(events, [&](json::value event) { read_event(event); });
  }
  TraceSink& sink() { return sink_; }

 private:
  struct Event {
    std::string name, phase, kind, full_name, called;
    std::optional<std::uint64_t> begin, end;
    std::uint64_t place = 0, row = 0, pid = 0, tid = 0, device = 0, queue = 0;
    bool has_queue = false;
  };

  void read_event(json::value value) {
    Event event;
    for_each_member(value, [&](std::string_view key, json::value v) {
      if (key == "name") event.name = text_of(v);
      if (key == "ph") event.phase = text_of(v);
      if (key == "pid") event.place = number_or(v, 0);
      if (key == "tid") event.row = number_or(v, 0);
      if (key == "args") read_arguments(v, &event);
    });
    if (event.phase == "M" && event.name == "process_name") places_[event.place] = event.called;
    if (event.phase == "X") add(event);
  }

  static void read_arguments(json::value value, Event* event) {
    json::json_type type{};
    if (value.type().get(type) != simdjson::SUCCESS || type != json::json_type::object) return;
    for_each_member(value, [&](std::string_view key, json::value v) {
      if (key == "name") event->called = text_of(v);
      if (key == "Name") event->full_name = text_of(v);
      if (key == "BeginNs") event->begin = number_of(v);
      if (key == "EndNs") event->end = number_of(v);
      if (key == "pid") event->pid = number_or(v, 0);
      if (key == "tid") event->tid = number_or(v, 0);
      if (key == "dev-id") event->device = number_or(v, 0);
      if (key == "queue-id") {
        event->queue = number_or(v, 0);
        event->has_queue = true;
      }
    });
  }

  void add(const Event& event) {
    constexpr std::uint64_t kLast = std::uint64_t{1} << 61;
    if (!event.begin || !event.end || *event.begin >= kLast || *event.end >= kLast) {
      return sink_.lose("events without a time", 1, Note::Kind::timeless);
    }
    const std::string& place = places_[event.place];
    const bool is_copy = place.find("COPY") != place.npos, is_gpu = event.has_queue || place.starts_with("GPU");
    const std::string_view name = event.full_name.empty() ? event.name : event.full_name;
    const ProcessId process = sink_.process(static_cast<std::int64_t>(event.pid));
    Span span{.start_ns = static_cast<std::int64_t>(*event.begin),
              .duration_ns = static_cast<std::int64_t>(*event.end) - static_cast<std::int64_t>(*event.begin)};
    if (is_gpu || is_copy) {
      const auto device = static_cast<std::int64_t>(event.device & 0xfff),
                 queue = static_cast<std::int64_t>(event.queue & 0xffffffff);
      const bool moves = is_copy || name.find("Copy") == 0;
      const StringId text = sink_.text(name);
      span.track =
          sink_.stream(process, device, queue, is_copy && !event.has_queue ? "copies" : fmt::format("queue {}", queue));
      span.site = sink_.site({.kind = moves ? SpanKind::memcpy : SpanKind::kernel,
                              .name = text,
                              .kernel = moves ? 0 : text,
                              .copy = moves ? copy_of_name(name).copy : Copy::none,
                              .async = moves});
    } else {
      const bool is_range = place.find("arker") != place.npos;
      span.track = sink_.thread(
          process, static_cast<std::int64_t>((event.tid != 0 ? event.tid : event.row) & 0x7fffffffffffffff));
      span.site = sink_.site({.kind = is_range ? SpanKind::range : kind_of_call(name), .name = sink_.text(name)});
    }
    sink_.add(span);
  }

  TraceSink sink_{Source::rocprof};
  std::map<std::uint64_t, std::string> places_;
};

// What a name cannot be in: bytes that are no UTF-8 become question marks. Returns how many.
std::uint64_t mend_utf8(std::string* text) {
  std::uint64_t mended = 0;
  for (std::size_t i = 0; i < text->size();) {
    if (const std::size_t length = utf8_length(*text, i); length > 0) {
      i += length;
      continue;
    }
    (*text)[i++] = '?';
    ++mended;
  }
  return mended;
}

// Closes what a text that is cut off left open, without which none of it can be read, and leaves out the last element
// of the innermost list, which is not whole. Returns whether anything was open.
bool close_what_is_open(std::string* text, bool has_processes) {
  struct Open {
    char end;
    std::size_t at;
  };
  std::vector<Open> open;
  bool is_in_text = false;
  std::size_t quote = 0;
  for (std::size_t i = 0; i < text->size(); ++i) {
    const char c = (*text)[i];
    if (is_in_text) {
      if (c == '\\') ++i;
      if (c == '"') is_in_text = false;
      continue;
    }
    if (c == '"') {
      is_in_text = true;
      quote = i;
    }
    if (c == '{' || c == '[') open.push_back({c == '{' ? '}' : ']', i});
    if ((c == '}' || c == ']') && !open.empty()) open.pop_back();
  }
  if (open.empty()) return false;
  if (is_in_text) text->resize(quote);
  const auto list = std::ranges::find(open.rbegin(), open.rend(), ']', &Open::end);
  const bool is_of_processes = has_processes && open.size() > 1 && list == open.rend() - 2;
  if (list != open.rend() && !is_of_processes) {
    if (list != open.rbegin()) text->resize(std::prev(list)->at);
    open.erase(list.base(), open.end());
  }
  while (!text->empty() && (text->back() == ',' || std::isspace(static_cast<unsigned char>(text->back())) != 0))
    text->pop_back();
  for (auto one = open.rbegin(); one != open.rend(); ++one) *text += one->end;
  return true;
}

Trace finish(TraceSink& sink, const std::string& name, const char* problem, std::uint64_t mended) {
  if (problem != nullptr && sink.trace().size() == 0)
    fail(ErrorKind::file, "{}: it cannot be read as JSON of rocprof: {}", name, problem);
  sink.lose("bytes that are no UTF-8, shown as question marks", mended);
  if (problem != nullptr) sink.lose("places where the text is broken or cut off, with all that follows");
  return sink.finish();
}

}  // namespace

bool is_rocprof(std::string_view head) {
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  if (first == head.npos || head[first] != '{') return false;
  if (head.substr(0, 256).find(fmt::format("\"{}\"", kTool)) != head.npos) return true;
  return head.find("\"traceEvents\"") != head.npos && head.find("\"BeginNs\"") != head.npos;
}

Trace read_rocprof_text(std::string text, const std::string& name) {
  std::uint64_t mended = 0;
  if (!simdjson::validate_utf8(text)) mended = mend_utf8(&text);
  const bool is_of_sdk = std::string_view(text).substr(0, 1 << 16).find(fmt::format("\"{}\"", kTool)) != text.npos;
  const char* problem = close_what_is_open(&text, is_of_sdk) ? "it is cut off" : nullptr;
  text.reserve(text.size() + simdjson::SIMDJSON_PADDING);
  json::parser parser;
  const simdjson::padded_string_view view(text.data(), text.size(), text.capacity());
  if (!is_of_sdk) {
    OldReader old;
    try {
      json::document document = parser.iterate(view);
      old.read(document.find_field("traceEvents"));
    } catch (const simdjson::simdjson_error& error) {
      problem = error.what();
    }
    return finish(old.sink(), name, problem, mended);
  }
  RocprofReader reader;
  for (const bool is_names : {true, false}) {  // names first, wherever they stand
    try {
      json::document document = parser.iterate(view);
      json::value tools = document.find_field(kTool);
      const json::json_type type = tools.type();
      std::size_t which = 0;
      const auto take = [&](json::value tool) {
        if (is_names) return reader.read_names(tool);
        if (which < reader.processes()) reader.read_records(tool, which);
        ++which;
      };
      if (type == json::json_type::array) {
        for_each_item(tools, take);
      } else {
        take(tools);
      }
    } catch (const simdjson::simdjson_error& error) {
      problem = error.what();
    }
  }
  return finish(reader.sink(), name, problem, mended);
}

}  // namespace paoding::trace
