// SPDX-License-Identifier: Apache-2.0
// Recordings that go to files while they are made: long ones, of programs that are killed, of forks.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "profile/recorder.h"
#include "profile/recording.h"
#include "tests/temporary_folder.h"

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
  for (SpanId i = 0; i < trace.size(); ++i) last = std::max(last, trace.duration(i));
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

TEST(Recorder, StartsAndStopsAThousandTimes) {
  const SiteId s = site("again");
  for (int i = 0; i < 1000; ++i) {
    Recorder::start({.state = State::cpu});
    { SpanScope span(s); }
    ASSERT_EQ(spans_of(Recorder::stop()), 1u) << i;
  }
}

}  // namespace
}  // namespace paoding::profile
