// SPDX-License-Identifier: Apache-2.0
#include "trace/ranks.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>

#include "paoding/error.h"
#include "profile/protobuf.h"
#include "profile/report.h"
#include "tests/support/temporary_folder.h"
#include "trace/sink.h"

namespace paoding::trace {
namespace {

using namespace profile;

// A rank whose clock shows so much less: kernels of its own, and collectives that it comes to late by `late` each but
// that all leave together.
Trace rank_trace(int rank, std::int64_t behind, const std::vector<std::string>& collectives, unsigned seed,
                 bool says_rank = true) {
  std::mt19937 random(seed);
  TraceSink sink(Source::pytorch);
  const ProcessId process = sink.process(100, says_rank ? rank : -1);
  const TrackId stream = sink.stream(process, 0, 7), thread = sink.thread(process, 1);
  std::int64_t at = 1'000'000;
  std::uint32_t number = 0;
  for (const std::string& name : collectives) {
    const auto late = static_cast<std::int64_t>(random() % 40'000), jitter = static_cast<std::int64_t>(random() % 200);
    ++number;
    sink.add({.track = thread,
              .site = sink.site({.kind = SpanKind::launch, .name = sink.text("cudaLaunchKernel")}),
              .start_ns = at - behind,
              .duration_ns = 10,
              .correlation = number});
    sink.add({.track = stream,
              .site = sink.site({.kind = SpanKind::kernel, .name = sink.text(name)}),
              .start_ns = at + late - behind,
              .duration_ns = 50'000 - late + jitter,
              .correlation = number});
    at += 100'000;
  }
  return sink.finish();
}

const std::vector<std::string> kThree = {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "gemm",
                                         "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
                                         "ncclDevKernel_AllGather_RING_LL(x)"};

TEST(Ranks, AreSetBesideEachOtherByTheEndsOfTheirCollectives) {
  std::vector<NamedTrace> traces;
  const std::vector<std::int64_t> behind = {0, 7'000'000, -123'456'789};
  for (int i = 0; i < 3; ++i)
    traces.push_back(
        {"rank", rank_trace(i, behind[static_cast<std::size_t>(i)], kThree, static_cast<unsigned>(i + 1))});
  const Alignment alignment = align(traces);
  EXPECT_EQ(alignment.by, Alignment::By::collectives);
  EXPECT_EQ(alignment.collectives, 3u);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(static_cast<double>(alignment.later_ns[i]), static_cast<double>(behind[i]), 200);
  EXPECT_LE(alignment.apart_ns, 400);
}

TEST(Ranks, AreNotGuessedToBeBesideEachOtherWhereCollectivesDiffer) {
  std::vector<NamedTrace> traces;
  traces.push_back({"a", rank_trace(0, 0, kThree, 1)});
  traces.push_back({"b", rank_trace(1, 5'000, {kThree[0], kThree[3], kThree[0]}, 2)});
  EXPECT_EQ(align(traces).by, Alignment::By::nothing);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(align(traces).later_ns[i], -traces[i].trace.window_start());
  // Times since 1970 are by one clock, as far as machines agree on it.
  std::vector<NamedTrace> by_wall;
  by_wall.push_back({"a", rank_trace(0, -1'700'000'000'000'000'000, {"gemm"}, 1)});
  by_wall.push_back({"b", rank_trace(1, -1'700'000'000'000'500'000, {"gemm"}, 2)});
  EXPECT_EQ(align(by_wall).by, Alignment::By::wall_clock);
  EXPECT_EQ(align(by_wall).later_ns, (std::vector<std::int64_t>{0, 0}));
}

TEST(Ranks, BecomeOneTraceThatLosesNoKernelAndJoinsEachWithItsOwnLaunch) {
  std::vector<NamedTrace> traces;
  std::int64_t kernel_ns = 0;
  for (int i = 0; i < 3; ++i) {
    traces.push_back({"rank", rank_trace(i, 1'000 * i, kThree, static_cast<unsigned>(i + 1))});
    kernel_ns += static_cast<std::int64_t>(measure(traces.back().trace).records.gpu_ns);
  }
  const Alignment alignment = align(traces);
  const Trace all = merge_ranks(std::move(traces), alignment.later_ns);
  ASSERT_EQ(all.processes().size(), 3u);
  EXPECT_EQ(measure(all).records.gpu_ns, static_cast<double>(kernel_ns));
  for (SpanId i = 0; i < all.size(); ++i) {
    if (!all.on_gpu(i)) continue;
    ASSERT_NE(all.cause(i), kNone);
    EXPECT_EQ(all.track(all.cause(i)).process, all.track(i).process);
  }
}

std::string xplane_of(std::int64_t ns) {
  ProtobufMessage event, line, name, entry, plane, space;
  event.number(1, 1);
  event.number(2, 1'000'000);
  event.number(3, static_cast<std::uint64_t>(ns) * 1'000);
  line.text(2, "Stream #7");
  line.message(4, event);
  name.number(1, 1);
  name.text(2, "gemm");
  entry.number(1, 1);
  entry.message(2, name);
  plane.text(2, "/device:GPU:0");
  plane.message(3, line);
  plane.message(4, entry);
  space.message(1, plane);
  return space.bytes();
}

TEST(Ranks, AreNamedByEachLossOfTheirs) {
  std::vector<NamedTrace> traces;
  for (int i = 0; i < 2; ++i) {
    traces.push_back({"rank", rank_trace(i, 0, kThree, 1)});
    traces.back().trace.add_note("events that are no JSON", 3);
  }
  const Trace all = merge_ranks(std::move(traces), {0, 0});
  std::vector<std::string> notes;
  for (const Note& note : all.notes()) {
    if (note.text.ends_with("no JSON")) notes.push_back(note.text);
  }
  EXPECT_EQ(notes, (std::vector<std::string>{"rank 0 events that are no JSON", "rank 1 events that are no JSON"}));
}

TEST(Ranks, InAFolderAreReadByTheirContentWithANoteOfWhatIsNoTrace) {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder.path() / name, std::ios::binary) << text;
  };
  write("b_rank1.bin", xplane_of(10));
  write("a_rank7", xplane_of(20));
  write("notes.txt", "nothing");
  write("b.trace.json", R"({"traceEvents":[{"ph":"X","name":"gemm","pid":1,"tid":1,"ts":1,"dur":5}]})");
  const Trace all = read_traces({folder.path().string()});
  ASSERT_EQ(all.processes().size(), 2u);
  EXPECT_EQ(all.processes()[0].rank, 1);
  EXPECT_EQ(all.processes()[1].rank, 7);
  EXPECT_EQ(measure(all).records.gpu_ns, 30);
  std::map<std::string, std::uint64_t> notes;
  for (const Note& note : all.notes()) notes[note.text] = note.count;
  EXPECT_EQ(notes["files of the folder that are no trace"], 1u);
  EXPECT_EQ(notes["JSON files that XLA made of a profile beside them, left out"], 1u);
  EXPECT_EQ(notes["ranks whose clocks nothing sets beside each other: each begins at its own first event"], 2u);
  // Two of one rank are refused, and a folder without a trace.
  write("c_rank7", xplane_of(20));
  EXPECT_THROW(read_traces({folder.path().string()}), Error);
  const TemporaryFolder empty;
  EXPECT_THROW(read_traces({empty.path().string()}), Error);
}

}  // namespace
}  // namespace paoding::trace
