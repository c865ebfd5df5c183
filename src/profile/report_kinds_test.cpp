// SPDX-License-Identifier: Apache-2.0
// The kind of a span tells its use, whatever its name has in it.
#include <gtest/gtest.h>

#include "profile/report.h"

namespace paoding::profile {
namespace {

// Ops of 8 ns in a run of 100.
Measures measured(const std::vector<std::string>& ops) {
  Trace trace;
  const TrackId host = trace.add_track(TrackKind::thread, "thread0");
  trace.add({.track = host,
             .site = trace.add_site({.name = "run", .kind = SpanKind::run}),
             .start_ns = 0,
             .duration_ns = 100,
             .run = 1});
  for (std::size_t i = 0; i < ops.size(); ++i) {
    trace.add({.track = host,
               .site = trace.add_site({.op = ops[i], .kind = SpanKind::op}),
               .start_ns = 10 * static_cast<std::int64_t>(i),
               .duration_ns = 8});
  }
  trace.finish();
  return measure(trace);
}

TEST(Report, TellsWhatSpansAreByTheirKindAndNotByTheirNames) {
  const std::vector<std::string> misleading{"trunc",       "prefetch",  "feedback",  "launch_rate",
                                            "memcpy_like", "recording", "recompile", "waiting"};
  const Measures m = measured(misleading), same = measured({"a", "b", "c", "d", "e", "f", "g", "h"});
  EXPECT_EQ(m.computation, 64);
  EXPECT_EQ(m.framework, 36);
  EXPECT_EQ(m.recording + m.compile + m.yours, 0);
  EXPECT_EQ(m.copies.calls, 0u);
  ASSERT_EQ(m.budgets.size(), same.budgets.size());
  for (std::size_t i = 0; i < m.budgets.size(); ++i) {
    ASSERT_EQ(m.budgets[i].parts.size(), same.budgets[i].parts.size());
    for (std::size_t p = 0; p < m.budgets[i].parts.size(); ++p) {
      EXPECT_EQ(m.budgets[i].parts[p].name, same.budgets[i].parts[p].name);
      EXPECT_EQ(m.budgets[i].parts[p].ns, same.budgets[i].parts[p].ns);
    }
  }
  ASSERT_EQ(m.per_thread.size(), 1u);
  for (const std::string& name : misleading) {
    const auto found = std::ranges::find(m.per_thread[0].rows, name, &Row::name);
    ASSERT_NE(found, m.per_thread[0].rows.end()) << name;
    EXPECT_EQ(found->total, 8) << name;
  }
}

// The recorder's work in the middle of an op, and waits for other threads in its compute phase, are no computation, nor
// the framework's.
TEST(Report, GivesRecordingAndWaitingToNoOp) {
  for (const bool has_phases : {false, true}) {
    Trace trace;
    const TrackId host = trace.add_track(TrackKind::thread, "thread0");
    const auto add = [&](const SiteInfo& site, std::int64_t from, std::int64_t to, std::uint32_t run = 0) {
      trace.add({.track = host, .site = trace.add_site(site), .start_ns = from, .duration_ns = to - from, .run = run});
    };
    add({.name = "run", .kind = SpanKind::run}, 0, 1000, 1);
    add({.op = "mul", .kind = SpanKind::op}, 100, 600);
    if (has_phases) add({.op = "mul", .kind = SpanKind::compute}, 100, 600);
    add({.name = "recorder", .kind = SpanKind::recording}, 150, 250);
    add({.name = "other threads", .kind = SpanKind::wait}, 400, 600);
    trace.finish();
    const Measures m = measure(trace, {.detail = has_phases ? Detail::phases : Detail::op});
    EXPECT_EQ(m.computation, 200) << has_phases;
    EXPECT_EQ(m.recording, 100) << has_phases;
    EXPECT_EQ(m.framework, 700) << has_phases;
  }
}

// XLA records an annotation of Python as it records its own work: by name and length.
TEST(Report, GivesAnnotationsOfXlasUserToTheUser) {
  Trace trace;
  const ProcessId process = trace.add_process(7, -1, "train", Source::jax);
  const TrackId host = trace.add_track(TrackKind::thread, "python3", -1, process),
                worker = trace.add_track(TrackKind::thread, "pjrt_worker", -1, process);
  const auto add = [&](TrackId track, const char* name, SpanKind kind, std::int64_t from, std::int64_t to) {
    trace.add({.track = track,
               .site = trace.add_site({.name = name, .kind = kind}),
               .start_ns = from,
               .duration_ns = to - from});
  };
  add(host, "train", SpanKind::step, 0, 1000);
  add(host, "next_batch", SpanKind::host, 0, 600);
  add(host, "DevicePut", SpanKind::host, 100, 200);  // as far as can be told
  add(host, "LocalClient::Upload", SpanKind::host, 300, 350);
  add(host, "update", SpanKind::run, 700, 800);
  add(worker, "H2D Dispatch", SpanKind::host, 850, 860);
  trace.finish();
  const Measures m = measure(trace);
  EXPECT_EQ(m.framework, 50 + 100 + 10);
  EXPECT_EQ(m.yours, 1000 - 160);
  const auto& rows = m.per_thread.at(0).rows;
  EXPECT_NE(std::ranges::find(rows, "next_batch", &Row::name), rows.end());  // it has a row all the same
}

}  // namespace
}  // namespace paoding::profile
