// SPDX-License-Identifier: Apache-2.0
// Rules about kernels where these ran on the CPU: spans of the thread that steps, on recordings made by hand.
#include <gtest/gtest.h>

#include <set>

#include "tests/support/expected_gain.h"
#include "tests/support/own_runs.h"

namespace paoding::findings {
namespace {

using namespace profile;

constexpr std::int64_t kElementsOfCpu = 16'777'216;

// 134 MB at 20 bytes a ns, as fast as the memory of this CPU is, or so much slower.
OwnStep scale_of_cpu(double times = 1) {
  return {own_site("mul", "f32[16777216], f32[] -> f32[16777216]", static_cast<double>(kElementsOfCpu), Unit::f32,
                   8 * kElementsOfCpu + 4),
          6'710.9 * times};
}

// 2.1 GFLOP at 100 GFLOP/s, or so much slower.
OwnStep product_of_cpu(double times = 1, std::int64_t n = 1024) {
  const double flops = 2.0 * 1024 * 1024 * static_cast<double>(n);
  const std::string columns = std::to_string(n);
  return {own_site("matmul", "f32[1024,1024], f32[1024," + columns + "] -> f32[1024," + columns + "]", flops, Unit::f32,
                   8 * 1024 * n + 4 * 1024 * 1024),
          flops / 100e3 * times};
}

TEST(KernelsOfACpu, InAChainSaveTheBytesThatDoNotMove) {
  // Two of three reads and of three writes are for nothing: 268 MB at 20 bytes a ns. A longest one stays.
  expect_gain(own_runs_on_cpu({product_of_cpu(), scale_of_cpu(), scale_of_cpu(), scale_of_cpu()}),
              Kind::pointwise_chain, {13'421.8, 13'421.8}, "fuse_groups");
  // Arithmetic stays as it is: of kernels that take three times as long the same bytes are saved.
  OwnStep slow = scale_of_cpu(3);
  slow.site.op = slow.site.name = "tanh";
  expect_gain(own_runs_on_cpu({scale_of_cpu(), product_of_cpu(), slow, slow, slow}), Kind::pointwise_chain,
              {13'421.8, 13'421.8});
}

TEST(KernelsOfACpu, FarFromTheBandwidthAreThoseThatDoNotCompute) {
  OwnStep turned = {
      own_site("copy_transposed", "f32[4096,4096]{0,1} -> f32[4096,4096]", 0, Unit::none, 8 * kElementsOfCpu), 40'000};
  // At the rate of the fastest kernel 6,711 us, at 0.3 of it 22,370.
  expect_gain(own_runs_on_cpu({scale_of_cpu(), product_of_cpu(), turned}), Kind::far_from_bandwidth, {17'630, 33'289});
  OwnStep tanh = scale_of_cpu(6);
  tanh.site.op = tanh.site.name = "tanh";
  expect_nothing(own_runs_on_cpu({scale_of_cpu(), product_of_cpu(), tanh}), Kind::far_from_bandwidth);
}

// No rate of the CPU is known but by its kernels: small ones do not show that of its memory.
TEST(KernelsOfACpu, SayNothingOfAMemoryThatNoneOfThemShows) {
  OwnStep small = {own_site("slice", "f32[64,64]{0,1} -> f32[64,64]", 0, Unit::none, 32'768), 100};
  EXPECT_NE(why_silent(own_runs_on_cpu({small, product_of_cpu()}), Kind::far_from_bandwidth).find("large enough"),
            std::string::npos);
}

// A kernel beside other work of the cores is slow now and then: the median of its calls counts.
TEST(KernelsOfACpu, AreNotBlamedForTheWorkOfOthers) {
  OwnStep turned = {
      own_site("copy_transposed", "f32[4096,4096]{0,1} -> f32[4096,4096]", 0, Unit::none, 8 * kElementsOfCpu), 7'000};
  Trace trace = own_runs_on_cpu({scale_of_cpu(), turned}, 9);
  const SiteId site = trace.site_id(static_cast<SpanId>(trace.size()) - 1);
  ASSERT_EQ(trace.sites()[site].kind, SpanKind::op);
  const std::int64_t begin = trace.last_ns() + 1'000, ns = 70'000'000;
  for (const SiteId of : {trace.site_id(0), site}) {
    trace.add({.track = trace.track_id(0), .site = of, .start_ns = begin, .duration_ns = ns, .run = 99});
  }
  trace.finish();
  expect_nothing(trace, Kind::far_from_bandwidth);
}

TEST(KernelsOfACpu, HaveNoFindingsThatAreAboutAGpu) {
  const Trace trace = own_runs_on_cpu({product_of_cpu(), scale_of_cpu()});
  const Findings all = find(trace);
  EXPECT_EQ(all.abstained, "");
  EXPECT_TRUE(all.found.empty());
  std::set<Kind> silent;
  for (const Silence& one : all.silent) {
    if (one.why == "kernels ran on the CPU") silent.insert(one.kind);
  }
  for (const Kind kind : {Kind::pageable_copies, Kind::small_grid, Kind::exact_f32_product, Kind::odd_dimensions,
                          Kind::late_launches, Kind::exposed_copies, Kind::sync_in_step}) {
    EXPECT_TRUE(silent.contains(kind)) << to_string(kind);
  }
}

// Runs of 3 ms or so long, and behind nine of the ten a wait for a batch until 5 ms are over, which the loop or another
// thread reads for so long.
Trace runs_that_wait(double read_us, bool is_read_beside, double run_us = 3'000) {
  Trace trace;
  const ProcessId process = trace.add_process(1, -1, "made");
  const TrackId loop = trace.add_track(TrackKind::thread, "thread0", -1, process),
                reader = trace.add_track(TrackKind::thread, "thread1", -1, process);
  const SiteId wait = trace.add_site({.name = "wait for a batch", .kind = SpanKind::range}),
               read = trace.add_site({.name = "read a batch", .kind = SpanKind::range}),
               run = trace.add_site({.name = "run", .kind = SpanKind::run});
  for (int k = 0; k < 10; ++k) {
    const std::int64_t at = 5'000'000 * k;
    const auto number = static_cast<std::uint32_t>(k + 1);
    trace.add({.track = loop, .site = run, .start_ns = at, .duration_ns = ns_of(run_us), .run = number});
    trace.add({.track = loop, .site = wait, .start_ns = at + ns_of(run_us), .duration_ns = 5'000'000 - ns_of(run_us)});
    const TrackId by = is_read_beside ? reader : loop;
    trace.add({.track = by, .site = read, .start_ns = at + 5'000'000 - ns_of(read_us), .duration_ns = ns_of(read_us)});
  }
  trace.finish();
  return trace;
}

TEST(LateData, OfAReaderOnTheLoopsThreadIsReadBesideTheStep) {
  expect_gain(runs_that_wait(2'000, false), Kind::late_data, {1'800, 1'800}, "thread of its own");
  EXPECT_EQ(find(runs_that_wait(2'000, false)).found.front().verify, "reader-ahead");
}

// Beside a short step it would save little of its time: it has to be faster, which no switch makes it.
TEST(LateData, OfAReaderThatTakesLongerThanTheRestIsItsOwnTime) {
  expect_gain(runs_that_wait(4'000, false, 1'000), Kind::late_data, {900, 3'600}, "faster");
  EXPECT_EQ(find(runs_that_wait(4'000, false, 1'000)).found.front().verify, "");
}

// A reader that is ahead already and does not keep up has to be faster; one that is idle is not to blame for a wait.
TEST(LateData, OfAReaderThatIsAheadIsItsOwnTime) {
  expect_gain(runs_that_wait(1'500, true), Kind::late_data, {0, 1'350}, "faster");
  EXPECT_EQ(find(runs_that_wait(1'500, true)).found.front().verify, "");
  expect_nothing(runs_that_wait(20, true), Kind::late_data);
}

}  // namespace
}  // namespace paoding::findings
