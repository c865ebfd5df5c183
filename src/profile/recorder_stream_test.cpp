// SPDX-License-Identifier: Apache-2.0
// Recordings that go to files while they are made: long ones, of programs that are killed, of forks.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "profile/recorder.h"
#include "profile/recording.h"
#include "tests/support/temporary_folder.h"

namespace paoding::profile {
namespace {

SiteId site(const char* op) { return Recorder::add_site({.op = op, .kind = SpanKind::op}); }

std::size_t spans_of(const Trace& trace) {
  std::size_t count = 0;
  for (SpanId i = 0; i < trace.size(); ++i) count += trace.kind(i) != SpanKind::recording ? 1 : 0;
  return count;
}

// Ten times what there is room for in memory, slowly enough for any disk.
TEST(RecorderStream, KeepsMoreThanThereIsRoomForInMemory) {
  constexpr std::size_t kChunkBytes = Recorder::kChunkRecords * sizeof(SpanRecord);
  constexpr int kRounds = 12, kSpans = 5 * static_cast<int>(Recorder::kChunkRecords);
  const SiteId s = site("long");
  Recorder::start({.state = State::cpu, .max_bytes = 8 * kChunkBytes});
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kSpans; ++i) SpanScope span(s);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  const Trace trace = Recorder::stop();
  std::uint64_t dropped = 0;
  for (const Note& note : trace.notes()) dropped += note.text.find("dropped") != std::string::npos ? note.count : 0;
  EXPECT_GE(spans_of(trace) + dropped, std::size_t{kRounds} * kSpans);
  EXPECT_GT(spans_of(trace), 2 * 8 * std::size_t{Recorder::kChunkRecords});  // else the disk took nothing
  for (SpanId i = 1; i < trace.size(); ++i) ASSERT_GE(trace.start(i), trace.start(i - 1));
}

TEST(RecorderStream, LeavesItsFileToAProcessThatIsKilled) {
  const TemporaryFolder folder;
  const std::string path = (folder / "killed.paoding").string();
  const pid_t child = fork();
  if (child == 0) {
    const SiteId s = site("step");
    Recorder::start({.state = State::cpu, .file = path});
    for (int i = 0; i < 3 * static_cast<int>(Recorder::kChunkRecords); ++i) SpanScope span(s);
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  const Trace trace = read_recording(path);
  EXPECT_GE(trace.size(), 2u * Recorder::kChunkRecords);
  ASSERT_EQ(trace.notes().size(), 1u);
  EXPECT_TRUE(trace.notes()[0].text.starts_with("the recording was never finished")) << trace.notes()[0].text;
  std::int64_t last = 0;
  std::size_t lost = 0;  // what the thread did behind its last whole chunk
  for (SpanId i = 0; i < trace.size(); ++i) {
    lost += trace.name(i) == "lost" ? 1 : 0;
    if (trace.name(i) != "lost") last = std::max(last, trace.duration(i));
  }
  EXPECT_EQ(lost, 1u);
  EXPECT_LT(last, 1'000'000'000);  // ticks became nanoseconds
}

TEST(RecorderStream, IsWhatStopGives) {
  const TemporaryFolder folder;
  const std::string path = (folder / "whole.paoding").string();
  const SiteId outer = site("outer"), inner = site("inner");
  Recorder::start({.state = State::cpu, .file = path});
  std::thread other([&] { SpanScope span(outer); });
  other.join();
  for (int i = 0; i < 3 * static_cast<int>(Recorder::kChunkRecords); ++i) {
    SpanScope a(outer);
    SpanScope b(inner);
  }
  const Trace stopped = Recorder::stop(), read = read_recording(path);
  ASSERT_EQ(read.size(), stopped.size());
  EXPECT_EQ(read.wall_ns(), stopped.wall_ns());
  EXPECT_GE(spans_of(read), 6u * Recorder::kChunkRecords + 1);
  for (SpanId i = 0; i < read.size(); ++i) {
    ASSERT_EQ(read.start(i), stopped.start(i));
    if (read.name(i) == "inner") {
      ASSERT_NE(read.parent(i), kNone);
      ASSERT_EQ(read.name(read.parent(i)), "outer");
    }
  }
}

TEST(RecorderStream, SaysWhereItCouldNotWrite) {
  Recorder::start({.state = State::cpu, .file = "/no/such/folder/x.paoding"});
  { SpanScope span(site("kept")); }
  const Trace trace = Recorder::stop();
  EXPECT_EQ(spans_of(trace), 1u);
  ASSERT_EQ(trace.notes().size(), 1u);
  EXPECT_NE(trace.notes()[0].text.find("/no/such/folder/x.paoding: cannot make the file"), std::string::npos);
}

TEST(RecorderStream, IsTheParentsAfterAFork) {
  const TemporaryFolder folder;
  const SiteId s = site("parent");
  Recorder::start({.state = State::cpu, .file = (folder / "fork.paoding").string()});
  { SpanScope span(s); }
  const pid_t child = fork();
  if (child == 0) {
    { SpanScope span(s); }
    _exit(Recorder::running() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  { SpanScope span(s); }
  EXPECT_EQ(spans_of(Recorder::stop()), 2u);
}

// GPU spans leave the memory too, and are all there in the end.
TEST(RecorderStream, KeepsMoreOfAGpuThanThereIsRoomForInMemory) {
  constexpr std::uint32_t kRounds = 6, kSpans = 3 * Recorder::kChunkRecords;
  const SiteId k = Recorder::add_site({.op = "kernel", .kind = SpanKind::kernel});
  Recorder::start({.max_bytes = std::size_t{1} << 20});
  const TrackId one = Recorder::gpu_track(TrackKind::stream, "stream 1", 0);
  const TrackId other = Recorder::gpu_track(TrackKind::stream, "stream 2", 0);
  const std::int64_t begin = std::chrono::steady_clock::now().time_since_epoch().count();
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    for (std::uint32_t i = 0; i < kSpans; ++i) {
      const std::uint32_t n = round * kSpans + i;
      Recorder::add_gpu(k, n + 1, begin + n, 1, i % 3 == 0 ? other : one, n + 1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
  }
  const Trace trace = Recorder::stop();
  std::uint64_t sum = 0, count = 0, of_other = 0;
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (!trace.on_gpu(i)) continue;
    ++count, sum += trace.run(i);
    of_other += trace.text(trace.track(i).name) == "stream 2" ? 1 : 0;
    ASSERT_EQ(trace.start(i) - begin + 1, trace.run(i));
  }
  constexpr std::uint64_t kAll = std::uint64_t{kRounds} * kSpans;
  EXPECT_EQ(count, kAll);
  EXPECT_EQ(sum, kAll * (kAll + 1) / 2);
  EXPECT_EQ(of_other, kAll / 3);
}

// It has ended, the thread that writes it goes on for a while, and so does the next recording.
TEST(RecorderStream, IsWholeHoweverLateItIsRead) {
  const SiteId s = site("late");
  constexpr int kSpans = 3 * Recorder::kChunkRecords + 7;
  const auto record = [&](int more) {
    Recorder::start({.state = State::cpu, .max_bytes = std::size_t{1} << 20});
    for (int i = 0; i < kSpans + more; ++i) SpanScope span(s);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    for (int i = 0; i < 5; ++i) SpanScope span(s);
    return Recorder::end();
  };
  Recorded first = record(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(1300));  // it writes the clocks once a second at least
  Recorded second = record(100);
  { const Recorded nobody_wants = record(200); }
  const Trace of_second = second.to_trace(), of_first = first.to_trace();
  EXPECT_EQ(spans_of(of_first), kSpans + 5u);
  EXPECT_EQ(spans_of(of_second), kSpans + 105u);
  for (const Trace* trace : {&of_first, &of_second}) {
    for (const Note& note : trace->notes()) EXPECT_EQ(note.kind, Note::Kind::span_cost) << note.text;
  }
}

std::int64_t resident_bytes() {
  std::int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)  // clang: of `make tsan`
constexpr bool kKeepsFreedMemory = true;
#else
constexpr bool kKeepsFreedMemory = false;
#endif

// A soak: PAODING_SOAK_KERNELS of runs of 265 ops, with two spans of the host each.
TEST(RecorderStream, TakesNoMoreMemoryHoweverMuchIsRecorded) {
  const char* const wanted = std::getenv("PAODING_SOAK_KERNELS");
  const std::int64_t kernels = wanted == nullptr ? 1'500'000 : std::atoll(wanted);
  constexpr std::int64_t kOps = 265, kRunNs = 700'000;
  std::vector<SiteId> ops;
  for (int i = 0; i < kOps; ++i) {
    ops.push_back(Recorder::add_site(
        {.op = "op" + std::to_string(i % 20), .instance = "op" + std::to_string(i), .kind = SpanKind::kernel}));
  }
  const SiteId run = Recorder::add_site({.name = "run", .kind = SpanKind::run});
  const SiteId launch = Recorder::add_site({.name = "graph launch", .kind = SpanKind::launch});
  const std::int64_t before = resident_bytes();
  std::int64_t most = 0;
  Recorder::start({});
  const TrackId stream = Recorder::gpu_track(TrackKind::stream, "stream 1", 0);
  std::int64_t added = 0, next = steady_ns();
  for (std::uint32_t number = 1; added < kernels; ++number) {
    const SpanScope around(run, number);
    { const SpanScope seen(launch, number); }
    for (const SiteId op : ops) Recorder::add_gpu(op, number, steady_ns(), 2, stream, number);
    added += kOps;
    if (number % 64 == 0) most = std::max(most, resident_bytes() - before);
    for (next += kRunNs / 4; steady_ns() < next;) {  // no faster than 1.5 M kernels a second
    }
  }
  Recorded recorded = Recorder::end();
  std::cout << added << " kernels recorded in " << static_cast<double>(most) / 1e6 << " MB\n";
  if (kKeepsFreedMemory) GTEST_SKIP() << "NOT CHECKED: a sanitizer keeps what was freed";
  EXPECT_LT(most, 64'000'000);
  const Trace trace = recorded.to_trace();
  std::int64_t on_gpu = 0;
  for (SpanId i = 0; i < trace.size(); ++i) on_gpu += trace.on_gpu(i) ? 1 : 0;
  std::uint64_t dropped = 0;
  for (const Note& note : trace.notes()) dropped += note.kind == Note::Kind::dropped ? note.count : 0;
  EXPECT_EQ(on_gpu, added);
  EXPECT_EQ(dropped, 0u);
}

TEST(Recorder, StartsAndStopsAThousandTimes) {
  const SiteId s = site("again");
  std::int64_t before = 0;
  for (int i = 0; i < 1000; ++i) {
    if (i == 100) before = resident_bytes();
    Recorder::start({.state = State::cpu});
    { SpanScope span(s); }
    ASSERT_EQ(spans_of(Recorder::stop()), 1u) << i;
  }
  if (kKeepsFreedMemory) return;
  EXPECT_LT(resident_bytes() - before, 4'000'000) << "900 recordings left something";
}

}  // namespace
}  // namespace paoding::profile
