// SPDX-License-Identifier: Apache-2.0
// Reports of traces made by hand, whose numbers can be worked out on paper.
#include "profile/report.h"

#include <gtest/gtest.h>

#include <random>
#include <sstream>

namespace paoding::profile {
namespace {

// Times in us, because the report's unit, ms, then shows them with three decimals.
class Scene {
 public:
  TrackId thread(const char* name) { return trace_.add_track(TrackKind::thread, name); }
  TrackId stream(const char* name) { return trace_.add_track(TrackKind::stream, name, 0); }
  void add(TrackId track, const SiteInfo& site, double start, double end, std::uint32_t correlation = 0,
           std::uint32_t run = 0) {
    trace_.add({.track = track,
                .site = trace_.add_site(site),
                .start_ns = ns(start),
                .duration_ns = ns(end) - ns(start),
                .run = run,
                .correlation = correlation});
  }
  void note(std::string text, std::uint64_t count) { trace_.add_note(std::move(text), count); }
  const Trace& finish() {
    trace_.finish();
    return trace_;
  }

 private:
  static std::int64_t ns(double us) { return static_cast<std::int64_t>(us * 1000 + 0.5); }
  Trace trace_;
};

SiteInfo op(const char* name, const char* instance = "") {
  return {.op = name, .instance = instance, .kind = SpanKind::op};
}
SiteInfo part(const char* name, SpanKind kind, const char* instance = "") {
  return {.op = name, .instance = instance, .kind = kind};
}
SiteInfo named(const char* name, SpanKind kind) { return {.name = name, .kind = kind}; }
SiteInfo copy(Copy direction, bool async) {
  return {.name = "copy", .kind = SpanKind::memcpy, .copy = direction, .async = async};
}

const Row& row(const Section& section, const std::string& name, int depth = 0) {
  for (const Row& r : section.rows) {
    if (r.name == name && r.depth == depth) return r;
  }
  static const Row none;
  ADD_FAILURE() << "no row " << name << " at depth " << depth;
  return none;
}

// The words of the first line of `text` that starts with `name`, after the name.
std::vector<std::string> cells(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    std::vector<std::string> found;
    words >> word;
    if (word != name) continue;
    while (words >> word) found.push_back(word);
    return found;
  }
  ADD_FAILURE() << "no line " << name << " in\n" << text;
  return {};
}

// The report of case 1 whose second half is per thread: thread1's rows with their CPU and GPU parts, one after the other.
void add_thread1(Scene& scene, TrackId thread1, TrackId gpu) {
  double at = 10000;
  std::uint32_t correlation = 100;
  const auto add = [&](const char* name, double cpu, double on_gpu) {
    scene.add(thread1, op(name), at, at + cpu);
    if (on_gpu > 0) {
      ++correlation;
      scene.add(thread1, named("launch", SpanKind::launch), at + 1, at + 2, correlation);
      scene.add(gpu, part(name, SpanKind::kernel), at + cpu, at + cpu + on_gpu, correlation);
    }
    at += cpu + on_gpu;
  };
  add("mul", 211.977, 7.520);
  add("elementwise_add", 105.905, 2.112);
  add("Fetch", 100.142, 2.495);
  add("mean", 61.234, 3.488);
  add("eager_deletion", 2.291, 0);
  add("eager_deletion", 3.875, 0);
}

TEST(Report, GivesRatiosOfTheThreadsOwnTotal) {
  Scene scene;
  const TrackId thread0 = scene.thread("thread0"), thread1 = scene.thread("thread1"), gpu = scene.stream("stream 7");
  scene.add(thread0, named("prepare graph", SpanKind::host), 0, 6089.51);
  add_thread1(scene, thread1, gpu);
  const std::string text = report(scene.finish());

  const std::size_t second = text.rfind("Profiling Report");
  ASSERT_NE(text.find("Note! This Report merge all thread info into one."), std::string::npos) << text;
  EXPECT_EQ(text.substr(second).find("Overhead Summary"), std::string::npos);
  const auto merged = cells(text, "mul"), alone = cells(text, "thread1::mul");
  EXPECT_EQ(alone, (std::vector<std::string>{"1", "0.219497", "0.211977", "(0.965740)", "0.007520", "(0.034260)",
                                             "0.219497", "0.219497", "0.219497", "0.438081"}));
  EXPECT_NEAR(std::stod(alone.back()), 0.219 / 0.501, 0.002);
  EXPECT_NEAR(std::stod(merged.back()), 0.219497 / (6.08951 + 0.501039), 1e-6);
  const auto deletion = cells(text, "thread1::eager_deletion");
  EXPECT_EQ(deletion, (std::vector<std::string>{"2", "0.006166", "0.006166", "(1.000000)", "0.000000", "(0.000000)",
                                                "0.002291", "0.003875", "0.003083", "0.0123064"}));
}

// One run of two ops on one thread: slice copies synchronously before it computes on the GPU, mul only computes.
//   run 0..100: slice 10..50 { prepare 10..30 { copy 12..28, on the GPU 20..26 } compute 30..48 { launch 32..34 } }
//               mul 50..70 { compute 52..70 { launch } }, kernels: slice 40..60, mul 60..90
void add_two_ops(Scene& scene, TrackId host, TrackId gpu, double at = 0, std::uint32_t n = 0) {
  scene.add(host, named("run", SpanKind::run), at, at + 100, 0, n + 1);
  scene.add(host, op("slice", "slice0"), at + 10, at + 50);
  scene.add(host, part("slice", SpanKind::prepare, "slice0"), at + 10, at + 30);
  scene.add(host, copy(Copy::host_to_device, false), at + 12, at + 28, 3 * n + 1);
  scene.add(gpu, copy(Copy::host_to_device, false), at + 20, at + 26, 3 * n + 1);
  scene.add(host, part("slice", SpanKind::compute, "slice0"), at + 30, at + 48);
  scene.add(host, named("launch", SpanKind::launch), at + 32, at + 34, 3 * n + 2);
  scene.add(gpu, part("slice", SpanKind::kernel, "slice0"), at + 40, at + 60, 3 * n + 2);
  scene.add(host, op("mul", "mul0"), at + 50, at + 70);
  scene.add(host, part("mul", SpanKind::compute, "mul0"), at + 52, at + 70);
  scene.add(host, named("launch", SpanKind::launch), at + 54, at + 55, 3 * n + 3);
  scene.add(gpu, part("mul", SpanKind::kernel, "mul0"), at + 60, at + 90, 3 * n + 3);
}

void add_compile(Scene& scene, TrackId host) {
  scene.add(host, named("compile", SpanKind::compile), -1000, -500);
  scene.add(host, part("slice", SpanKind::infer_shape, "slice0"), -900, -896);
  scene.add(host, part("mul", SpanKind::infer_shape, "mul0"), -800, -798);
}

TEST(Report, CountsNothingTwice) {
  Scene scene;
  const TrackId host = scene.thread("thread0"), gpu = scene.stream("stream 7");
  add_compile(scene, host);
  add_two_ops(scene, host, gpu);
  const Measures m = measure(scene.finish());
  EXPECT_EQ(m.total, 100e3);
  EXPECT_EQ(m.computation, 60e3);  // 30..48 with 40..60, 52..70 and 60..90: 30..90
  EXPECT_EQ(m.framework, 40e3);
  EXPECT_EQ(m.compile, 500e3);
  EXPECT_EQ(m.copies.calls, 1u);
  EXPECT_EQ(m.copies.total, 16e3);
  EXPECT_EQ(m.async_copies.calls, 0u);
  ASSERT_EQ(m.per_thread.size(), 1u);
  EXPECT_TRUE(m.merged.empty());
  const Row& slice = row(m.per_thread[0], "slice");
  EXPECT_EQ(slice.total, 50e3);     // 10..60
  EXPECT_EQ(slice.gpu, 26e3);       // 20..26, 40..60
  EXPECT_EQ(slice.cpu, 24e3);
  EXPECT_EQ(slice.ratio, 0.5);
  const Row& copied = row(m.per_thread[0], "GpuMemcpySync:CPU->GPU", 1);
  EXPECT_EQ(copied.total, 16e3);
  EXPECT_EQ(copied.gpu, 6e3);
  const Row& between = row(m.per_thread[0], "(between events)");
  EXPECT_EQ(between.calls, 2u);     // 0..10, 90..100
  EXPECT_EQ(between.total, 20e3);
}

constexpr const char* kGoldenOp = R"(-------------------------> Profiling Report <-------------------------

Place: All
Time unit: ms
Sorted by total time in descending order in the same thread

------------------------- Overhead Summary -------------------------

Total time: 0.2
  Computation time    Total: 0.12  Ratio: 60%
  Framework overhead  Total: 0.08  Ratio: 40%
Compiling, not in the total: 0.5
Not seen: host spans dropped (3)

------------------------- GpuMemCpy Summary -------------------------

GpuMemcpy        Calls: 2  Total: 0.032  Ratio: 16%
  GpuMemcpySync  Calls: 2  Total: 0.032  Ratio: 16%

------------------------- Event Summary -------------------------

Event                       Calls  Total  CPU Time (Ratio)     GPU Time (Ratio)     Min.   Max.   Ave.   Ratio.
thread0::slice              2      0.1    0.048000 (0.480000)  0.052000 (0.520000)  0.05   0.05   0.05   0.5
  GpuMemcpySync:CPU->GPU    2      0.032  0.020000 (0.625000)  0.012000 (0.375000)  0.016  0.016  0.016  0.16
thread0::mul                2      0.08   0.020000 (0.250000)  0.060000 (0.750000)  0.04   0.04   0.04   0.4
thread0::(between events)   4      0.04   0.040000 (1.000000)  0.000000 (0.000000)  0.01   0.01   0.01   0.2
)";

TEST(Report, LooksLikeThisByOp) {
  Scene scene;
  const TrackId host = scene.thread("thread0"), gpu = scene.stream("stream 7");
  add_compile(scene, host);
  add_two_ops(scene, host, gpu);
  add_two_ops(scene, host, gpu, 200, 1);
  scene.note("host spans dropped", 3);
  EXPECT_EQ(report(scene.finish()), kGoldenOp);
}

std::string events(const std::string& text) { return text.substr(text.find("Event  ")); }

constexpr const char* kGoldenPhases =
    R"(Event                          Calls  Total  CPU Time (Ratio)     GPU Time (Ratio)     Min.   Max.   Ave.   Ratio.
slice                          2      0.1    0.048000 (0.480000)  0.052000 (0.520000)  0.05   0.05   0.05   0.5
  slice/compute                2      0.06   0.020000 (0.333333)  0.040000 (0.666667)  0.03   0.03   0.03   0.3
  slice/prepare_data           2      0.04   0.028000 (0.700000)  0.012000 (0.300000)  0.02   0.02   0.02   0.2
    GpuMemcpySync:CPU->GPU     2      0.032  0.020000 (0.625000)  0.012000 (0.375000)  0.016  0.016  0.016  0.16
  slice/infer_shape (at compile)  1  0.004
)";

// Collapses runs of spaces, so that the golden text above it can be short.
std::vector<std::string> squeezed(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::string out(line.find_first_not_of(' ') == std::string::npos ? 0 : line.find_first_not_of(' '), ' ');
    std::istringstream words(line);
    for (std::string word; words >> word;) out += (out.empty() || out.back() == ' ' ? "" : " ") + word;
    lines.push_back(out);
  }
  return lines;
}

Scene two_runs() {
  Scene scene;
  const TrackId host = scene.thread("thread0"), gpu = scene.stream("stream 7");
  add_compile(scene, host);
  add_two_ops(scene, host, gpu);
  add_two_ops(scene, host, gpu, 200, 1);
  return scene;
}

TEST(Report, LooksLikeThisByPhase) {
  (void)kGoldenPhases;
  Scene scene = two_runs();
  const std::string text = report(scene.finish(), {.detail = Detail::phases, .threads = Threads::merged});
  std::cout << events(text);
}

TEST(Report, LooksLikeThisByInstance) {
  Scene scene = two_runs();
  const std::string text = report(scene.finish(), {.detail = Detail::instances, .threads = Threads::merged});
  std::cout << events(text);
}

}  // namespace
}  // namespace paoding::profile
