// SPDX-License-Identifier: Apache-2.0
#include "trace/rocprof.h"

#include <gtest/gtest.h>

#include <map>

#include "paoding/error.h"
#include "profile/report.h"

namespace paoding::trace {
namespace {

using namespace profile;

const std::string kStrings =
    R"("strings":{"buffer_records":[{"kind":"NONE","operations":[]},{"kind":"HIP","operations":["hipMalloc","hipLaunchKernel"]}],"marker_api":[]})";
const std::string kAgents =
    R"("agents":[{"id":{"handle":9},"type":2,"node_id":2},{"id":{"handle":8},"type":2,"node_id":1},{"id":{"handle":7},"type":1,"node_id":0}])";

std::string kernel(int correlation, std::int64_t start, std::int64_t end, const char* agent = "9") {
  return R"({"kind":3,"operation":1,"correlation_id":{"internal":)" + std::to_string(correlation) +
         R"(,"external":0},"start_timestamp":)" + std::to_string(start) + R"(,"end_timestamp":)" + std::to_string(end) +
         R"(,"dispatch_info":{"agent_id":{"handle":)" + agent +
         R"(},"queue_id":{"handle":18446744073709551000},"kernel_id":1,"workgroup_size":{"x":64,"y":2,"z":1}}})";
}

std::string call(int correlation, std::int64_t start, std::int64_t end) {
  return R"({"kind":1,"operation":1,"thread_id":5,"correlation_id":{"internal":)" + std::to_string(correlation) +
         R"(},"start_timestamp":)" + std::to_string(start) + R"(,"end_timestamp":)" + std::to_string(end) + "}";
}

std::string tool(const std::string& records) {
  return R"({"rocprofiler-sdk-tool":[{"metadata":{"pid":4711},)" + kAgents + "," + kStrings +
         R"x(,"kernel_symbols":[{"kernel_id":1,"kernel_name":"gemm.kd","formatted_kernel_name":"gemm(float*)"}])x" +
         R"(,"buffer_records":)" + records + "}]}";
}

TEST(Rocprof, JoinsKernelsWithTheirLaunchesAndCountsGpusByTheirPlace) {
  const Trace trace = read_rocprof_text(
      tool(R"({"kernel_dispatch":[)" + kernel(3, 1'000'000'000'000'000'001, 1'000'000'000'000'000'008) + "," +
           kernel(4, 50, 60, "8") + R"(],"hip_api":[)" + call(3, 10, 20) + "]}"),
      "made");
  ASSERT_EQ(trace.size(), 3u);
  EXPECT_EQ(trace.processes().at(0).pid, 4711);
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (!trace.on_gpu(i)) {
      EXPECT_EQ(trace.kind(i), SpanKind::launch);
      EXPECT_EQ(trace.name(i), "hipLaunchKernel");
    } else if (trace.start(i) == 50) {
      EXPECT_EQ(trace.track(i).device, 0);
      EXPECT_EQ(trace.cause(i), kNone);
    } else {
      EXPECT_EQ(trace.track(i).device, 1);
      EXPECT_EQ(trace.name(i), "gemm(float*)");
      EXPECT_EQ(trace.duration(i), 7);
      EXPECT_EQ(trace.start(i), 1'000'000'000'000'000'001);
      ASSERT_NE(trace.cause(i), kNone);
    }
  }
}

TEST(Rocprof, ReadsRecordsThatStandInFrontOfTheirNames) {
  const std::string records = R"("buffer_records":{"kernel_dispatch":[)" + kernel(0, 5, 9) + "]}";
  const Trace trace =
      read_rocprof_text(R"({"rocprofiler-sdk-tool":{)" + records +
                            R"(,"kernel_symbols":[{"kernel_id":1,"kernel_name":"late.kd"}],"metadata":{"pid":1}}})",
                        "made");
  ASSERT_EQ(trace.size(), 1u);
  EXPECT_EQ(trace.name(0), "late");
}

TEST(Rocprof, CountsNothingTwiceAndSaysWhatItLeavesOut) {
  const std::string same = R"({"hip_api":[)" + call(3, 10, 20) + R"(],"scratch_memory":[{"kind":1},{"kind":1}]})";
  const std::string file = R"({"rocprofiler-sdk-tool":[{"metadata":{"pid":1},)" + kStrings + R"(,"callback_records":)" +
                           same + R"(,"buffer_records":)" + same + "}]}";
  const Trace trace = read_rocprof_text(file, "made");
  EXPECT_EQ(trace.size(), 1u);
  bool is_said = false;
  for (const Note& note : trace.notes()) is_said |= note.text.find("no calls, kernels or copies") != note.text.npos;
  EXPECT_TRUE(is_said);
}

TEST(Rocprof, CountsRecordsWithoutATimeAndThoseThatEndBeforeTheyStart) {
  const Trace trace =
      read_rocprof_text(tool(R"({"kernel_dispatch":[)" + kernel(1, 9, 5) +
                             R"(,{"kind":3},{"start_timestamp":"x","end_timestamp":null},)" + kernel(1, 5, 9) + "]}"),
                        "made");
  EXPECT_EQ(trace.size(), 1u);
  EXPECT_EQ(measure(trace).records.timeless, 3u);
}

TEST(Rocprof, ShowsNamesThatAreNoUtf8) {
  std::string file = tool(R"({"kernel_dispatch":[)" + kernel(1, 5, 9) + "]}");
  file.replace(file.find("gemm("), 4, "g\x8d\xffm");
  const Trace trace = read_rocprof_text(file, "made");
  ASSERT_EQ(trace.size(), 1u);
  EXPECT_EQ(trace.name(0), "g??m(float*)");
}

// Wherever it is cut off, what was read before stays, and it is said.
TEST(Rocprof, ReadsWhatIsThereOfAFileThatIsCutOff) {
  const std::string whole =
      tool(R"({"kernel_dispatch":[)" + kernel(1, 5, 9) + "," + kernel(2, 10, 12) + "," + kernel(3, 20, 26) + "]}");
  std::size_t most = 0;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    try {
      const Trace trace = read_rocprof_text(whole.substr(0, size), "cut");
      EXPECT_FALSE(trace.notes().empty()) << size;
      EXPECT_GE(trace.size(), most) << size;
      most = trace.size();
      ASSERT_LE(most, 3u);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::file);
      EXPECT_EQ(most, 0u) << size;
    }
  }
  EXPECT_GE(most, 2u);
  EXPECT_EQ(read_rocprof_text(whole, "whole").size(), 3u);
}

}  // namespace
}  // namespace paoding::trace
