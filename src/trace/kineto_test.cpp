// SPDX-License-Identifier: Apache-2.0
// Traces of PyTorch's profiler, made by hand: what of them becomes which span, and whose time it is.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "profile/report.h"
#include "profile/timeline_rows.h"
#include "profile/trace_merge.h"
#include "tests/support/report_rows.h"
#include "trace/reader.h"

namespace paoding::trace {
namespace {

using namespace profile;

// Events of one process, 1, with the threads 10 and 11 and the GPU 0.
class Events {
 public:
  Events& add(const char* category, const char* name, int tid, double ts, double dur, const std::string& args = "") {
    const bool on_gpu = std::string_view(category) == "kernel" || std::string_view(category).starts_with("gpu_");
    text_ += fmt::format(
        R"({}{{"ph": "X", "cat": "{}", "name": "{}", "pid": {}, "tid": {}, "ts": {:.3f}, "dur": {:.3f}, "args": {{{}}}}})",
        text_.empty() ? "" : ",\n", category, name, on_gpu ? 0 : 1, tid, ts, dur, args);
    return *this;
  }
  Events& add_raw(std::string_view event) {
    text_ += text_.empty() ? "" : ",\n";
    text_ += event;
    return *this;
  }
  std::string json() const { return "{\"schemaVersion\": 1, \"traceEvents\": [\n" + text_ + "\n]}"; }
  Trace read() const { return read_trace_text(json(), "test"); }

 private:
  std::string text_;
};

SpanId find(const Trace& trace, std::string_view name) {
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.name(i) == name) return i;
  }
  return kNone;
}

Events an_op_that_launches() {
  Events events;
  events.add("cpu_op", "aten::linear", 10, 100, 30, R"("External id": 1)")
      .add("cpu_op", "aten::addmm", 10, 105, 20, R"("External id": 2)")
      .add("cuda_runtime", "cudaLaunchKernel", 10, 110, 5, R"("External id": 2, "correlation": 7)")
      .add("kernel", "gemm<float>", 7, 140, 50.5,
           R"("External id": 2, "device": 0, "stream": 7, "correlation": 7, "grid": [4, 2, 1], "block": [128, 1, 1],
              "registers per thread": 96, "est. achieved occupancy %": 42.5)");
  return events;
}

TEST(KinetoTrace, GivesAKernelsTimeToTheOpsThatLaunchedIt) {
  const Trace trace = an_op_that_launches().read();
  EXPECT_EQ(report_rows(trace), (std::vector<std::string>{"aten::linear 1 30 50.5", "  aten::addmm 1 20 50.5"}));
  const Measures m = measure(trace);
  EXPECT_EQ(m.computation, 50500);  // an op that hands work to a GPU computes nothing itself
  EXPECT_EQ(m.framework, 30000);
  EXPECT_EQ(m.records.unattributed, 0u);
  EXPECT_TRUE(trace.notes().empty());
  EXPECT_EQ(trace.processes().at(0).source, Source::pytorch);
}

TEST(KinetoTrace, ShowsKernelsBelowTheirOpsWhereTheyAreAskedFor) {
  EXPECT_EQ(report_rows(an_op_that_launches().read(), {.kernels = true}),
            (std::vector<std::string>{"aten::linear 1 30 50.5", "  aten::addmm 1 20 50.5",
                                      "    kernel gemm<float> 1 0 50.5"}));
}

TEST(KinetoTrace, KeepsWhatAKernelSaysOfItsShape) {
  const Trace trace = an_op_that_launches().read();
  std::map<std::string, std::string> said;
  ArgumentsInOrder arguments(trace);
  for (SpanId i = 0; i < trace.size(); ++i) {
    arguments.for_each(i, [&](const ArgumentColumn& column, std::size_t at) {
      EXPECT_EQ(trace.kind(i), SpanKind::kernel);
      const std::string name(trace.text(column.name));
      switch (column.type) {
        case ArgumentType::integer: said[name] = fmt::format("{}", column.integer(at)); break;
        case ArgumentType::real: said[name] = fmt::format("{}", column.real(at)); break;
        case ArgumentType::text: said[name] = trace.text(column.text(at)); break;
      }
    });
  }
  EXPECT_EQ(said, (std::map<std::string, std::string>{
                      {"block", "128x1x1"}, {"grid", "4x2x1"}, {"occupancy %", "42.5"}, {"registers", "96"}}));
}

// A graph's kernels, and those that were launched before the recording: no op of a thread's has them.
TEST(KinetoTrace, ListsWorkThatNoOpLaunchedUnderItsGpu) {
  const Trace trace =
      an_op_that_launches()
          .add("cuda_runtime", "cudaGraphLaunch", 10, 300, 9, R"("correlation": 8)")
          .add("kernel", "void ns::in_graph<float>(int)", 7, 320, 20, R"("device": 0, "stream": 7, "correlation": 8)")
          .add("kernel", "from_before", 9, 5, 30, R"("device": 0, "stream": 9, "correlation": 3)")
          .read();
  const Measures m = measure(trace);
  EXPECT_TRUE(m.merged.empty());  // there is one thread
  ASSERT_EQ(m.per_thread.size(), 2u);
  EXPECT_FALSE(m.per_thread[0].is_gpu);
  EXPECT_EQ(m.per_thread[1].thread, "GPU 0");
  EXPECT_TRUE(m.per_thread[1].is_gpu);
  EXPECT_EQ(report_rows(trace),
            (std::vector<std::string>{"aten::linear 1 30 50.5", "  aten::addmm 1 20 50.5", "cudaGraphLaunch 1 9 0",
                                      "from_before 1 0 30", "void ns::in_graph<float>(int) 1 0 20"}));
  const std::string text = report(trace), json = report(trace, {.format = ReportFormat::json});
  EXPECT_NE(text.find("\nGPU 0::from_before "), text.npos) << text;
  EXPECT_NE(
      text.find(" 2 of no op (of 1 the launch is not in the recording, as before its start; 1 launched outside of any "
                "op, as kernels of CUDA graphs are); "),
      text.npos)
      << text;
  EXPECT_NE(json.find(R"json({"name":"void ns::in_graph<float>(int)","short":"in_graph","depth":0,)json"), json.npos)
      << json;
}

TEST(KinetoTrace, DoesNotKnowAnOccupancyOfNothing) {
  const Trace trace = Events()
                          .add("kernel", "gemm<float>", 7, 140, 50.5,
                               R"("device": 0, "stream": 7, "correlation": 7, "est. achieved occupancy %": 0)")
                          .read();
  ASSERT_EQ(trace.size(), 1u);
  for (const ArgumentColumn& column : trace.columns()) {
    EXPECT_TRUE(trace.text(column.name) != "occupancy %" || column.of.empty());
  }
}

TEST(KinetoTrace, CountsOpsOfAProcessWithoutAGpuAsComputation) {
  const Trace trace = Events().add("cpu_op", "aten::mm", 10, 100, 30).read();
  const Measures m = measure(trace);
  EXPECT_EQ(m.computation, 30000);
  EXPECT_EQ(m.framework, 0);
}

TEST(KinetoTrace, JoinsByCorrelationAndNotByFlows) {
  Events events = an_op_that_launches();
  events.add_raw(R"({"ph": "s", "id": 7, "pid": 1, "tid": 11, "ts": 100.0, "cat": "ac2g", "name": "ac2g"})");
  events.add_raw(R"({"ph": "f", "id": 99, "pid": 0, "tid": 7, "ts": 140.0, "cat": "ac2g", "name": "ac2g", "bp": "e"})");
  const Trace trace = events.read();
  EXPECT_EQ(trace.name(trace.cause(find(trace, "gemm<float>"))), "cudaLaunchKernel");
}

TEST(KinetoTrace, JoinsWithinAProcessWhereSeveralGiveTheSameNumbers) {
  Events events = an_op_that_launches();
  events.add_raw(
      R"({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 2, "tid": 20, "ts": 90, "dur": 1,
                     "args": {"correlation": 7}})");
  events.add_raw(
      R"({"ph": "X", "cat": "cuda_runtime", "name": "cuLaunchKernel", "pid": 2, "tid": 20, "ts": 95, "dur": 1,
                     "args": {"correlation": 8}})");
  events.add("kernel", "of 2", 7, 200, 1, R"("stream": 7, "correlation": 8)");
  const Trace trace = events.read();
  const SpanId of_2 = find(trace, "of 2");
  EXPECT_EQ(trace.name(trace.cause(of_2)), "cuLaunchKernel");
  EXPECT_EQ(trace.processes().at(trace.track(of_2).process).pid, 2);
}

TEST(KinetoTrace, KeepsKernelsOfAStreamThatOverlap) {
  Events events;
  events.add("cpu_op", "aten::mm", 10, 100, 30)
      .add("cuda_runtime", "cudaLaunchKernelExC", 10, 101, 1, R"("correlation": 1)")
      .add("cuda_runtime", "cudaLaunchKernelExC", 10, 103, 1, R"("correlation": 2)")
      .add("kernel", "a", 7, 110, 10, R"("stream": 7, "correlation": 1)")
      .add("kernel", "b", 7, 118, 10, R"("stream": 7, "correlation": 2)");
  const Trace trace = events.read();
  const Measures m = measure(trace);
  EXPECT_EQ(m.records.gpu_ns, 20000);  // of both
  EXPECT_EQ(m.computation, 18000);     // when any was under way
  EXPECT_EQ(m.per_thread.at(0).rows.at(0).gpu, 18000);
}

TEST(KinetoTrace, GivesAGraphsKernelsToTheOneCallThatLaunchedIt) {
  Events events;
  events.add("user_annotation", "replay", 10, 90, 60)
      .add("cuda_runtime", "cudaGraphLaunch", 10, 100, 5, R"("correlation": 9)");
  for (int i = 0; i < 300; ++i) {
    events.add("kernel", i % 2 == 0 ? "even" : "odd", 7, 200 + 2 * i, 1, R"("stream": 7, "correlation": 9)");
  }
  const Trace trace = events.read();
  std::uint64_t caused = 0;
  for (SpanId i = 0; i < trace.size(); ++i)
    caused += trace.cause(i) != kNone && trace.name(trace.cause(i)) == "cudaGraphLaunch";
  EXPECT_EQ(caused, 300u);
  EXPECT_EQ(measure(trace).records.unattributed, 300u);  // of no op, which the last line says
}

TEST(KinetoTrace, TakesNumbersThatAreWrittenAsTexts) {
  Events events;
  events.add("cpu_op", "aten::mm", 10, 100, 30, R"("External id": "3")")
      .add("cuda_runtime", "hipLaunchKernel", 10, 101, 1, R"("correlation": "5", "grid": "[1, 1, 1]")")
      .add_raw(R"({"ph": "X", "cat": "kernel", "name": "k", "pid": "0", "tid": "3", "ts": "110", "dur": "4.25",
                   "args": {"device": "0", "stream": "3", "correlation": "5", "kind": "x"}})");
  const Trace trace = events.read();
  EXPECT_EQ(report_rows(trace), (std::vector<std::string>{"aten::mm 1 25.75 4.25"}));
}

TEST(KinetoTrace, TimesStepsByTheProfilersMarks) {
  Events events;
  for (int i = 0; i < 4; ++i) {
    events.add("user_annotation", fmt::format("ProfilerStep#{}", 40 + i).c_str(), 10, 100 * i, i == 2 ? 90 : 80);
    events.add("cpu_op", "aten::mm", 10, 100 * i + 10, 50);
  }
  const Trace trace = events.read();
  const Measures m = measure(trace);
  EXPECT_EQ(m.steps.count, 4u);
  EXPECT_EQ(m.steps.p50, 80000);
  EXPECT_EQ(m.steps.worst, 90000);
  EXPECT_EQ(m.steps.worst_step, 3u);
  EXPECT_EQ(report_rows(trace), (std::vector<std::string>{"aten::mm 4 200 0"}));  // a step has no row
}

TEST(KinetoTrace, MakesModulesTheScopesOfTheirOpsAndOfTheGradientsOfThose) {
  Events events;
  events.add("python_function", "train.py(12): step", 10, 0, 200)
      .add("python_function", "nn.Module: Net_0", 10, 10, 100)
      .add("python_function", "nn.Module: Linear_1", 10, 20, 40)
      .add("cpu_op", "aten::linear", 10, 25, 10, R"("Sequence number": 5, "Fwd thread id": 0)")
      .add("cpu_op", "aten::relu", 10, 70, 10, R"("Sequence number": 6, "Fwd thread id": 0)")
      .add("cpu_op", "aten::sum", 10, 150, 10)
      .add("cpu_op", "AddmmBackward0", 11, 160, 20, R"("Sequence number": 5, "Fwd thread id": 1)")
      .add("cpu_op", "aten::mm", 11, 165, 5);
  const Trace trace = events.read();
  EXPECT_EQ(report_rows(trace, {.nesting = Nesting::scope}),
            (std::vector<std::string>{"Net_0 1 20 0", "  Net_0/Linear_1 1 10 0", "    aten::linear 1 10 0",
                                      "  aten::relu 1 10 0", "aten::sum 1 10 0", "Net_0 1 20 0",
                                      "  Net_0/Linear_1 (backward) 1 20 0", "    AddmmBackward0 1 20 0",
                                      "      aten::mm 1 5 0"}));
}

TEST(KinetoTrace, CallsADataLoaderWhatFeeds) {
  Events events = an_op_that_launches();
  events.add("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 10, 0, 80);
  std::map<std::string, std::int64_t> parts;
  const Measures m = measure(events.read());
  for (const BudgetPart& part : m.budgets.at(0).parts) parts[std::string(part.name)] = part.ns;
  EXPECT_EQ(parts["feed"], 80000);
}

TEST(KinetoTrace, TellsCopiesApartByTheirNamesAndByWhoWaited) {
  Events events;
  events.add("cpu_op", "aten::copy_", 10, 100, 30)
      .add("cuda_runtime", "cudaMemcpyAsync", 10, 101, 1, R"("correlation": 1)")
      .add("cuda_runtime", "cudaMemcpy", 10, 103, 20, R"("correlation": 2)")
      .add("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 7, 110, 4,
           R"("stream": 7, "correlation": 1, "bytes": 4096)")
      .add("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 7, 115, 6, R"("stream": 7, "correlation": 2, "bytes": 8)")
      .add("gpu_memset", "Memset (Device)", 7, 130, 1, R"("stream": 7, "correlation": 3, "bytes": 8)");
  const Trace trace = events.read();
  const Measures m = measure(trace);
  EXPECT_EQ(m.async_copies.calls, 1u);
  EXPECT_EQ(m.async_copies.total, 4000);
  EXPECT_EQ(m.sync_copies.calls, 1u);
  EXPECT_EQ(m.sync_copies.total, 6000);
  EXPECT_EQ(trace.bytes(find(trace, "Memcpy HtoD (Pageable -> Device)")), 4096);
  EXPECT_EQ(trace.kind(find(trace, "cudaMemcpy")), SpanKind::wait);
  EXPECT_EQ(notes_of(trace),
            (std::map<std::string, std::uint64_t>{{"spans of GPUs whose launch is not in the file", 1}}));
}

TEST(KinetoTrace, LeavesOutWhatIsTheSameOnceMoreAndSaysSo) {
  Events events = an_op_that_launches();
  events.add("gpu_user_annotation", "train", 7, 140, 60, R"("stream": 7)")
      .add("cuda_sync", "Stream Sync", 7, 150, 10, R"("correlation": 404)")
      .add("something_new", "x", 10, 135, 1);
  const Trace trace = events.read();
  EXPECT_EQ(measure(trace).records.gpu_ns, 50500);
  EXPECT_EQ(notes_of(trace), (std::map<std::string, std::uint64_t>{
                                 {"GPU rows of the user's ranges, left out: copies of the host's", 1},
                                 {"events of the unknown category 'something_new', taken as work of the host", 1},
                                 {"rows that say what a stream or a thread waited for, whose call is not in the file, "
                                  "left out",
                                  1}}));
}

TEST(KinetoTrace, GivesCallsThatWaitWhatTheyWaitFor) {
  Events events = an_op_that_launches();
  events
      .add("cuda_sync", "Stream Wait Event", 9, 320, 2,
           R"("cuda_sync_kind": "Stream Wait Event", "wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 51,
                "wait_on_cuda_event_id": 19, "stream": 9, "correlation": 52)")
      .add("cuda_sync", "Context Sync", -1, 330, 19,
           R"("cuda_sync_kind": "Context Sync", "stream": -1, "correlation": 53)")
      .add("cuda_runtime", "cudaEventRecord", 10, 300, 2, R"("correlation": 51)")
      .add("cuda_runtime", "cudaStreamWaitEvent", 10, 310, 2, R"("correlation": 52)")
      .add("cuda_runtime", "cudaDeviceSynchronize", 10, 325, 30, R"("correlation": 53)");
  const std::int64_t gpu_ns = static_cast<std::int64_t>(measure(an_op_that_launches().read()).records.gpu_ns);
  const Trace trace = events.read();
  EXPECT_EQ(measure(trace).records.gpu_ns, gpu_ns);  // nobody worked for longer
  const SpanId record = find(trace, "cudaEventRecord"), wait = find(trace, "cudaStreamWaitEvent"),
               sync = find(trace, "cudaDeviceSynchronize");
  std::map<std::pair<SpanId, std::string>, std::string> said;
  for (const ArgumentColumn& column : trace.columns()) {
    const std::string name(trace.text(column.name));
    if (name != "wait" && name != "stream" && name != "event stream") continue;
    for (std::size_t i = 0; i < column.of.size(); ++i) {
      said[{column.of[i], name}] = column.type == ArgumentType::text ? std::string(trace.text(column.text(i)))
                                                                     : std::to_string(column.integer(i));
    }
  }
  EXPECT_EQ(said, (std::map<std::pair<SpanId, std::string>, std::string>{{{wait, "wait"}, "Stream Wait Event"},
                                                                         {{wait, "stream"}, "9"},
                                                                         {{wait, "event stream"}, "7"},
                                                                         {{sync, "wait"}, "Context Sync"}}));
  EXPECT_EQ(std::ranges::count(trace.flows(), Flow{record, wait}), 1);
  for (const Note& note : trace.notes()) EXPECT_EQ(note.text.find("waited for"), note.text.npos) << note.text;
}

TEST(KinetoTrace, CountsTheProfilersOwnOverheadAsRecording) {
  Events events = an_op_that_launches();
  events.add("overhead", "Activity Buffer Request", 0, 50, 20).add("overhead", "Lazy Function Loading", 0, 75, 10);
  const Measures m = measure(events.read());
  EXPECT_EQ(m.recording, 20000);
  EXPECT_EQ(m.compile, 10000);
  ASSERT_EQ(m.budgets.size(), 2u);  // of the thread and of the GPU: nobody knows on which thread it was
  EXPECT_EQ(m.budgets[0].of, "thread 10");
  EXPECT_EQ(m.budgets[1].of, "GPU 0");
}

TEST(KinetoTrace, FollowsWhatIsHeldOfMemory) {
  Events events;
  events.add("cpu_op", "aten::mm", 10, 0, 100);
  for (const auto& [ts, held] : {std::pair(10, 1000), {20, 5000}, {30, 2000}}) {
    events.add_raw(fmt::format(
        R"({{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 10, "ts": {},
             "args": {{"Total Reserved": 9000, "Total Allocated": {}, "Bytes": 1, "Device Id": 0, "Device Type": 1}}}})",
        ts, held));
  }
  const Measures m = measure(events.read());
  ASSERT_FALSE(m.held.empty());
  EXPECT_EQ(m.held.at(0).most, 5000);
  EXPECT_EQ(m.held.at(0).at_end, 2000);
  EXPECT_EQ(m.held.at(0).device, 0);
}

TEST(KinetoTrace, ReadsTheNamesOf2021) {
  const Trace trace = read_trace_text(R"({"schemaVersion": 1, "traceEvents": [
    {"ph": "X", "cat": "Operator", "name": "aten::mm", "pid": 1, "tid": "10", "ts": 100, "dur": 30, "args": {"external id": 1}},
    {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": "10", "ts": 105, "dur": 5,
     "args": {"correlation": 7, "external id": 1}},
    {"ph": "X", "cat": "Kernel", "name": "k", "pid": 0, "tid": "stream 7", "ts": 120, "dur": 8,
     "args": {"correlation": 7, "device": 0, "stream": 7}}]})",
                                      "test");
  EXPECT_EQ(report_rows(trace), (std::vector<std::string>{"aten::mm 1 22 8"}));
}

TEST(KinetoTrace, ShowsNothingOfTheEnvironmentThatAFileHas) {
  std::string json = an_op_that_launches().json();
  json.insert(1, R"("env": {"API_KEY": "hush-1"}, "host_name": "hush-2", "username": "hush-3",
                    "distributedInfo": {"rank": 0, "pg_config": [{"desc": "hush-4"}]}, "mast_job_environment": "hush-5",)");
  const Trace trace = read_trace_text(json, "test");
  std::string shown;
  for (const ReportFormat format : {ReportFormat::text, ReportFormat::json, ReportFormat::csv}) {
    shown += report(trace, {.kernels = true, .format = format});
  }
  write_chrome(trace, [&](std::string_view piece) { shown += piece; });
  EXPECT_NE(shown.find("aten::addmm"), std::string::npos);
  EXPECT_EQ(shown.find("hush"), std::string::npos);
}

TEST(KinetoTrace, OfSeveralRanksAreSetBesideEachOtherByTheWallClock) {
  std::vector<NamedTrace> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    std::string json = an_op_that_launches().json();
    // The second began a ms later, and counts from another moment.
    json.insert(1, fmt::format(R"("distributedInfo": {{"rank": {}}}, "baseTimeNanoseconds": {},)", rank,
                               1'790'000'000'000'000'000 + rank * 1'000'000));
    ranks.push_back({fmt::format("rank {}", rank), read_trace_text(json, "test")});
  }
  const Trace all = merge(std::move(ranks));
  ASSERT_EQ(all.processes().size(), 2u);
  EXPECT_EQ(all.processes()[1].rank, 1);
  std::vector<std::int64_t> starts;
  for (SpanId i = 0; i < all.size(); ++i) {
    if (all.kind(i) == SpanKind::kernel) starts.push_back(all.start(i));
  }
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_EQ(starts[1] - starts[0], 1'000'000);
  for (SpanId i = 0; i < all.size(); ++i) {
    if (all.kind(i) != SpanKind::kernel) continue;
    EXPECT_EQ(all.track(all.cause(i)).process, all.track(i).process);
  }
}

TEST(KinetoTrace, TakesItsRankFromWhatTheFileSaysOfTheOthers) {
  std::string json = an_op_that_launches().json();
  json.insert(1, R"("distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},)");
  EXPECT_EQ(read_trace_text(json, "test").processes().at(0).rank, 3);
}

TEST(KinetoTrace, NamesTheGpusThatDidSomething) {
  const std::string json = R"({"schemaVersion": 1, "deviceProperties": [
      {"id": 0, "name": "NVIDIA H200", "numSms": 132, "maxThreadsPerMultiprocessor": 2048, "regsPerMultiprocessor": 65536,
       "sharedMemPerMultiprocessor": 233472},
      {"id": 1, "name": "NVIDIA H200", "numSms": 132}, {"id": 2}], "traceEvents": [
      {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2,
       "args": {"device": 0, "stream": 7, "correlation": 1, "grid": [
          4,
          2,
          1
        ]}}]})";
  const Trace trace = read_trace_text(json, "test");
  ASSERT_EQ(trace.limits().size(), 1u);
  EXPECT_EQ(trace.limits()[0], (Limit{0, 0, {}, "NVIDIA H200", 132, 2048, 65536, 233472}));
  ASSERT_EQ(trace.columns().size(), 1u);
  EXPECT_EQ(trace.text(trace.columns()[0].text(0)), "4x2x1") << "lists may have a line for each number";
}

TEST(KinetoTrace, NamesRocmsGpusWhereAllAreAlike) {
  const auto named = [](std::string_view second) {
    return read_trace_text(
        fmt::format(R"({{"schemaVersion": 1, "deviceProperties": [{{"id": 0, "name": "AMD Instinct MI300X"}},
            {{"id": 1, "name": "{}"}}], "traceEvents": [{{"ph": "X", "cat": "kernel", "name": "k", "pid": 2, "tid": 0, "ts": 1,
            "dur": 2, "args": {{"device": 2, "stream": 0, "correlation": 1}}}}]}})",
                    second),
        "test");
  };
  const Trace alike = named("AMD Instinct MI300X");
  ASSERT_EQ(alike.limits().size(), 1u);
  EXPECT_EQ(alike.limits()[0].device, 2);
  EXPECT_EQ(alike.limits()[0].name, "AMD Instinct MI300X");
  EXPECT_TRUE(named("AMD Instinct MI250X").limits().empty());
}

TEST(KinetoTrace, KeepsStridesOfConvolutionsAlone) {
  Events events;
  events.add("cpu_op", "aten::cudnn_convolution", 10, 100, 30, R"("Concrete Inputs": ["", "", "[3, 3]", "[2, 2]"])")
      .add("cpu_op", "aten::add", 10, 140, 30, R"("Concrete Inputs": ["", "", "1"])");
  const Trace trace = events.read();
  ASSERT_EQ(trace.columns().size(), 1u);
  const ArgumentColumn& column = trace.columns()[0];
  EXPECT_EQ(trace.text(column.name), "concrete inputs");
  ASSERT_EQ(column.of.size(), 1u);
  EXPECT_EQ(trace.text(column.text(0)), R"(["", "", "[3, 3]", "[2, 2]"])");
}

}  // namespace
}  // namespace paoding::trace
