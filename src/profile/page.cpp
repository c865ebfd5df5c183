// SPDX-License-Identifier: Apache-2.0
// The page's parts one behind the other. Its data stand in <script> elements that are no scripts: as JSON, or
// deflated where that is much, which a browser unpacks by itself. Its script is deflated too, and start.js unpacks it.
#include "profile/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "io/files.h"
#include "io/json_text.h"
#include "page_text.h"
#include "profile/kernel_name.h"
#include "profile/page_columns.h"
#include "profile/page_packing.h"
#include "profile/page_script.h"
#include "profile/timeline_rows.h"
#include "text/markup.h"

namespace paoding::profile {

namespace {

constexpr std::string_view kPageBegin = "<!doctype html>\n<!-- paoding report -->\n";
// Longer texts are deflated. A browser that cannot undo that shows shorter ones all the same.
constexpr std::size_t kMostPlainJson = std::size_t{1} << 18;
// The most bytes of a page per span, where there are many spans; it says which columns did not fit and were left out.
constexpr double kMostPageBytesPerSpan = 2.9;
constexpr std::size_t kAlwaysFits = std::size_t{1} << 20;
// The most bytes of text for browsers without scripts.
constexpr std::size_t kMostText = std::size_t{1} << 17;

constexpr const char* kScripts[] = {k_words_js, k_data_js,     k_table_js,    k_overview_js, k_longest_js, k_steps_js,
                                    k_ops_js,   k_findings_js, k_timeline_js, k_draw_js,     k_input_js,   k_details_js,
                                    k_flame_js, k_sandwich_js, k_search_js,   k_main_js};

// JSON has < in strings only: nothing in it ends the element that it stands in.
std::string without_tags(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) c == '<' ? out += "\\u003c" : out += c;
  return out;
}

// Texts that come again and again, by number; 0 is "".
class StringNumbers {
 public:
  std::uint32_t number(std::string_view text) {
    const auto [found, is_new] = numbers_.try_emplace(std::string(shown(text)), texts_.size());
    if (is_new) texts_.push_back(json_string(found->first));
    return found->second;
  }
  std::string json() const { return json_array(texts_); }

 private:
  std::map<std::string, std::uint32_t> numbers_{{"", 0}};
  std::vector<std::string> texts_{"\"\""};
};

// Columns of one length as a JSON object of arrays.
class JsonColumns {
 public:
  template <class T>
  void add(std::string_view column, const T& item) {
    std::string& text = columns_[std::string(column)];
    if (!text.empty()) text += ',';
    text += fmt::format("{}", item);
  }
  std::string json() const {
    JsonObject all;
    for (const auto& [name, items] : columns_) all.add_json(name, "[" + items + "]");
    return all.text();
  }

 private:
  std::map<std::string, std::string> columns_;
};

std::string tracks_json(const Trace& trace, StringNumbers* strings) {
  std::vector<std::uint64_t> spans(trace.tracks().size(), 0);
  for (SpanId i = 0; i < trace.size(); ++i) ++spans[trace.track_id(i)];
  JsonColumns columns;
  for (TrackId t = 0; t < spans.size(); ++t) {
    const Track& track = trace.tracks()[t];
    columns.add("name", strings->number(trace.text(track.name)));
    columns.add("kind", static_cast<int>(track.kind));
    columns.add("device", track.device);
    columns.add("process", track.process);
    columns.add("spans", spans[t]);
  }
  return columns.json();
}

// `shorts`: short names of kernels, as a JSON object by the number of the whole name.
std::string sites_json(const Trace& trace, const SiteNumbers& sites, StringNumbers* strings, JsonObject* shorts) {
  JsonColumns columns;
  std::set<std::uint32_t> shortened;
  for (const SiteId id : sites.site) {
    const Site& site = trace.sites()[id];
    const bool is_group = site.members_end > site.members_begin;
    const StringId name = site.name != 0 ? site.name : site.op;
    const std::uint32_t number = strings->number(is_group ? group_name(trace, site) : trace.text(name));
    columns.add("name", number);
    if (site.kind == SpanKind::kernel && !is_group && shortened.insert(number).second) {
      const std::string text = short_kernel_name(trace.text(name));
      if (text != trace.text(name)) shorts->add(fmt::format("{}", number), text);
    }
    columns.add("op", strings->number(trace.text(site.op)));
    columns.add("scope", strings->number(trace.text(site.scope)));
    columns.add("instance", strings->number(trace.text(site.instance)));
    columns.add("kernel", strings->number(trace.text(site.kernel)));
    columns.add("operands", strings->number(trace.text(site.shapes)));
    columns.add("launch", strings->number(to_string(site.launch)));
    columns.add("copy", strings->number(to_string(site.copy)));
    columns.add("kind", static_cast<int>(site.kind));
    columns.add("bytes", std::max<std::int64_t>(site.bytes, 0));
    columns.add("flops", json_number(std::max(site.flops, 0.0)));
  }
  return columns.json();
}

// Calls that moved more or fewer bytes than their site says.
ArgumentColumn bytes_of_calls(const Trace& trace) {
  ArgumentColumn column;
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.bytes(i) == trace.site(i).bytes) continue;
    column.of.push_back(i);
    column.bits.push_back(static_cast<std::uint64_t>(trace.bytes(i)));
  }
  return column;
}

class Page {
 public:
  Page(const Trace& trace, const Measures& measures, const ReportOptions& options, const Sink& sink)
      : trace_(trace), measures_(measures), options_(options), sink_(sink) {}

  void write() {
    std::string program;
    for (const Process& process : trace_.processes()) {
      if (program.empty()) program = shown(trace_.text(process.name));
    }
    sink_(kPageBegin);
    // Nothing is ever loaded, and nothing sent.
    sink_(
        fmt::format("<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" "
                    "content=\"default-src "
                    "'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n<meta name=\"viewport\" "
                    "content=\"width=device-width, initial-scale=1\">\n<title>{}Profiling Report</title>\n<style>\n",
                    program.empty() ? "" : markup_text(program) + " · "));
    sink_(k_page_css);
    sink_("</style></head>\n<body>\n");
    sink_(k_page_html);
    write_report();
    write_trace();
    write_script();
    sink_("</body></html>\n");
  }

 private:
  void write_script() {
    constexpr int kSmallest = 9;
    std::string all = "\"use strict\";\n";
    for (const char* script : kScripts) all += small_script(script);
    write_base64("script", base64(deflated(all + "//# sourceURL=paoding.js\n", kSmallest)));
    sink_("<script>\n" + small_script(k_start_js) + "</script>\n");
  }

  void write_report() {
    Measures most = measures_;
    const bool has_threads_apart = !most.merged.empty();
    if (has_threads_apart) most.per_thread.clear();
    ReportOptions options = options_;
    options.line_width = 0;
    std::string text = to_text(most, options);
    if (text.size() > kMostText)
      text.resize(text.find('\n', kMostText) == text.npos ? kMostText : text.find('\n', kMostText));
    sink_("<noscript><p>This page draws by JavaScript, which is off. The report as text:</p><pre>" +
          markup_text(text, true) + "</pre></noscript>\n");
    write_json("report", to_json(most, options));
    if (has_threads_apart) write_json("threads", sections_json(measures_.per_thread));
  }

  void write_trace() {
    if (trace_.size() == 0 && trace_.samples().empty()) return;
    const SpanColumns spans(trace_);
    const std::vector<std::string> blocks = spans.blocks();
    for (const std::string& block : blocks) used_ += block.size();
    StringNumbers strings;
    const std::string counters = counters_json(spans, &strings);
    if (const std::string others = spans.other_parents(); others.size() > 2) write_packed("parents", others);
    write_if_it_fits("causes", cause_column(trace_), "the arrows from launches to what they started");
    write_if_it_fits("flows", flow_column(trace_), "the arrows between spans");
    const std::string arguments = arguments_json();
    std::vector<std::string> processes;
    for (ProcessId i = 0; i < trace_.processes().size(); ++i) {
      const Process& process = trace_.processes()[i];
      JsonObject one;
      one.add("name", trace_.process_name(i)).add("program", shown(trace_.text(process.name)));
      processes.push_back(one.add("pid", process.pid).add("rank", process.rank).text());
    }
    std::vector<std::string> kinds;
    for (int kind = 0; kind < kSpanKinds; ++kind) kinds.emplace_back(to_string(static_cast<SpanKind>(kind)));
    JsonObject all;
    all.add("version", 1).add("quantum_ns", spans.quantum_ns()).add("wall_ns", trace_.wall_ns());
    all.add("spans", static_cast<std::int64_t>(trace_.size()));
    all.add("per_block", static_cast<std::int64_t>(kSpansPerBlock)).add_json("kinds", json_strings(kinds));
    all.add_json("processes", json_array(processes)).add_json("tracks", tracks_json(trace_, &strings));
    JsonObject shorts;
    all.add_json("sites", sites_json(trace_, spans.sites(), &strings, &shorts)).add_json("counters", counters);
    all.add_json("shorts", shorts.text());
    all.add_json("arguments", arguments).add_json("left_out", json_strings(left_out_));
    all.add_json("strings", strings.json());
    write_json("trace", all.text());
    for (std::size_t i = 0; i < blocks.size(); ++i) write_base64(fmt::format("spans{}", i), blocks[i]);
  }

  std::string counters_json(const SpanColumns& spans, StringNumbers* strings) {
    const std::vector<Sample>& samples = trace_.samples();
    std::vector<std::string> items;
    for (std::size_t begin = 0, end = 0; begin < samples.size(); begin = end) {
      while (end < samples.size() && samples[end].counter == samples[begin].counter) ++end;
      const Counter& counter = trace_.counters()[samples[begin].counter];
      const std::string id = fmt::format("samples{}", items.size());
      const std::string name(shown(trace_.text(counter.name)));
      if (!write_if_it_fits(id, sample_column(trace_, spans, begin, end), "the counter " + name)) continue;
      JsonObject one;
      one.add("name", static_cast<int>(strings->number(name))).add("device", counter.device);
      items.push_back(one.add("process", static_cast<std::int64_t>(counter.process)).text());
    }
    return json_array(items);
  }

  std::string arguments_json() {
    std::vector<std::string> items;
    const auto add = [&](const std::string& name, const ArgumentColumn& column) {
      if (column.of.empty()) return;
      static constexpr const char* kTypes[] = {"integer", "real", "text"};
      std::vector<std::string> texts;
      const std::string bytes = argument_column(column, trace_, &texts);
      if (!write_if_it_fits(fmt::format("arguments{}", items.size()), bytes, "the argument " + name)) return;
      JsonObject one;
      one.add("name", name).add("type", kTypes[static_cast<int>(column.type)]);
      items.push_back(one.add_json("texts", json_strings(texts)).text());
    };
    add("bytes of this call", bytes_of_calls(trace_));
    for (const ArgumentColumn& column : trace_.columns()) add(argument_name(trace_, column), column);
    return json_array(items);
  }

  bool write_if_it_fits(const std::string& id, const std::string& bytes, const std::string& what) {
    if (bytes.size() <= 2) return false;  // two columns of nothing
    const std::string packed = base64(deflated(bytes));
    const auto most =
        std::max(kAlwaysFits, static_cast<std::size_t>(kMostPageBytesPerSpan * static_cast<double>(trace_.size())));
    if (used_ + packed.size() > most) {
      left_out_.push_back(what);
      return false;
    }
    used_ += packed.size();
    write_base64(id, packed);
    return true;
  }

  void write_packed(const std::string& id, std::string_view bytes) {
    const std::string packed = base64(deflated(bytes));
    used_ += packed.size();
    write_base64(id, packed);
  }
  void write_base64(const std::string& id, std::string_view packed) {
    sink_(fmt::format("<script type=\"text/plain\" data-packed=\"deflate\" id=\"paoding-{}\">", id));
    sink_(packed);
    sink_("</script>\n");
  }
  void write_json(const std::string& id, std::string_view json) {
    if (json.size() > kMostPlainJson) return write_base64(id, base64(deflated(json)));
    sink_(fmt::format("<script type=\"application/json\" id=\"paoding-{}\">", id));
    sink_(without_tags(json));
    sink_("</script>\n");
  }

  const Trace& trace_;
  const Measures& measures_;
  const ReportOptions& options_;
  const Sink& sink_;
  std::size_t used_ = 0;  // bytes of all that grows with the spans
  std::vector<std::string> left_out_;
};

}  // namespace

std::string page_text(const Trace& trace, const Measures& measures, const ReportOptions& options) {
  std::string text;
  Page(trace, measures, options, [&](std::string_view piece) { text += piece; }).write();
  return text;
}

bool is_page(std::string_view path) { return path.ends_with(".html"); }

bool begins_page(std::string_view head) { return head.starts_with(kPageBegin); }

void write_page(const Trace& trace, const Measures& measures, const ReportOptions& options, const std::string& path) {
  files::AtomicFile file(path, begins_page);
  Page(trace, measures, options, [&](std::string_view piece) { file.write(piece.data(), piece.size()); }).write();
  file.commit();
}

}  // namespace paoding::profile
