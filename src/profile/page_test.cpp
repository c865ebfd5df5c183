// SPDX-License-Identifier: Apache-2.0
// The page of a report as a file. tests/page/page_test.py tests it in a browser, with recordings that the last test
// here writes.
#include "profile/page.h"

#include <gtest/gtest.h>
#include <simdjson.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "paoding/error.h"
#include "paoding/profile.h"
#include "profile/page_packing.h"
#include "profile/recording.h"
#include "profile/report.h"
#include "profile/save.h"
#include "tests/support/temporary_folder.h"

namespace paoding::profile {
namespace {

constexpr const char* kAwkward = "</script><script>hacked = 1</script><!-- \"'`&amp;\x01\x1b[31m \xe2\x80\xae\xff";

// Steps of a training: a loop, ops with kernels on two streams that were launched by them, a thread that reads data.
Trace training_trace(std::int64_t steps, ProcessId processes = 1) {
  Trace trace;
  std::mt19937_64 random(7);
  const auto around = [&](std::int64_t ns) { return ns * 3 / 4 + static_cast<std::int64_t>(random() % (ns / 2 + 1)); };
  const SiteId step = trace.add_site({.name = "step", .kind = SpanKind::range});
  const SiteId run = trace.add_site({.name = "run", .kind = SpanKind::run});
  const SiteId feed = trace.add_site({.name = "feed", .kind = SpanKind::feed, .bytes = 1 << 20});
  const SiteId wait = trace.add_site({.name = "wait for fetch", .kind = SpanKind::wait});
  const SiteId copy = trace.add_site(
      {.name = "copy", .kind = SpanKind::memcpy, .copy = Copy::host_to_device, .async = true, .bytes = 1 << 20});
  const SiteId reads = trace.add_site({.name = "read batch", .kind = SpanKind::range});
  const char* const ops[] = {"matmul", "softmax", "layer_norm", "add", "gelu", "dropout", "matmul_grad", "adam"};
  std::vector<SiteId> launches, kernels;
  for (int layer = 0; layer < 4; ++layer) {
    for (const char* op : ops) {
      const std::string scope = "decoder/block" + std::to_string(layer), instance = op + std::to_string(layer);
      launches.push_back(trace.add_site({.op = op, .scope = scope, .instance = instance, .kind = SpanKind::launch}));
      kernels.push_back(trace.add_site({.op = op,
                                        .scope = scope,
                                        .instance = instance,
                                        .kernel = std::string("k_") + op,
                                        .kind = SpanKind::kernel,
                                        .bytes = 8 << 20,
                                        .flops = 1e9}));
    }
  }
  const ColumnId registers = trace.add_column("registers per thread", ArgumentType::integer);
  const ColumnId file = trace.add_column("file", ArgumentType::text);
  for (ProcessId p = 0; p < processes; ++p) {
    const ProcessId process =
        processes > 1 ? trace.add_process(4711 + static_cast<int>(p), static_cast<int>(p), "train") : 0;
    const TrackId host = trace.add_track(TrackKind::thread, "thread0", -1, process);
    const TrackId reader = trace.add_track(TrackKind::thread, "reader", -1, process);
    const TrackId streams[] = {trace.add_track(TrackKind::stream, "stream 7", 0, process),
                               trace.add_track(TrackKind::stream, "stream 9", 0, process)};
    const CounterId arenas = trace.add_counter(0, "arenas", process);
    std::int64_t now = 1'000'000'000'000, free[2] = {now, now};
    std::uint32_t correlation = p * 100'000'000;
    for (std::int64_t s = 0; s < steps; ++s) {
      const std::int64_t begin = now;
      const SpanId read = trace.add({.track = reader, .site = reads, .start_ns = now, .duration_ns = around(90'000)});
      trace.add_argument(read, file, s % 2 == 0 ? "data/a.bin" : "data/b.bin");
      trace.add({.track = host, .site = feed, .start_ns = now + 100, .duration_ns = around(8'000)});
      trace.add({.track = host,
                 .site = copy,
                 .start_ns = now + 9'000 + 4'000,
                 .duration_ns = 2'000,
                 .correlation = ++correlation});
      trace.add({.track = streams[1],
                 .site = copy,
                 .start_ns = now + 16'000,
                 .duration_ns = around(20'000),
                 .correlation = correlation});
      const std::int64_t run_begin = now + 20'000;
      now = run_begin + 500;
      const auto number = static_cast<std::uint32_t>(s + 1);
      for (std::size_t k = 0; k < launches.size(); ++k) {
        const std::int64_t takes = around(1'800);
        trace.add({.track = host,
                   .site = launches[k],
                   .start_ns = now,
                   .duration_ns = takes,
                   .run = number,
                   .correlation = ++correlation});
        std::int64_t& stream = free[k % 8 == 7 ? 1 : 0];
        stream = std::max(stream + 300, now + takes + 900);
        const std::int64_t kernel_ns = around(k % 8 == 0 || k % 8 == 6 ? 9'000 : 1'500);
        const SpanId kernel = trace.add({.track = streams[k % 8 == 7 ? 1 : 0],
                                         .site = kernels[k],
                                         .start_ns = stream,
                                         .duration_ns = kernel_ns,
                                         .run = number,
                                         .correlation = correlation});
        trace.add_argument(kernel, registers, std::int64_t{32} + static_cast<std::int64_t>(k % 8) * 8);
        stream += kernel_ns;
        now += takes + around(400);
      }
      const std::int64_t done = std::max({free[0], free[1], now});
      trace.add({.track = host, .site = wait, .start_ns = now, .duration_ns = done - now, .run = number});
      trace.add(
          {.track = host, .site = run, .start_ns = run_begin, .duration_ns = done + 300 - run_begin, .run = number});
      now = done + 400;
      trace.add({.track = host, .site = step, .start_ns = begin, .duration_ns = now - begin});
      trace.add_sample({arenas, begin, (std::int64_t{64} + s % 7 * 16) << 20});
      now += around(6'000);
    }
  }
  trace.finish();
  return trace;
}

Trace with_awkward_names() {
  Trace trace;
  const TrackId host = trace.add_track(TrackKind::thread, kAwkward);
  const std::string names[] = {kAwkward,   "",         "__proto__", "constructor", std::string(100'000, 'x'),
                               "\xff\xfe", "&lt;b&gt;"};
  std::int64_t now = 5;
  for (const std::string& name : names) {
    const SpanId span =
        trace.add({.track = host,
                   .site = trace.add_site({.name = name, .op = kAwkward, .scope = kAwkward, .kind = SpanKind::op}),
                   .start_ns = now,
                   .duration_ns = 1000});
    trace.add_argument(span, trace.add_column(kAwkward, ArgumentType::text), kAwkward);
    now += 1500;
  }
  trace.add_note(kAwkward, 3);
  trace.add_sample({trace.add_counter(-1, kAwkward), 7, 1 << 20});
  trace.finish();
  return trace;
}

std::string page_of(const Trace& trace) {
  const ReportOptions options;
  return page_text(trace, measure(trace, options), options);
}

std::string unpacked(std::string_view base64_text) {
  std::string packed;
  std::uint32_t held = 0;
  int bits = 0;
  for (const char c : base64_text) {
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if (c == '=') break;
    held = held << 6 | static_cast<std::uint32_t>(kDigits.find(c));
    if ((bits += 6) >= 8) packed += static_cast<char>(held >> (bits -= 8));
  }
  std::string text(1 << 20, '\0');
  uLongf length = text.size();
  const int code = uncompress(reinterpret_cast<Bytef*>(text.data()), &length,
                              reinterpret_cast<const Bytef*>(packed.data()), packed.size());
  EXPECT_EQ(code, Z_OK);
  text.resize(length);
  return text;
}

// The text of an element of the page.
std::string element_text(const std::string& page, const std::string& id) {
  const std::size_t at = page.find(" id=\"paoding-" + id + "\">");
  if (at == page.npos) return "";
  const std::size_t begin = page.find('>', at) + 1;
  return page.substr(begin, page.find("</script>", begin) - begin);
}

std::size_t times_in(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++found;
  return found;
}

TEST(Page, HasTheReportsJsonAsItIs) {
  const Trace trace = training_trace(3);
  const Measures measures = measure(trace);
  Measures most = measures;
  most.per_thread.clear();
  EXPECT_EQ(element_text(page_text(trace, measures, {}), "report"), to_json(most));
  EXPECT_EQ(element_text(page_text(trace, measures, {}), "threads"), sections_json(measures.per_thread));
}

TEST(Page, IsTheSameForTheSameRecording) {
  EXPECT_EQ(page_of(training_trace(5)), page_of(training_trace(5)));
  EXPECT_NE(page_of(training_trace(5)), page_of(training_trace(6)));
}

TEST(Page, HasNamesThatCloseElementsAsTextOnly) {
  const std::string page = page_of(with_awkward_names());
  const std::string plain = page_of(Trace{});
  EXPECT_EQ(page.find("<script>hacked"), page.npos);
  EXPECT_EQ(page.find("<!-- \""), page.npos);
  // Names add no elements.
  EXPECT_EQ(times_in(page, "<script"), times_in(page, "</script>"));
  simdjson::dom::parser parser;
  const simdjson::padded_string report(element_text(page, "report"));
  simdjson::dom::element read;
  EXPECT_EQ(parser.parse(report).get(read), simdjson::SUCCESS);
  EXPECT_EQ(times_in(page, "<title>"), 1u);
}

TEST(Page, OfManyEventsTakesAtMostThreeMegabytesAMillion) {
  const Trace trace = training_trace(6000);
  ASSERT_GT(trace.size(), 400'000u);
  EXPECT_LT(page_of(trace).size(), 3.0 * static_cast<double>(trace.size()));
}

TEST(Page, CarriesItsScriptDeflatedWithoutComments) {
  const std::string page = page_of(Trace{}), packed = element_text(page, "script");
  EXPECT_LT(packed.size(), 40u * 1024);
  const std::string script = unpacked(packed);
  EXPECT_TRUE(script.starts_with("\"use strict\";\n"));
  for (const char* part : {"\nclass TraceData{", "\nbegin().catch(", "\nfunction findingsCard("}) {
    EXPECT_EQ(times_in(script, part), 1u) << part;
  }
  EXPECT_EQ(script.find("\n //"), script.npos);
  EXPECT_EQ(script.find("SPDX"), script.npos);
  EXPECT_EQ(page.find("unsafe-eval"), page.npos);
  EXPECT_EQ(times_in(page, "<script>"), 1u);  // the one that runs as it stands unpacks the other
}

TEST(Page, LeavesNamesOfHostsAndEnvironmentsOut) {
  Trace trace = training_trace(2);
  trace.add_anchor(0, "host.of.somebody", {});
  EXPECT_EQ(page_of(trace).find("host.of.somebody"), std::string::npos);
}

TEST(Page, IsWrittenWhereSomebodyNamesAFileOfThatEnding) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "run.html").string(), other = (folder.path() / "mine.html").string();
  start_profiler(State::cpu);
  { const ProfileRange range("mine"); }
  const std::string report = stop_profiler(SortBy::total, path, {.page = (folder.path() / "too.html").string()});
  std::ifstream file(path);
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  EXPECT_TRUE(begins_page(page));
  EXPECT_NE(page.find("\"name\":\"mine\""), page.npos) << element_text(page, "report");
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "too.html"));
  check_saveable(path);  // ours: it may be replaced
  std::ofstream(other) << "<!doctype html>\n<p>mine</p>";
  EXPECT_THROW(check_saveable(other), Error);
  start_profiler(State::cpu);
  EXPECT_THROW(stop_profiler(SortBy::total, "", {.page = "page.txt"}), Error);
  stop_profiler();
}

TEST(Profiler, ReturnsThePageThatItWouldWrite) {
  Profiler profiler(State::cpu);
  { const ProfileRange range("mine"); }
  const std::string page = profiler.html();
  EXPECT_TRUE(begins_page(page));
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "run.html").string();
  profiler.stop(SortBy::total, path);
  std::ifstream file(path);
  EXPECT_EQ(page, std::string((std::istreambuf_iterator<char>(file)), {}));
}

TEST(PagePacking, IsBase64AsEverybodyReadsIt) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foobar\xff\x00"), "Zm9vYmFy/w==");
}

TEST(PagePacking, IsWhatZlibReads) {
  for (const std::size_t size : {0, 1, 70'000, 3'000'000}) {
    std::string bytes(size, '\0');
    std::mt19937 random(1);
    for (char& byte : bytes) byte = static_cast<char>(random() % 17);
    const std::string packed = deflated(bytes);
    std::string read(size + 1, '\0');
    uLongf length = read.size();
    ASSERT_EQ(uncompress(reinterpret_cast<Bytef*>(read.data()), &length, reinterpret_cast<const Bytef*>(packed.data()),
                         packed.size()),
              Z_OK);
    EXPECT_EQ(read.substr(0, length), bytes);
  }
}

// tests/page/page_test.py opens their pages in a browser: it names a folder in PAODING_PAGE_RECORDINGS.
TEST(PageRecordings, AreWrittenForTheBrowser) {
  const TemporaryFolder mine;
  const char* asked = std::getenv("PAODING_PAGE_RECORDINGS");
  const std::filesystem::path folder = asked == nullptr ? mine.path() : std::filesystem::path(asked);
  const auto write = [&](const Trace& trace, const std::string& name) {
    const std::string path = (folder / (name + ".paoding")).string();
    write_recording(trace, path);
    EXPECT_GT(std::filesystem::file_size(path), 0u) << name;
    if (asked == nullptr) {
      EXPECT_EQ(read_recording(path).size(), trace.size()) << name;
    }
  };
  if (const char* spans = std::getenv("PAODING_PAGE_SPANS")) {  // a long one, to measure
    constexpr std::int64_t kSpansOfAStep = 70;
    return write(training_trace(std::atoll(spans) / kSpansOfAStep), "long");
  }
  write(training_trace(40), "training");
  write(training_trace(8, 2), "ranks");
  write(with_awkward_names(), "names");
  {
    Trace trace;
    trace.finish();
    write(trace, "empty");
  }
  {
    Trace trace;
    trace.add({.track = trace.add_track(TrackKind::thread, "thread0"),
               .site = trace.add_site({.name = "alone", .kind = SpanKind::op}),
               .start_ns = 5,
               .duration_ns = 0});
    trace.finish();
    write(trace, "one");
  }
  {
    Trace trace;
    const SiteId site = trace.add_site({.op = "mul", .kind = SpanKind::op});
    for (int t = 0; t < 10'000; ++t) {
      const TrackId track = trace.add_track(TrackKind::thread, "thread" + std::to_string(t));
      for (int i = 0; i < 3; ++i)
        trace.add({.track = track, .site = site, .start_ns = t * 100 + i * 1000, .duration_ns = 700});
    }
    trace.finish();
    write(trace, "threads");
  }
  {
    Trace trace;  // equal times, no time at all, kernels that overlap, and as deep as it goes
    const TrackId host = trace.add_track(TrackKind::thread, "thread0"),
                  deep = trace.add_track(TrackKind::thread, "deep");
    const TrackId gpu = trace.add_track(TrackKind::stream, "stream 7", 0);
    const SiteId site = trace.add_site({.name = "same", .kind = SpanKind::op}),
                 kernel = trace.add_site({.op = "k", .kind = SpanKind::kernel});
    for (int i = 0; i < 300; ++i)
      trace.add({.track = host, .site = site, .start_ns = -50, .duration_ns = i % 3 == 0 ? 0 : 40});
    for (int i = 0; i < 300; ++i) trace.add({.track = gpu, .site = kernel, .start_ns = i * 10, .duration_ns = 25});
    for (int i = 0; i < 3000; ++i)
      trace.add({.track = deep, .site = site, .start_ns = i, .duration_ns = 10'000 - 2 * i});
    trace.finish();
    write(trace, "times");
  }
}

}  // namespace
}  // namespace paoding::profile
