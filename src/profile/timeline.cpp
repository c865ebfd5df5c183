// SPDX-License-Identifier: Apache-2.0
// Chrome trace JSON: complete events ("X"), names ("M") and flows ("s" to "f").
#include "profile/timeline.h"

#include <fmt/format.h>

#include <iterator>
#include <set>

#include "io/files.h"

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

class Timeline {
 public:
  explicit Timeline(const Trace& trace) : trace_(trace) {}

  std::string text() {
    append(out_, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    assign_rows();
    append_names();
    for (SpanId i = 0; i < trace_.size(); ++i) append_span(i);
    for (SpanId i = 0; i < trace_.size(); ++i) {
      if (trace_.cause(i) != kNone) append_flow(trace_.cause(i), i);
    }
    append(out_, "\n],\"otherData\":{{\"startNs\":\"{}\",\"notSeen\":[", trace_.first_ns());
    for (std::size_t n = 0; n < trace_.notes().size(); ++n) {
      append(out_, "{}{{\"what\":", n == 0 ? "" : ",");
      append_string(out_, trace_.notes()[n].text);
      append(out_, ",\"count\":{}}}", trace_.notes()[n].count);
    }
    append(out_, "]}}}}\n");
    return fmt::to_string(out_);
  }

 private:
  static constexpr std::uint32_t kRowsPerTrack = 64;

  int pid(SpanId i) const { return trace_.track(i).device + 1; }  // host: 0
  std::uint64_t tid(SpanId i) const { return std::uint64_t{trace_.track_id(i)} * kRowsPerTrack + row_of_[i]; }

  void begin_event() {
    if (!is_first_) append(out_, ",\n");
    is_first_ = false;
  }

  // Each span to the first row of its track where it lies inside, or after, what is there.
  void assign_rows() {
    row_of_.assign(trace_.size(), 0);
    std::vector<std::vector<std::int64_t>> open;  // per row: ends of the spans around the current position
    for (SpanId i = 0; i < trace_.size(); ++i) {
      if (i == 0 || trace_.track_id(i) != trace_.track_id(i - 1)) open.clear();
      std::uint32_t row = 0;
      for (;; ++row) {
        if (row == open.size()) open.emplace_back();
        std::vector<std::int64_t>& ends = open[row];
        while (!ends.empty() && ends.back() <= trace_.start(i)) ends.pop_back();
        const bool fits = ends.empty() || trace_.end(i) <= ends.back();
        if (fits || row + 1 == kRowsPerTrack) break;
      }
      open[row].push_back(trace_.end(i));
      row_of_[i] = row;
    }
  }

  void append_names() {
    std::set<int> pids;
    std::set<std::uint64_t> tids;
    for (SpanId i = 0; i < trace_.size(); ++i) {
      if (pids.insert(pid(i)).second) {
        const int device = trace_.track(i).device;
        append_name("process_name", pid(i), 0, device < 0 ? "host" : fmt::format("GPU {}", device));
      }
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
    append(out_, "{{\"ph\":\"X\",\"cat\":\"{}\",\"name\":", to_string(site.kind));
    append_string(out_, trace_.name(i).empty() ? to_string(site.kind) : trace_.name(i));
    append(out_, ",\"pid\":{},\"tid\":{},\"ts\":", pid(i), tid(i));
    append_us(out_, trace_.start(i) - trace_.first_ns());
    append(out_, ",\"dur\":");
    append_us(out_, trace_.duration(i));
    append(out_, ",\"args\":{{\"run\":{}", trace_.run(i));
    append_text("op", trace_.text(site.op));
    append_text("scope", trace_.text(site.scope));
    append_text("instance", trace_.text(site.instance));
    append_text("copy", to_string(site.copy));
    if (trace_.bytes(i) > 0) append(out_, ",\"bytes\":{}", trace_.bytes(i));
    if (trace_.flops(i) > 0) append(out_, ",\"flops\":{}", trace_.flops(i));
    if (site.members_end > site.members_begin) {
      append(out_, ",\"members\":[");
      for (auto m = site.members_begin; m < site.members_end; ++m) {
        if (m > site.members_begin) out_.push_back(',');
        append_string(out_, trace_.text(trace_.members()[m].op));
      }
      out_.push_back(']');
    }
    append(out_, "}}}}");
  }

  void append_text(std::string_view key, std::string_view value) {
    if (value.empty()) return;
    append(out_, ",\"{}\":", key);
    append_string(out_, value);
  }

  void append_flow(SpanId from, SpanId to) {
    for (const bool is_start : {true, false}) {
      const SpanId at = is_start ? from : to;
      begin_event();
      append(out_, "{{\"ph\":\"{}\",\"cat\":\"cause\",\"name\":\"cause\",\"id\":{},\"pid\":{},\"tid\":{},\"ts\":",
             is_start ? "s" : "f", to, pid(at), tid(at));
      append_us(out_, trace_.start(at) - trace_.first_ns());
      out_.append(std::string_view(is_start ? "}" : ",\"bp\":\"e\"}"));
    }
  }

  const Trace& trace_;
  Buffer out_;
  bool is_first_ = true;
  std::vector<std::uint32_t> row_of_;
};

}  // namespace

std::string timeline_json(const Trace& trace) { return Timeline(trace).text(); }

void write_timeline(const Trace& trace, const std::string& path) {
  const std::string text = timeline_json(trace);
  files::AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace paoding::profile
