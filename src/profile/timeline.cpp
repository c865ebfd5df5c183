// SPDX-License-Identifier: Apache-2.0
// Chrome trace JSON: complete events ("X"), instants ("i"), names ("M"), counters ("C") and flows ("s" to "f").
#include "profile/timeline.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "base/check.h"
#include "io/files.h"
#include "profile/row_names.h"
#include "profile/timeline_rows.h"

namespace paoding::profile {

namespace {

using Buffer = fmt::memory_buffer;

template <class... Args>
void append(Buffer& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
}

// Bytes of the UTF-8 sequence at the start of `text`; 0 when it is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const std::size_t n = first < 0x80                    ? 1
                        : first >= 0xc2 && first < 0xe0 ? 2
                        : (first & 0xf0) == 0xe0        ? 3
                        : first >= 0xf0 && first < 0xf5 ? 4
                                                        : 0;
  if (n == 0 || n > text.size()) return 0;
  for (std::size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if (first == 0xe0 && byte(1) < 0xa0) return 0;   // overlong
  if (first == 0xed && byte(1) >= 0xa0) return 0;  // surrogate
  if (first == 0xf0 && byte(1) < 0x90) return 0;   // overlong
  if (first == 0xf4 && byte(1) >= 0x90) return 0;  // beyond Unicode
  return n;
}

void append_string(Buffer& out, std::string_view text) {
  out.push_back('"');
  while (!text.empty()) {
    const char c = text[0];
    const std::size_t n = utf8_length(text);
    if (n == 0) {
      out.append(std::string_view("\\ufffd"));
    } else if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      append(out, "\\u{:04x}", static_cast<int>(c));
    } else {
      out.append(text.substr(0, n));
    }
    text.remove_prefix(n == 0 ? 1 : n);
  }
  out.push_back('"');
}

// Microseconds with all three decimals: ns are exact in text, not in a double.
void append_us(Buffer& out, std::int64_t ns) { append(out, "{}.{:03d}", ns / 1000, ns % 1000); }

// What a file begins with.
constexpr std::string_view kBegin = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";

class Timeline {
 public:
  Timeline(const Trace& trace, const Sink& sink)
      : trace_(trace), sink_(sink), row_of_(rows_of(trace)), arguments_(trace) {}

  void write() {
    out_.append(kBegin);
    append_names();
    for (SpanId i = 0; i < trace_.size(); ++i) append_span(i);
    for (SpanId i = 0; i < trace_.size(); ++i) {
      if (trace_.cause(i) != kNone) append_flow("cause", i, trace_.cause(i), i);
    }
    std::size_t number = trace_.size();  // behind those of causes
    for (const Flow& flow : trace_.flows()) append_flow("flow", number++, flow.from, flow.to);
    append_counters();
    append(out_, "\n],\"otherData\":{{\"startNs\":\"{}\",\"notSeen\":[", trace_.window_start());
    for (std::size_t n = 0; n < trace_.notes().size(); ++n) {
      append(out_, "{}{{\"what\":", n == 0 ? "" : ",");
      append_string(out_, trace_.notes()[n].text);
      append(out_, ",\"count\":{}}}", trace_.notes()[n].count);
    }
    append(out_, "]}}}}\n");
    flush(0);
  }

 private:
  int pid(SpanId i) const { return pid_of(trace_.track(i).process, trace_.track(i).device); }
  static int pid_of(ProcessId process, int device) {
    return static_cast<int>(process) * kProcessesEach + device + 1;  // host: 0
  }
  std::uint64_t tid(SpanId i) const { return std::uint64_t{trace_.track_id(i)} * kRowsPerTrack + row_of_[i]; }

  void flush(std::size_t most) {
    if (out_.size() <= most) return;
    sink_(std::string_view(out_.data(), out_.size()));
    out_.clear();
  }

  void begin_event() {
    flush(std::size_t{1} << 20);
    if (!is_first_) append(out_, ",\n");
    is_first_ = false;
  }

  void append_names() {
    std::set<int> pids;
    std::set<std::uint64_t> tids;
    const auto name_process = [&](ProcessId process, int device) {
      const int pid = pid_of(process, device);
      if (pids.insert(pid).second) append_name("process_name", pid, 0, place_name(trace_, process, device));
    };
    for (const Sample& sample : trace_.samples()) {
      const Counter& counter = trace_.counters()[sample.counter];
      name_process(counter.process, counter.device);
    }
    for (SpanId i = 0; i < trace_.size(); ++i) {
      name_process(trace_.track(i).process, trace_.track(i).device);
      if (!tids.insert(tid(i)).second) continue;
      std::string name(trace_.text(trace_.track(i).name));
      if (row_of_[i] > 0) name += fmt::format(" ({})", row_of_[i] + 1);
      append_name("thread_name", pid(i), tid(i), name);
    }
  }

  void append_name(std::string_view what, int pid, std::uint64_t tid, std::string_view name) {
    begin_event();
    append(out_, "{{\"ph\":\"M\",\"name\":\"{}\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":", what, pid, tid);
    append_string(out_, name);
    append(out_, "}}}}");
  }

  void append_span(SpanId i) {
    const Site& site = trace_.site(i);
    begin_event();
    const bool is_instant = site.kind == SpanKind::instant;
    append(out_, "{{\"ph\":\"{}\",\"cat\":\"{}\",\"name\":", is_instant ? "i" : "X", to_string(site.kind));
    append_string(out_, trace_.name(i).empty() ? to_string(site.kind) : shown(trace_.name(i)));
    append(out_, ",\"pid\":{},\"tid\":{},\"ts\":", pid(i), tid(i));
    append_us(out_, trace_.start(i) - trace_.window_start());
    if (is_instant) {
      append(out_, ",\"s\":\"t\"");  // of its thread
    } else {
      append(out_, ",\"dur\":");
      append_us(out_, trace_.duration(i));
    }
    append(out_, ",\"args\":{{\"run\":{}", trace_.run(i));
    append_text("op", trace_.text(site.op));
    append_text("scope", trace_.text(site.scope));
    append_text("instance", trace_.text(site.instance));
    append_text("kernel", trace_.text(site.kernel));
    append_text("operands", trace_.text(site.shapes));
    append_text("launch", to_string(site.launch));
    append_text("copy", to_string(site.copy));
    if (trace_.bytes(i) > 0) append(out_, ",\"bytes\":{}", trace_.bytes(i));
    if (trace_.flops(i) > 0) append(out_, ",\"flops\":{}", trace_.flops(i));
    if (site.members_end > site.members_begin) {
      append(out_, ",\"members\":[");
      const auto end = std::min(site.members_end, site.members_begin + kMostMembers);
      for (auto m = site.members_begin; m < end; ++m) {
        if (m > site.members_begin) out_.push_back(',');
        append_string(out_, shown(trace_.text(trace_.members()[m].op)));
      }
      out_.push_back(']');
    }
    arguments_.for_each(i, [&](const ArgumentColumn& column, std::size_t at) { append_argument(column, at); });
    append(out_, "}}}}");
  }

  // JSON has no word for what is no number.
  void append_argument(const ArgumentColumn& column, std::size_t at) {
    out_.push_back(',');
    append_string(out_, argument_name(trace_, column));
    out_.push_back(':');
    switch (column.type) {
      case ArgumentType::integer: append(out_, "{}", column.integer(at)); break;
      case ArgumentType::real:
        if (std::isfinite(column.real(at))) {
          append(out_, "{}", column.real(at));
        } else {
          append(out_, "\"{}\"", column.real(at));
        }
        break;
      case ArgumentType::text: append_string(out_, shown(trace_.text(column.text(at)))); break;
    }
  }

  void append_text(std::string_view key, std::string_view value) {
    if (value.empty()) return;
    append(out_, ",\"{}\":", key);
    append_string(out_, shown(value));
  }

  void append_counters() {
    const std::vector<Sample>& samples = trace_.samples();
    for (std::size_t i = 0; i < samples.size(); ++i) {
      append_counter(samples[i]);
      const bool is_last = i + 1 == samples.size() || samples[i + 1].counter != samples[i].counter;
      if (is_last) append_counter(at_the_end(trace_, samples[i]));
    }
  }

  void append_counter(const Sample& sample) {
    const Counter& counter = trace_.counters()[sample.counter];
    begin_event();
    append(out_, "{{\"ph\":\"C\",\"pid\":{},\"name\":", pid_of(counter.process, counter.device));
    append_string(out_, fmt::format("memory: {}", shown(trace_.text(counter.name))));
    append(out_, ",\"ts\":");
    append_us(out_, sample.ns - trace_.window_start());
    append(out_, ",\"args\":{{\"bytes\":{}}}}}", sample.value);
  }

  void append_flow(std::string_view what, std::size_t number, SpanId from, SpanId to) {
    for (const bool is_start : {true, false}) {
      const SpanId at = is_start ? from : to;
      begin_event();
      append(out_, "{{\"ph\":\"{}\",\"cat\":\"{}\",\"name\":\"{}\",\"id\":{},\"pid\":{},\"tid\":{},\"ts\":",
             is_start ? "s" : "f", what, what, number, pid(at), tid(at));
      append_us(out_, trace_.start(at) - trace_.window_start());
      out_.append(std::string_view(is_start ? "}" : ",\"bp\":\"e\"}"));
    }
  }

  const Trace& trace_;
  const Sink& sink_;
  const std::vector<std::uint32_t> row_of_;
  ArgumentsInOrder arguments_;
  Buffer out_;
  bool is_first_ = true;
};

// Packed by zlib as `gzip` does it.
class Packer {
 public:
  explicit Packer(Sink sink) : sink_(std::move(sink)) {
    constexpr int kGzip = 16;
    const int problem = deflateInit2(&stream_, Z_BEST_SPEED, Z_DEFLATED, MAX_WBITS + kGzip, 8, Z_DEFAULT_STRATEGY);
    PD_ASSERT(problem == Z_OK, "zlib does not start");
  }
  ~Packer() { deflateEnd(&stream_); }
  Packer(const Packer&) = delete;
  Packer& operator=(const Packer&) = delete;

  void write(std::string_view bytes, bool is_last = false) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream_.avail_in = static_cast<uInt>(bytes.size());
    do {
      char packed[1 << 16];
      stream_.next_out = reinterpret_cast<Bytef*>(packed);
      stream_.avail_out = sizeof(packed);
      deflate(&stream_, is_last ? Z_FINISH : Z_NO_FLUSH);
      sink_({packed, sizeof(packed) - stream_.avail_out});
    } while (stream_.avail_out == 0);
  }

 private:
  const Sink sink_;
  z_stream stream_{};
};

}  // namespace

std::vector<std::uint32_t> rows_of(const Trace& trace) {
  std::vector<std::uint32_t> rows(trace.size(), 0);
  std::vector<std::vector<std::int64_t>> open;  // per row: ends of the spans around the current position
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (i == 0 || trace.track_id(i) != trace.track_id(i - 1)) open.clear();
    std::uint32_t row = 0;
    for (;; ++row) {
      if (row == open.size()) open.emplace_back();
      std::vector<std::int64_t>& ends = open[row];
      while (!ends.empty() && ends.back() <= trace.start(i)) ends.pop_back();
      const bool fits = ends.empty() || trace.end(i) <= ends.back();
      if (fits || row + 1 == kRowsPerTrack) break;
    }
    open[row].push_back(trace.end(i));
    rows[i] = row;
  }
  return rows;
}

std::string_view shown(std::string_view text) {
  constexpr std::size_t kLongest = 2000;
  return text.size() <= kLongest ? text : head(text, kLongest);
}

std::string argument_name(const Trace& trace, const ArgumentColumn& column) {
  static constexpr std::string_view kOwn[] = {"run",    "op",   "scope", "instance", "kernel", "operands",
                                              "launch", "copy", "flops", "bytes",    "members"};
  std::string name(shown(trace.text(column.name)));
  if (std::ranges::find(kOwn, name) != std::end(kOwn)) name = "argument " + name;
  return name;
}

std::string place_name(const Trace& trace, ProcessId process, int device) {
  const std::string of = trace.process_name(process);
  return of + (of.empty() ? "" : " ") + (device < 0 ? "host" : fmt::format("GPU {}", device));
}

Sample at_the_end(const Trace& trace, const Sample& last) { return {last.counter, trace.window_end(), last.value}; }

void write_chrome(const Trace& trace, const Sink& sink) { Timeline(trace, sink).write(); }

std::string timeline_json(const Trace& trace) {
  std::string text;
  write_chrome(trace, [&](std::string_view piece) { text += piece; });
  return text;
}

bool is_timeline(std::string_view path) {
  return path.ends_with(".json") || path.ends_with(".json.gz") || path.ends_with(".pftrace");
}

namespace {

bool begins_chrome(std::string_view head) { return head.starts_with(kBegin); }

// Of a file that is packed by gzip.
bool begins_packed(std::string_view head) {
  z_stream stream{};
  if (inflateInit2(&stream, MAX_WBITS + 16) != Z_OK) return false;
  char text[kBegin.size()];
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(head.data()));
  stream.avail_in = static_cast<uInt>(head.size());
  stream.next_out = reinterpret_cast<Bytef*>(text);
  stream.avail_out = sizeof(text);
  inflate(&stream, Z_SYNC_FLUSH);
  inflateEnd(&stream);
  return begins_chrome({text, sizeof(text) - stream.avail_out});
}

// One packet that says of a track, as write_perfetto() begins.
bool begins_perfetto(std::string_view head) {
  constexpr std::string_view kDescriptor = "\xe2\x03";
  return head.size() > 5 && head[0] == '\x0a' && (head.substr(2, 2) == kDescriptor || head.substr(3, 2) == kDescriptor);
}

}  // namespace

files::IsOurs timeline_beginning(std::string_view path) {
  return path.ends_with(".pftrace") ? begins_perfetto : path.ends_with(".gz") ? begins_packed : begins_chrome;
}

void write_timeline(const Trace& trace, const std::string& path) {
  files::AtomicFile file(path, timeline_beginning(path));
  const Sink sink = [&](std::string_view piece) { file.write(piece.data(), piece.size()); };
  if (path.ends_with(".pftrace")) {
    write_perfetto(trace, sink);
  } else if (path.ends_with(".gz")) {
    Packer packer(sink);
    write_chrome(trace, [&](std::string_view piece) { packer.write(piece); });
    packer.write("", true);
  } else {
    write_chrome(trace, sink);
  }
  file.commit();
}

}  // namespace paoding::profile
