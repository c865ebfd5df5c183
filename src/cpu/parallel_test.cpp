// SPDX-License-Identifier: Apache-2.0
#include "cpu/parallel.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include "profile/recorder.h"

namespace paoding {
namespace {

using Calls = std::array<std::atomic<int>, 8>;

TEST(Parallel, CallsEveryThreadOnce) {
  for (const int threads : {1, 2, 8}) {
    Calls calls{};
    parallel(
        threads, [](int thread, void* state) { ++(*static_cast<Calls*>(state))[thread]; }, &calls);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(calls[i], i < threads) << "call " << i << " of " << threads;
  }
}

TEST(Parallel, StillMakesEveryCallInsideAnotherRegion) {
  Calls calls{};
  parallel(
      2,
      [](int, void* state) {
        parallel(
            4, [](int thread, void* inner) { ++(*static_cast<Calls*>(inner))[thread]; }, state);
      },
      &calls);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(calls[i], 2);
}

TEST(Parallel, SharesOutEveryUnitOnce) {
  for (const int threads : {1, 3, 8}) {
    for (const std::int64_t count : {0, 2, 8, 13}) {
      std::array<std::atomic<int>, 16> units{};
      Calls calls{};
      share_out(threads, count, [&](std::int64_t begin, std::int64_t end, int thread) {
        ++calls[static_cast<std::size_t>(thread)];
        for (std::int64_t i = begin; i < end; ++i) ++units[static_cast<std::size_t>(i)];
      });
      for (int i = 0; i < 16; ++i) EXPECT_EQ(units[i], i < count) << "unit " << i << " of " << count;
      for (int i = 0; i < 8; ++i) EXPECT_EQ(calls[i], i < threads) << "call " << i << " of " << threads;
    }
  }
}

TEST(Parallel, RethrowsAnExceptionOfACallAfterTheRegion) {
  for (const int threads : {1, 2, 8}) {
    std::string message;
    try {
      share_out(threads, 100, [&](std::int64_t begin, std::int64_t end, int) {
        if (begin <= 60 && 60 < end) throw std::runtime_error("unit 60");
      });
    } catch (const std::runtime_error& error) {
      message = error.what();
    }
    EXPECT_EQ(message, "unit 60") << threads;
  }
  // Where all of them throw, one of these is thrown; the next region is whole again.
  EXPECT_THROW(parallel(
                   8, [](int thread, void*) { throw thread; }, nullptr),
               int);
  Calls calls{};
  parallel(
      8, [](int thread, void* state) { ++(*static_cast<Calls*>(state))[thread]; }, &calls);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(calls[i], 1);
}

TEST(Parallel, OffersAtLeastOneThread) { EXPECT_GE(max_threads(), 1); }

TEST(Parallel, ShowsARecordingWhoWaitedForWhom) {
  if (max_threads() < 2) GTEST_SKIP() << "NOT CHECKED: needs two threads";
  using namespace profile;
  start_threads();
  const SiteId region = Recorder::add_site({.op = "region", .kind = SpanKind::op});
  for (int busy : {0, 1}) {  // the thread that has all the work
    Recorder::start({.state = State::cpu});
    {
      const SpanScope op(region);
      parallel(
          2,
          [](int thread, void* state) {
            if (thread == *static_cast<int*>(state)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
          },
          &busy);
    }
    const Trace trace = Recorder::stop();
    constexpr std::int64_t kMost = 5'000'000, kSlack = 100'000;
    std::int64_t start = 0;
    int seen = 0;
    for (SpanId i = 0; i < trace.size(); ++i) {
      if (trace.kind(i) == SpanKind::op) start = trace.start(i);
      if (trace.kind(i) == SpanKind::wait && busy == 0) {
        EXPECT_GT(trace.start(i) - start, kMost - kSlack);
      } else if (busy == 1 && (trace.kind(i) == SpanKind::wait || trace.kind(i) == SpanKind::work)) {
        EXPECT_GT(trace.end(i) - start, kMost - kSlack);
        ++seen;
      }
    }
    EXPECT_NE(start, 0);
    EXPECT_GE(seen, busy) << "nobody is shown to wait";
  }
}

}  // namespace
}  // namespace paoding
