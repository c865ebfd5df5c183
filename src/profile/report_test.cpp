// SPDX-License-Identifier: Apache-2.0
// Reports of traces made by hand, whose numbers can be worked out on paper.
#include "profile/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <sstream>

namespace paoding::profile {
namespace {

// Times in us, because the report's unit, ms, then shows them with three decimals.
class ReportScene {
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
  static std::int64_t ns(double us) { return std::llround(us * 1000); }
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

// A well-known report with two threads: thread1's rows with their CPU and GPU parts, one after the other.
void add_thread1(ReportScene& scene, TrackId thread1, TrackId gpu) {
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
  ReportScene scene;
  const TrackId thread0 = scene.thread("thread0"), thread1 = scene.thread("thread1"), gpu = scene.stream("stream 7");
  scene.add(thread0, named("prepare graph", SpanKind::host), 0, 6089.51);
  add_thread1(scene, thread1, gpu);
  const std::string text = report(scene.finish());

  const std::size_t second = text.rfind("Profiling Report");
  ASSERT_NE(text.find("Note! This Report merge all thread info into one."), std::string::npos) << text;
  EXPECT_EQ(text.substr(second).find("Overhead Summary"), std::string::npos);
  const auto merged = cells(text, "mul"), alone = cells(text, "thread1::mul");
  EXPECT_EQ(alone, (std::vector<std::string>{"1", "0.219497", "0.211977", "(0.965740)", "0.007520", "(0.034260)",
                                             "0.219497", "0.219497", "0.219497", "0.438084"}));
  EXPECT_NEAR(std::stod(alone.back()), 0.219 / 0.501, 0.001);
  EXPECT_NEAR(std::stod(merged.back()), 0.219497 / (6.08951 + 0.501039), 1e-6);
  const auto deletion = cells(text, "thread1::eager_deletion");
  EXPECT_EQ(deletion, (std::vector<std::string>{"2", "0.006166", "0.006166", "(1.000000)", "0.000000", "(0.000000)",
                                                "0.002291", "0.003875", "0.003083", "0.0123064"}));
}

// One run of two ops on one thread: slice copies synchronously before it computes on the GPU, mul only computes.
//   run 0..100: slice 10..50 { prepare 10..30 { copy 12..28, on the GPU 20..26 } compute 30..48 { launch 32..34 } }
//               mul 50..70 { compute 52..70 { launch } }, kernels: slice 40..60, mul 60..90
void add_two_ops(ReportScene& scene, TrackId host, TrackId gpu, double at = 0, std::uint32_t n = 0) {
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

void add_compile(ReportScene& scene, TrackId host) {
  scene.add(host, named("compile", SpanKind::compile), -1000, -500);
  scene.add(host, part("slice", SpanKind::infer_shape, "slice0"), -900, -896);
  scene.add(host, part("mul", SpanKind::infer_shape, "mul0"), -800, -798);
}

TEST(Report, CountsNothingTwice) {
  ReportScene scene;
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
  EXPECT_EQ(slice.total, 50e3);  // 10..60
  EXPECT_EQ(slice.gpu, 26e3);    // 20..26, 40..60
  EXPECT_EQ(slice.cpu, 24e3);
  EXPECT_EQ(slice.ratio, 0.5);
  const Row& copied = row(m.per_thread[0], "GpuMemcpySync:CPU->GPU", 1);
  EXPECT_EQ(copied.total, 16e3);
  EXPECT_EQ(copied.gpu, 6e3);
  const Row& between = row(m.per_thread[0], "(between events)");
  EXPECT_EQ(between.calls, 2u);  // 0..10, 90..100
  EXPECT_EQ(between.total, 20e3);
}

constexpr const char* kGoldenOp = R"(-------------------------> Profiling Report <-------------------------

Place: All
Time unit: ms
Sorted by total time in descending order in the same thread

------------------------- Overhead Summary -------------------------

Total time: 1.3
  Computation time    Total: 0.12  Ratio: 9.23077%
  Framework overhead  Total: 0.08  Ratio: 6.15385%
  Compiling           Total: 0.5   Ratio: 38.4615%
  Only your code      Total: 0.6   Ratio: 46.1538%
2 steps: p50 0.2, p99 0.2, worst 0.2 on the host, from one run to the next (step 1, counted from 1)
Not seen: host spans dropped (3)

------------------------- GpuMemCpy Summary -------------------------

GpuMemcpy        Calls: 2  Total: 0.032  Ratio: 2.46154%
  GpuMemcpySync  Calls: 2  Total: 0.032  Ratio: 2.46154%

------------------------- Wall Time Summary -------------------------

thread0  ops               Total: 0.114  Ratio: 8.76923%
         run, between ops  Total: 0.08   Ratio: 6.15385%
         launch            Total: 0.006  Ratio: 0.461538%
         compile           Total: 0.5    Ratio: 38.4615%
         your code         Total: 0.6    Ratio: 46.1538%
GPU 0    kernels           Total: 0.1    Ratio: 7.69231%
         exposed copies    Total: 0.012  Ratio: 0.923077%
         idle: launch      Total: 0.088  Ratio: 6.76923%
         idle: compile     Total: 0.5    Ratio: 38.4615%
         idle: your code   Total: 0.6    Ratio: 46.1538%

------------------------- Compile Summary -------------------------

the rest  Calls: 1  Total: 0.494  Ratio: 98.8%
slice     Calls: 1  Total: 0.004  Ratio: 0.8%
mul       Calls: 1  Total: 0.002  Ratio: 0.4%

------------------------- Event Summary -------------------------

Total: all calls, also those beside each other. Ratio.: of the time that was under way the part in which a call was. Idle time and your code are in no row: Wall Time Summary.

Event                      Calls  Total  CPU Time (Ratio)     GPU Time (Ratio)     Min.   Max.   Ave.   Ratio.
thread0::slice             2      0.1    0.048000 (0.480000)  0.052000 (0.520000)  0.05   0.05   0.05   0.5
  GpuMemcpySync:CPU->GPU   2      0.032  0.020000 (0.625000)  0.012000 (0.375000)  0.016  0.016  0.016  0.16
thread0::mul               2      0.08   0.020000 (0.250000)  0.060000 (0.750000)  0.04   0.04   0.04   0.4
thread0::(between events)  4      0.04   0.040000 (1.000000)  0.000000 (0.000000)  0.01   0.01   0.01   0.2

Records: 27 received, 0 dropped, 0 without a time, 0 outside of the window, 0 of no op; 100% of the GPU's time is some op's
)";

TEST(Report, LooksLikeThisByOp) {
  ReportScene scene;
  const TrackId host = scene.thread("thread0"), gpu = scene.stream("stream 7");
  add_compile(scene, host);
  add_two_ops(scene, host, gpu);
  add_two_ops(scene, host, gpu, 200, 1);
  scene.note("host spans dropped", 3);
  EXPECT_EQ(report(scene.finish()), kGoldenOp);
}

TEST(Report, SaysNothingOfAGpuThatWasNotSeen) {
  ReportScene scene;
  const TrackId host = scene.thread("thread0");
  scene.add(host, named("run", SpanKind::run), 0, 100, 0, 1);
  scene.add(host, op("mul", "mul0"), 10, 60);
  const std::string text = report(scene.finish());
  EXPECT_NE(text.find("thread0::mul"), text.npos) << text;
  EXPECT_EQ(text.find("Gpu"), text.npos) << text;
  EXPECT_EQ(text.find("GPU"), text.npos) << text;
}

std::string events(const std::string& text) {
  const std::size_t begin = text.find("Event  ");
  return text.substr(begin, text.find("\nRecords: ") - begin);
}

ReportScene two_runs() {
  ReportScene scene;
  const TrackId host = scene.thread("thread0"), gpu = scene.stream("stream 7");
  add_compile(scene, host);
  add_two_ops(scene, host, gpu);
  add_two_ops(scene, host, gpu, 200, 1);
  return scene;
}

// The numbers follow from the times at add_two_ops: slice's compute is 30..48 with its kernel 40..60, and so on.
constexpr const char* kGoldenPhases = R"(
Event                             Calls  Total  CPU Time (Ratio)     GPU Time (Ratio)     Min.   Max.   Ave.   Ratio.
slice                             2      0.1    0.048000 (0.480000)  0.052000 (0.520000)  0.05   0.05   0.05   0.5
  slice/compute                   2      0.06   0.020000 (0.333333)  0.040000 (0.666667)  0.03   0.03   0.03   0.3
  slice/prepare_data              2      0.04   0.028000 (0.700000)  0.012000 (0.300000)  0.02   0.02   0.02   0.2
    GpuMemcpySync:CPU->GPU        2      0.032  0.020000 (0.625000)  0.012000 (0.375000)  0.016  0.016  0.016  0.16
  slice/infer_shape (at compile)  1      0.004  0.004000 (1.000000)  0.000000 (0.000000)  0.004  0.004  0.004  0
mul                               2      0.08   0.020000 (0.250000)  0.060000 (0.750000)  0.04   0.04   0.04   0.4
  mul/compute                     2      0.076  0.016000 (0.210526)  0.060000 (0.789474)  0.038  0.038  0.038  0.38
  mul/infer_shape (at compile)    1      0.002  0.002000 (1.000000)  0.000000 (0.000000)  0.002  0.002  0.002  0
(between events)                  4      0.04   0.040000 (1.000000)  0.000000 (0.000000)  0.01   0.01   0.01   0.2
)";

TEST(Report, LooksLikeThisByPhase) {
  ReportScene scene = two_runs();
  const std::string text = report(scene.finish(), {.detail = Detail::phases, .threads = Threads::merged});
  EXPECT_EQ("\n" + events(text), kGoldenPhases);
}

constexpr const char* kGoldenInstances = R"(
Event                                Calls  Total  CPU Time (Ratio)     GPU Time (Ratio)     Min.   Max.   Ave.   Ratio.
slice                                2      0.1    0.048000 (0.480000)  0.052000 (0.520000)  0.05   0.05   0.05   0.5
  slice0                             2      0.1    0.048000 (0.480000)  0.052000 (0.520000)  0.05   0.05   0.05   0.5
    slice0/compute                   2      0.06   0.020000 (0.333333)  0.040000 (0.666667)  0.03   0.03   0.03   0.3
    slice0/prepare_data              2      0.04   0.028000 (0.700000)  0.012000 (0.300000)  0.02   0.02   0.02   0.2
      GpuMemcpySync:CPU->GPU         2      0.032  0.020000 (0.625000)  0.012000 (0.375000)  0.016  0.016  0.016  0.16
    slice0/infer_shape (at compile)  1      0.004  0.004000 (1.000000)  0.000000 (0.000000)  0.004  0.004  0.004  0
mul                                  2      0.08   0.020000 (0.250000)  0.060000 (0.750000)  0.04   0.04   0.04   0.4
  mul0                               2      0.08   0.020000 (0.250000)  0.060000 (0.750000)  0.04   0.04   0.04   0.4
    mul0/compute                     2      0.076  0.016000 (0.210526)  0.060000 (0.789474)  0.038  0.038  0.038  0.38
    mul0/infer_shape (at compile)    1      0.002  0.002000 (1.000000)  0.000000 (0.000000)  0.002  0.002  0.002  0
(between events)                     4      0.04   0.040000 (1.000000)  0.000000 (0.000000)  0.01   0.01   0.01   0.2
)";

TEST(Report, LooksLikeThisByInstance) {
  ReportScene scene = two_runs();
  const std::string text = report(scene.finish(), {.detail = Detail::instances, .threads = Threads::merged});
  EXPECT_EQ("\n" + events(text), kGoldenInstances);
}

TEST(Report, KeepsTheInstancesOfAnOpApart) {
  ReportScene scene;
  const TrackId host = scene.thread("thread0");
  scene.add(host, op("conv", "conv1"), 0, 10);
  scene.add(host, op("conv", "conv2"), 10, 40);
  scene.add(host, op("conv", "conv1"), 40, 60);
  const Measures m = measure(scene.finish(), {.detail = Detail::instances});
  const Section& section = m.per_thread.at(0);
  EXPECT_EQ(row(section, "conv").calls, 3u);
  EXPECT_EQ(row(section, "conv").total, 60e3);
  EXPECT_EQ(row(section, "conv1", 1).calls, 2u);
  EXPECT_EQ(row(section, "conv1", 1).total, 30e3);
  EXPECT_EQ(row(section, "conv1", 1).min, 10e3);
  EXPECT_EQ(row(section, "conv2", 1).total, 30e3);
  EXPECT_EQ(row(section, "conv2/compute", 2).total, 30e3);  // no phases were recorded: all of it
}

TEST(Report, SaysInWhatScopeAnInstanceStands) {
  ReportScene scene;
  const TrackId host = scene.thread("thread0");
  for (const char* name : {"up", "down"}) {
    SiteInfo product = op("matmul", name == std::string("up") ? "matmul1" : "matmul2");
    product.scope = std::string("block/") + name;
    scene.add(host, product, name == std::string("up") ? 0 : 10, name == std::string("up") ? 10 : 30);
  }
  const Measures m = measure(scene.finish(), {.detail = Detail::instances});
  EXPECT_EQ(row(m.per_thread.at(0), "matmul1 @block/up", 1).total, 10e3);
  EXPECT_EQ(row(m.per_thread.at(0), "matmul2 @block/down", 1).total, 20e3);
}

// The debug execution of a branch: an op that runs other ops, with a copy of its own.
TEST(Report, NestsOpsInTheOpThatRunsThem) {
  ReportScene scene;
  const TrackId host = scene.thread("thread0");
  scene.add(host, op("conditional_block"), 0, 100);
  scene.add(host, copy(Copy::device_to_host, true), 5, 15);
  scene.add(host, op("assign"), 20, 50);
  scene.add(host, copy(Copy::same_device, true), 30, 40);
  scene.add(host, op("fill_constant"), 60, 80);
  const Measures m = measure(scene.finish());
  const Section& section = m.per_thread.at(0);
  EXPECT_EQ(row(section, "conditional_block").total, 100e3);
  EXPECT_EQ(row(section, "GpuMemcpyAsync:GPU->CPU", 1).total, 10e3);
  EXPECT_EQ(row(section, "assign", 1).total, 30e3);
  EXPECT_EQ(row(section, "GpuMemcpyAsync(same_gpu):GPU->GPU", 2).total, 10e3);
  EXPECT_EQ(m.computation, 40e3);  // assign without its copy, and fill_constant; the block itself computes nothing
  EXPECT_EQ(m.async_copies.calls, 2u);
  EXPECT_EQ(m.async_copies.total, 20e3);
}

// A captured run: one launch, kernels that know their op, the call returns before they end.
TEST(Report, GivesKernelsOfACapturedRunToTheirOps) {
  ReportScene scene;
  const TrackId host = scene.thread("thread0"), gpu = scene.stream("stream 7");
  scene.add(host, named("run", SpanKind::run), 0, 20, 0, 9);
  scene.add(host, named("graph launch", SpanKind::launch), 5, 10);
  scene.add(gpu, part("matmul", SpanKind::kernel), 10, 40, 0, 9);
  scene.add(gpu, part("softmax", SpanKind::kernel), 40, 50, 0, 9);
  const Measures m = measure(scene.finish());
  ASSERT_EQ(m.per_thread.size(), 1u);  // the stream's work belongs to the thread that launched it
  EXPECT_EQ(m.total, 50e3);
  EXPECT_EQ(m.computation, 40e3);
  EXPECT_EQ(row(m.per_thread[0], "matmul").gpu, 30e3);
  EXPECT_EQ(row(m.per_thread[0], "matmul").cpu, 0);
  EXPECT_EQ(row(m.per_thread[0], "softmax").ratio, 0.2);
  EXPECT_EQ(row(m.per_thread[0], "graph launch").gpu, 0);
  EXPECT_EQ(row(m.per_thread[0], "(between events)").total, 5e3);
}

TEST(Report, UnitesWhatThreadsDoAtTheSameTime) {
  ReportScene scene;
  const TrackId a = scene.thread("thread0"), b = scene.thread("thread1");
  scene.add(a, op("mul"), 0, 60);
  scene.add(b, op("mul"), 40, 100);
  const Measures m = measure(scene.finish());
  EXPECT_EQ(m.total, 100e3);
  EXPECT_EQ(m.computation, 100e3);
  EXPECT_EQ(m.framework, 0);
  ASSERT_EQ(m.merged.size(), 1u);
  EXPECT_EQ(row(m.merged[0], "mul").total, 120e3);
  EXPECT_EQ(row(m.merged[0], "mul").ratio, 1.0);
  EXPECT_EQ(m.per_thread.at(1).thread, "thread1");
  EXPECT_EQ(m.per_thread.at(1).total, 60e3);
}

TEST(Report, ShowsOneSideOnly) {
  ReportScene scene = two_runs();
  const Trace& trace = scene.finish();
  const Measures cpu = measure(trace, {.state = State::cpu});
  EXPECT_EQ(row(cpu.per_thread.at(0), "slice").total, 80e3);
  EXPECT_EQ(cpu.total, 200e3);
  const Measures gpu = measure(trace, {.state = State::gpu});
  EXPECT_EQ(row(gpu.per_thread.at(0), "slice").total, 52e3);
  EXPECT_EQ(gpu.total, 112e3);  // per run 20..26 and 40..90
  EXPECT_EQ(gpu.computation, 100e3);
  EXPECT_EQ(gpu.copies.total, 12e3);
  const std::string text = report(trace, {.state = State::gpu});
  EXPECT_NE(text.find("Place: GPU\n"), std::string::npos);
  EXPECT_EQ(text.find("CPU Time"), std::string::npos);
}

TEST(Report, SortsByEachKey) {
  ReportScene scene;
  const TrackId host = scene.thread("thread0");
  scene.add(host, op("first"), 0, 5);  // calls 1, total 5, max 5, min 5, average 5
  for (int i = 0; i < 3; ++i) scene.add(host, op("often"), 10 + i, 11 + i);
  scene.add(host, op("long"), 20, 40);
  scene.add(host, op("long"), 40, 41);
  scene.add(host, op("even"), 50, 62);
  const Trace& trace = scene.finish();
  const auto order = [&](SortBy sort) {
    const Measures m = measure(trace, {.sort = sort});
    std::string names;
    for (const Row& r : m.per_thread.at(0).rows) names += r.name[0] == '(' ? "" : r.name.substr(0, 1);
    return names;
  };
  EXPECT_EQ(order(SortBy::none), "fole");
  EXPECT_EQ(order(SortBy::calls).substr(0, 2), "ol");
  EXPECT_EQ(order(SortBy::total), "lefo");
  EXPECT_EQ(order(SortBy::max), "lefo");
  EXPECT_EQ(order(SortBy::min).substr(0, 2), "ef");
  EXPECT_EQ(order(SortBy::average), "elfo");
}

TEST(Report, SharesAGroupOutByBytes) {
  ReportScene scene;
  const TrackId host = scene.thread("thread0");
  SiteInfo group = op("", "group0");
  group.members = {{"mul", 100}, {"sum", 200}, {"mul", 100}};
  scene.add(host, group, 0, 40);
  scene.add(host, op("mul"), 40, 50);
  const Trace& trace = scene.finish();
  const Measures whole = measure(trace);
  EXPECT_EQ(row(whole.per_thread.at(0), "group: mul*2+sum").total, 40e3);
  const Measures shared = measure(trace, {.share_groups = true});
  EXPECT_EQ(row(shared.per_thread.at(0), "mul").total, 30e3);
  EXPECT_EQ(row(shared.per_thread.at(0), "mul").calls, 2u);
  EXPECT_EQ(row(shared.per_thread.at(0), "mul").ratio, 0.6);
  EXPECT_EQ(row(shared.per_thread.at(0), "sum").total, 20e3);
  EXPECT_EQ(shared.total, whole.total);
  EXPECT_EQ(shared.computation, whole.computation);
}

TEST(Report, ShortensLongGroupsWithoutMergingThem) {
  ReportScene scene;
  const TrackId host = scene.thread("thread0");
  for (int g = 0; g < 2; ++g) {
    SiteInfo group = op("");
    for (int i = 0; i < 30; ++i) group.members.push_back({"operation" + std::to_string(i), 1});
    group.members.back().op = "last" + std::to_string(g);
    scene.add(host, group, 10 * g, 10 * g + 10);
  }
  const Measures m = measure(scene.finish());
  ASSERT_EQ(m.per_thread.at(0).rows.size(), 2u);
  const std::string name = m.per_thread[0].rows[0].name, other = m.per_thread[0].rows[1].name;
  EXPECT_LT(name.size(), 80u);
  EXPECT_TRUE(name.ends_with("+... (30 ops) #1")) << name;
  EXPECT_TRUE(other.ends_with("+... (30 ops) #2")) << other;
}

TEST(Report, CutsNamesToTheWidth) {
  ReportScene scene;
  scene.add(scene.thread("thread0"), op("a_rather_long_name"), 0, 1);
  EXPECT_NE(report(scene.finish(), {.width = 16}).find("\nthread0::a_ra...  1 "), std::string::npos);
}

// The same ops in another order are another kernel: both lists read mul*2+add.
TEST(Report, NumbersGroupsWhoseListsReadTheSame) {
  ReportScene scene;
  const TrackId host = scene.thread("thread0");
  SiteInfo first = op(""), second = op("");
  first.members = {{"mul", 1}, {"mul", 1}, {"add", 1}};
  second.members = {{"mul", 1}, {"add", 1}, {"mul", 1}};
  scene.add(host, first, 0, 10);
  scene.add(host, second, 10, 30);
  scene.add(host, first, 30, 40);
  const Measures m = measure(scene.finish(), {.sort = SortBy::none});
  EXPECT_EQ(row(m.per_thread.at(0), "group: mul*2+add #1").calls, 2u);
  EXPECT_EQ(row(m.per_thread.at(0), "group: mul*2+add #2").calls, 1u);
}

TEST(Report, HasNoColumnsOfAGpuThatWasNotSeen) {
  ReportScene scene;
  scene.add(scene.thread("thread0"), op("mul"), 0, 10);
  const std::string text = report(scene.finish(), {.state = State::all});
  EXPECT_EQ(text.find("GPU Time"), std::string::npos) << text;
  EXPECT_EQ(cells(text, "thread0::mul"), (std::vector<std::string>{"1", "0.01", "0.01", "0.01", "0.01", "1"}));
}

TEST(Report, OfNothingIsAReport) {
  Trace trace;
  trace.finish();
  const std::string text = report(trace);
  EXPECT_NE(text.find("Total time: 0\n"), std::string::npos);
  EXPECT_EQ(text.find("nan"), std::string::npos);
}

// A step of 10 us behind a reader of 90 us: most of the time is nobody's computation.
TEST(Report, ShowsThatAnInputBoundJobWaitsForItsInput) {
  ReportScene scene;
  const TrackId host = scene.thread("thread0");
  for (int step = 0; step < 10; ++step) {
    const double at = 100 * step;
    scene.add(host, named("read", SpanKind::range), at, at + 90);
    scene.add(host, named("run", SpanKind::run), at + 90, at + 100, 0, static_cast<std::uint32_t>(step + 1));
    scene.add(host, op("mul"), at + 90, at + 100);
  }
  const Measures m = measure(scene.finish());
  EXPECT_EQ(m.wall, 1000e3);
  EXPECT_EQ(m.computation, 100e3);
  EXPECT_EQ(m.yours, 900e3);
  EXPECT_EQ(row(m.per_thread.at(0), "read").total, 900e3);
  EXPECT_EQ(row(m.per_thread.at(0), "mul").total, 100e3);
}

// The thread that enters a parallel region has little of it and waits: its op's time is not all computation there.
TEST(Report, TellsWaitingForOtherThreadsFromComputing) {
  ReportScene scene;
  const TrackId host = scene.thread("thread0"), worker = scene.thread("thread1");
  scene.add(host, op("mul"), 0, 100);
  scene.add(host, named("other threads", SpanKind::wait), 20, 100);
  scene.add(worker, named("parallel region", SpanKind::work), 5, 60);
  const Measures m = measure(scene.finish());
  EXPECT_EQ(m.computation, 60e3);  // 0..20 here, 5..60 there; to 100 nobody has anything to do
  EXPECT_EQ(m.framework, 40e3);
  ASSERT_EQ(m.per_thread.size(), 1u);
  EXPECT_EQ(m.per_thread[0].rows.size(), 1u);
  const Measures apart = measure(scene.finish(), {.detail = Detail::phases});
  EXPECT_EQ(row(apart.per_thread.at(0), "mul/compute", 1).total, 20e3);
  EXPECT_EQ(row(apart.per_thread.at(0), "other threads", 1).total, 80e3);
}

// What must hold of any trace, tried on many: spans at random, also crossing ones, on threads and streams.
TEST(Report, IsSoundForAnyTrace) {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 300; ++round) {
    Trace trace;
    const TrackId tracks[] = {trace.add_track(TrackKind::thread, "thread0"),
                              trace.add_track(TrackKind::stream, "stream 7", 0),
                              trace.add_track(TrackKind::thread, "thread1")};
    for (int i = 0; i < 40; ++i) {
      const int track = below(3);
      SiteInfo site{.name = "n" + std::to_string(below(3)), .kind = static_cast<SpanKind>(below(kSpanKinds))};
      if (below(2) == 0) site.op = "op" + std::to_string(below(3));
      if (below(6) == 0) site.members = {{"op0", 3}, {"op9", 1}};
      site.copy = static_cast<Copy>(below(6));
      site.async = below(2) == 0;
      trace.add({.track = tracks[track],
                 .site = trace.add_site(site),
                 .start_ns = below(1000),
                 .duration_ns = below(300),
                 .run = static_cast<std::uint32_t>(below(4)),
                 .correlation = static_cast<std::uint32_t>(below(10))});
    }
    trace.finish();
    for (State state : {State::cpu, State::gpu, State::all}) {
      for (Detail detail : {Detail::op, Detail::phases, Detail::instances}) {
        for (bool share : {false, true}) {
          const Measures m = measure(trace, {.state = state, .detail = detail, .share_groups = share});
          ASSERT_GE(m.framework, 0);
          ASSERT_EQ(m.computation + m.recording + m.framework, m.total);
          ASSERT_GE(m.recording, 0);
          ASSERT_EQ(m.total + m.compile + m.unseen + m.yours, m.wall);
          ASSERT_GE(m.yours, 0);
          ASSERT_LE(m.copies.total, m.total);
          ASSERT_LE(m.copies.total, m.async_copies.total + m.sync_copies.total);
          std::vector<Section> sections = m.per_thread;
          sections.insert(sections.end(), m.merged.begin(), m.merged.end());
          for (const Section& section : sections) {
            double ratios = 0;
            std::vector<double> outer;
            for (const Row& r : section.rows) {
              ASSERT_GE(r.ratio, 0);
              ASSERT_LE(r.ratio, 1);
              ASSERT_NEAR(r.cpu + r.gpu, r.total, 1e-6);
              ASSERT_LE(r.min, r.max);
              if (r.depth == 0) ratios += r.ratio;
              outer.resize(static_cast<std::size_t>(r.depth));
              if (!r.at_compile && r.depth > 0 && !share) {
                ASSERT_LE(r.ratio, outer.back() + 1e-9) << r.name;
              }
              outer.push_back(r.ratio);
            }
            if (section.total > 0 && !share) {
              ASSERT_GE(ratios, 1 - 1e-9) << "part of the wall in no row";
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace paoding::profile
