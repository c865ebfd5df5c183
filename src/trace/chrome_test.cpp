// SPDX-License-Identifier: Apache-2.0
// Chrome's trace format as XLA, TensorFlow and others write it, made by hand.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "paoding/error.h"
#include "profile/report.h"
#include "profile/timeline_rows.h"
#include "tests/support/report_rows.h"
#include "trace/reader.h"

namespace paoding::trace {
namespace {

using namespace profile;

Trace read_chrome(std::string_view events) {
  return read_trace_text(fmt::format("{{\"traceEvents\": [{}]}}", events), "test");
}

constexpr std::string_view kXlaDevices = R"json(
  {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
  {"ph": "M", "pid": 1, "tid": 14, "name": "thread_name", "args": {"name": "Stream #14(Compute,MemcpyD2D)"
}
},
  {"ph": "M", "pid": 1, "tid": 2, "name": "thread_name", "args": {"name": "XLA Ops"}},
  {"ph": "M", "pid": 701, "name": "process_name", "args": {"name": "/host:CPU"}},
  {"ph": "M", "pid": 701, "tid": 5, "name": "thread_name", "args": {"name": "python3"}},)json";

TEST(ChromeTrace, OfXlaNamesKernelsByTheirOps) {
  const Trace trace = read_chrome(std::string(kXlaDevices) + R"(
    {"ph": "X", "pid": 701, "tid": 5, "ts": 10, "dur": 5, "name": "gemm", "args": {"correlation_id": "7"}},
    {"ph": "X", "pid": 1, "tid": 14, "ts": 20, "dur": 6.6849999999999996, "name": "gemm", "args": {"correlation_id": "7",
     "hlo_op": "dot.42", "hlo_module": "jit_f", "name": "jit(f)/layer1/dot_general",
     "kernel_details": "regs:121 static_shared:0 dynamic_shared:32768 grid:128,1,1 block:64,1,1 occ_pct:21.875"}},
    {"ph": "X", "pid": 1, "tid": 14, "ts": 30, "dur": 2, "name": "loop_add_fusion", "args": {"hlo_op": "loop_add_fusion.3",
     "hlo_module": "jit_f"}},
    {"ph": "X", "pid": 1, "tid": 2, "ts": 20, "dur": 6.6849999999999996, "name": "dot.42"},
    {}
  )");
  EXPECT_EQ(report_rows(trace),
            (std::vector<std::string>{"gemm 1 5 0", "dot_general 1 0 6.685", "loop_add_fusion 1 0 2"}));
  EXPECT_EQ(notes_of(trace),
            (std::map<std::string, std::uint64_t>{{"rows that XLA or TensorFlow made of others, left out", 1},
                                                  {"spans of GPUs whose launch is not in the file", 1}}));
  EXPECT_EQ(trace.processes().at(0).source, Source::jax);
  const Records records = measure(trace).records;
  EXPECT_EQ(records.gpu_ns, 8685);
  EXPECT_EQ(records.unattributed, 0u);
}

TEST(ChromeTrace, OfTensorFlowsTimelineHasAStreamForEachOfItsDevices) {
  const Trace trace = read_chrome(R"(
    {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/job:localhost/replica:0/task:0/device:CPU:0 Compute"}},
    {"ph": "M", "pid": 2, "name": "process_name", "args": {"name": "/job:localhost/replica:0/task:0/device:GPU:0/stream:13 Compute"}},
    {"ph": "M", "pid": 3, "name": "process_name", "args": {"name": "/job:localhost/replica:0/task:0/device:GPU:0/stream:all Compute"}},
    {"ph": "X", "cat": "Op", "pid": 1, "tid": 0, "ts": 10, "dur": 5, "name": "Const", "args": {"name": "x", "op": "Const"}},
    {"ph": "X", "cat": "Op", "pid": 2, "tid": 0, "ts": 20, "dur": 7, "name": "MatMul", "args": {"name": "dense/MatMul", "op": "MatMul"}},
    {"ph": "X", "cat": "Op", "pid": 3, "tid": 0, "ts": 20, "dur": 7, "name": "MatMul", "args": {"name": "dense/MatMul", "op": "MatMul"}}
  )");
  EXPECT_EQ(report_rows(trace), (std::vector<std::string>{"Const 1 5 0", "MatMul 1 0 7"}));
  EXPECT_EQ(measure(trace).records.gpu_ns, 7000);
  EXPECT_EQ(trace.processes().at(0).source, Source::tensorflow);
}

TEST(ChromeTrace, PairsBeginningsAndEndsInTheOrderOfTheirTimes) {
  const Trace trace = read_chrome(R"(
    {"ph": "E", "pid": 1, "tid": 2, "ts": 40},
    {"ph": "B", "pid": 1, "tid": 2, "ts": "10", "name": "outer"},
    {"ph": "B", "pid": 1, "tid": 2, "ts": 20, "name": "inner"},
    {"ph": "E", "pid": 1, "tid": 2, "ts": 30},
    {"ph": "E", "pid": 1, "tid": 2, "ts": 50},
    {"ph": "B", "pid": 1, "tid": 3, "ts": 50, "name": "never ends"}
  )");
  EXPECT_EQ(report_rows(trace), (std::vector<std::string>{"outer 1 30 0", "  inner 1 10 0"}));
  EXPECT_EQ(notes_of(trace), (std::map<std::string, std::uint64_t>{{"beginnings without an end, left out", 1},
                                                                   {"ends without a beginning, left out", 1}}));
}

TEST(ChromeTrace, CountsWhatItLeavesOut) {
  const Trace trace = read_chrome(R"(
    {"ph": "X", "pid": "CUDA functions", "tid": 2, "ts": 1, "dur": 2, "name": "f"},
    {"ph": "C", "pid": 1, "ts": 1, "name": "counter", "args": {"value": 10}},
    {"ph": "b", "pid": 1, "id": 3, "ts": 1, "name": "async"},
    {"ph": "P", "pid": 1, "ts": 1, "name": "sample"},
    {"ph": "X", "pid": 1, "tid": 2, "ts": "soon", "dur": 2, "name": "f"},
    {"ph": "X", "pid": 1, "tid": 2, "dur": 2, "name": "f"},
    {"pid": 1, "tid": 2, "ts": 1, "dur": 2, "name": "f"},
    17
  )");
  EXPECT_EQ(report_rows(trace), (std::vector<std::string>{"f 1 2 0"}));
  EXPECT_EQ(notes_of(trace),
            (std::map<std::string, std::uint64_t>{{"elements of the list of events that are none", 1},
                                                  {"events of phase 'P', left out", 1},
                                                  {"events that are on no thread (asynchronous ones), left out", 1},
                                                  {"events whose time is no number", 1},
                                                  {"events without a phase", 1},
                                                  {"events without a time", 1},
                                                  {"values of counters, left out", 1}}));
}

TEST(ChromeTrace, OfATimelineThatPaodingWroteHasTheSameWorkOfGpus) {
  Trace trace;
  const TrackId thread = trace.add_track(TrackKind::thread, "thread0");
  const TrackId stream = trace.add_track(TrackKind::stream, "stream 7", 0);
  trace.add({.track = thread,
             .site = trace.add_site({.op = "matmul", .kind = SpanKind::op}),
             .start_ns = 0,
             .duration_ns = 5000});
  for (int i = 0; i < 3; ++i) {
    trace.add({.track = stream,
               .site = trace.add_site({.name = "k", .kind = SpanKind::kernel}),
               .start_ns = 10'000 * i,
               .duration_ns = 1001 + i});
  }
  trace.finish();
  std::string json;
  write_chrome(trace, [&](std::string_view piece) { json += piece; });
  const Trace again = read_trace_text(json, "test");
  EXPECT_EQ(measure(again).records.gpu_ns, 3006);
  EXPECT_EQ(again.processes().at(0).source, Source::chrome);
}

TEST(TraceFile, ThatIsNoneIsAnErrorThatNamesWhatIsRead) {
  for (const char* text : {"", "hello", "[1, 2]",
                           "\x7f"
                           "ELF"}) {
    try {
      read_trace_text(text, "x.bin");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::file);
      EXPECT_TRUE(std::string_view(error.what()).starts_with("x.bin: ")) << error.what();
      EXPECT_NE(std::string_view(error.what()).find("Kineto"), std::string_view::npos) << error.what();
    }
  }
  EXPECT_THROW(read_trace_text("{\"a\": 1}", "x.json"), Error);
  EXPECT_THROW(read_trace_text("{\"traceEvents\": 5}", "x.json"), Error);
}

}  // namespace
}  // namespace paoding::trace
