// SPDX-License-Identifier: Apache-2.0
// Rows for the kernels that ops ran as: on request, under the op, their times adding up to its.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "profile/report.h"
#include "profile/timeline.h"

namespace paoding::profile {
namespace {

std::vector<std::string> rows(const Trace& trace, const ReportOptions& options) {
  std::vector<std::string> all;
  const Measures m = measure(trace, options);
  for (const Section& section : m.merged.empty() ? m.per_thread : m.merged) {
    for (const Row& row : section.rows) {
      if (row.name == "(between events)") continue;
      all.push_back(fmt::format("{}{} {} {}", std::string(2 * static_cast<std::size_t>(row.depth), ' '), row.name,
                                row.calls, row.total));
    }
  }
  return all;
}

using Rows = std::vector<std::string>;

TEST(ReportOfKernels, HasARowForEachThatAnOpRanAs) {
  Trace trace;
  const TrackId stream = trace.add_track(TrackKind::stream, "stream 1", 0);
  std::int64_t at = 0;
  const auto add = [&](const char* op, const char* kernel, std::int64_t ns) {
    trace.add({.track = stream,
               .site = trace.add_site({.op = op, .instance = "op7", .kernel = kernel, .kind = SpanKind::kernel}),
               .start_ns = at,
               .duration_ns = ns});
    at += ns;
  };
  add("matmul", "gemm_128", 50), add("matmul", "gemm_64", 20), add("matmul", "gemm_128", 40);
  add("sort", "", 5);
  trace.finish();
  EXPECT_EQ(rows(trace, {}), (Rows{"matmul 3 110", "sort 1 5"}));
  EXPECT_EQ(rows(trace, {.kernels = true}),
            (Rows{"matmul 3 110", "  kernel gemm_128 2 90", "  kernel gemm_64 1 20", "sort 1 5"}));
  EXPECT_EQ(rows(trace, {.detail = Detail::instances, .kernels = true}),
            (Rows{"matmul 3 110", "  op7 3 110", "    kernel gemm_128 2 90", "      kernel gemm_128/compute 2 90",
                  "    kernel gemm_64 1 20", "      kernel gemm_64/compute 1 20", "sort 1 5", "  op7 1 5",
                  "    op7/compute 1 5"}));
  EXPECT_NE(timeline_json(trace).find("\"kernel\":\"gemm_64\""), std::string::npos);
}

// The host knows the library, a look from outside the kernel that the library chose: both, the second in the first.
TEST(ReportOfKernels, SaysWhichKernelALibraryChose) {
  Trace trace;
  const TrackId host = trace.add_track(TrackKind::thread, "thread0");
  const TrackId stream = trace.add_track(TrackKind::stream, "stream 1", 0);
  trace.add({.track = host,
             .site = trace.add_site({.op = "matmul", .kernel = "cublaslt", .kind = SpanKind::op}),
             .start_ns = 0,
             .duration_ns = 10,
             .correlation = 1});
  trace.add({.track = stream,
             .site = trace.add_site({.op = "matmul", .kernel = "gemm_128", .kind = SpanKind::kernel}),
             .start_ns = 5,
             .duration_ns = 30,
             .correlation = 1});
  trace.finish();
  EXPECT_EQ(rows(trace, {.kernels = true}),
            (Rows{"matmul 1 35", "  kernel cublaslt 1 35", "    kernel gemm_128 1 30"}));
}

// Of replays that were not stamped in full too: their share.
TEST(ReportOfKernels, ScalesThemAsTheirOps) {
  Trace trace;
  const TrackId stream = trace.add_track(TrackKind::stream, "stream 1", 0);
  const SiteId replay = trace.add_site({.name = "graph replay", .kind = SpanKind::replay});
  const SiteId kernel = trace.add_site({.op = "mul", .kernel = "group_1", .kind = SpanKind::kernel});
  for (int i = 0; i < 3; ++i) trace.add({.track = stream, .site = replay, .start_ns = 100 * i, .duration_ns = 60});
  trace.add_part({replay, kNone, 1, 60});
  trace.add_part({replay, kernel, 2, 60});
  trace.finish();
  EXPECT_EQ(rows(trace, {.kernels = true}), (Rows{"mul 6 180", "  kernel group_1 6 180"}));
}

}  // namespace
}  // namespace paoding::profile
