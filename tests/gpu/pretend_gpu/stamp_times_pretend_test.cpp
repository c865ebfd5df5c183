// SPDX-License-Identifier: Apache-2.0
// Where spans of replays are put that left no stamps: whatever others took, they are in the recording.
#include "paoding/profile.h"
#include "profile/trace.h"
#include "runtime/gpu/stamp_times.h"
#include "tests/gpu/pretend_gpu/pretend_program.h"

namespace paoding::testing_program {
namespace {

// One that took ten seconds by its stamps, and three after it that are taken to be as long, in a recording of less.
TEST(StampTimes, PutReplaysWithoutStampsIntoTheRecording) {
  Graph graph;
  build_loop(graph);
  Program program(graph, on_gpu());
  program.run(feeds_of_loop(graph));
  program.wait();
  Profiler profiler;
  program.run();
  program.wait();
  const profile::SiteId site =
      profile::Recorder::add_site({.name = "taken to be long", .kind = profile::SpanKind::replay});
  StampTimes& times = StampTimes::get();
  std::int64_t last_ns = 0;
  for (int i = 0; i < 4; ++i) {
    StampedReplay replay{.launch = times.next_launch(7), .site = site, .is_plain = i > 0};
    last_ns = replay.launch.at_ns;
    replay.begin_ns = 1'000, replay.end_ns = 10'000'001'000;
    times.add(replay);
  }
  profiler.end();
  const profile::Trace& trace = profiler.trace();
  int found = 0;
  for (profile::SpanId i = 0; i < trace.size(); ++i) {
    if (trace.name(i) != "taken to be long") continue;
    ++found;
    EXPECT_LE(trace.start(i), trace.window_end());
  }
  EXPECT_EQ(found, 4);
  EXPECT_LT(last_ns, trace.window_end());
  for (const profile::Note& note : trace.notes()) EXPECT_NE(note.kind, profile::Note::Kind::outside) << note.text;
}

}  // namespace
}  // namespace paoding::testing_program
