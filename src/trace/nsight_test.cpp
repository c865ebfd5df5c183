// SPDX-License-Identifier: Apache-2.0
#include "trace/nsight.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <map>

#include "paoding/error.h"
#include "profile/report.h"
#include "trace/nvtx_name.h"

namespace paoding::trace {
namespace {

using namespace profile;

// The bytes of a file that these statements make.
std::string database(const std::string& statements) {
  sqlite3* made = nullptr;
  EXPECT_EQ(sqlite3_open(":memory:", &made), SQLITE_OK);
  char* problem = nullptr;
  EXPECT_EQ(sqlite3_exec(made, statements.c_str(), nullptr, nullptr, &problem), SQLITE_OK) << problem;
  sqlite3_int64 size = 0;
  unsigned char* bytes = sqlite3_serialize(made, "main", &size, 0);
  std::string text(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
  sqlite3_free(bytes);
  sqlite3_close(made);
  return text;
}

Trace read_statements(const std::string& statements) {
  return read_nsight(SqliteFile::of(database(statements), "made"), "made");
}

constexpr std::int64_t global(std::int64_t pid, std::int64_t tid) { return (std::int64_t{1} << 48) | pid << 24 | tid; }
std::string text(std::int64_t number) { return std::to_string(number); }

const std::string kNames =
    "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);"
    "INSERT INTO StringIds VALUES "
    "(1,'gemm'),(2,'cudaLaunchKernel_v7000'),(3,'cudaGraphLaunch_v10000'),(9000000000,'far');";
const std::string kCalls = "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId, nameId);";
const std::string kRanges = "CREATE TABLE NVTX_EVENTS (start, end, eventType, globalTid, endGlobalTid, text, textId);";

std::uint64_t nsight_count_of(const Trace& trace, std::string_view what) {
  for (const Note& note : trace.notes()) {
    if (note.text.find(what) != note.text.npos) return note.count;
  }
  return 0;
}

TEST(Nsight, KeepsLaunchesOfTwoProcessesApartThatHaveOneNumber) {
  const Trace trace = read_statements(
      kNames + kCalls +
      "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, correlationId, "
      "globalPid, demangledName);" +
      "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10,20," + text(global(111, 5)) + ",7,2),(11,21," +
      text(global(112, 6)) + ",7,2);" + "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (30,40,0,1,7,7," +
      text(global(112, 0)) + ",1),(31,45,1,1,7,7," + text(global(111, 0)) + ",1),(50,60,0,2,7,9," +
      text(global(112, 0)) + ",9000000000);");
  std::map<std::int64_t, int> pids;  // of kernels by when they began
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (!trace.on_gpu(i)) continue;
    pids[trace.start(i)] = trace.processes()[trace.track(i).process].pid;
    if (trace.start(i) == 50) {
      EXPECT_EQ(trace.cause(i), kNone);
      EXPECT_EQ(trace.name(i), "far");
      EXPECT_EQ(trace.text(trace.track(i).name), "stream 7 of context 2");
      continue;
    }
    ASSERT_NE(trace.cause(i), kNone);
    EXPECT_EQ(trace.track(trace.cause(i)).process, trace.track(i).process);
    EXPECT_EQ(trace.name(trace.cause(i)), "cudaLaunchKernel");
  }
  EXPECT_EQ(pids, (std::map<std::int64_t, int>{{30, 112}, {31, 111}, {50, 112}}));
  EXPECT_EQ(nsight_count_of(trace, "whose launch is not in the file"), 1u);
}

// Of one that does not say of which process a kernel is.
TEST(Nsight, DoesNotGuessWhichOfTwoProcessesLaunchedAKernel) {
  const Trace trace = read_statements(
      kNames + kCalls +
      "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, correlationId, shortName);" +
      "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10,20," + text(global(111, 5)) + ",7,2),(11,21," +
      text(global(112, 6)) + ",7,2),(12,22," + text(global(112, 6)) + ",8,2);" +
      "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (30,40,0,7,7,1),(50,60,0,7,8,1);");
  EXPECT_EQ(nsight_count_of(trace, "several processes may have launched"), 1u);
  int joined = 0;
  for (SpanId i = 0; i < trace.size(); ++i) joined += trace.on_gpu(i) && trace.cause(i) != kNone ? 1 : 0;
  EXPECT_EQ(joined, 1);
}

TEST(Nsight, ReadsRangesMarksOpsAndSteps) {
  const std::string thread = text(global(1, 2)), other = text(global(1, 3));
  const Trace trace = read_statements(kNames + kRanges + "INSERT INTO NVTX_EVENTS VALUES (0,100,59," + thread +
                                      ",NULL,'step 4',NULL),"
                                      "(10,50,59," +
                                      thread +
                                      ",NULL,'aten::mm, seq = 7, op_id = 12, sizes = [[8, 16], [16, 4]]',NULL),"
                                      "(60,NULL,34," +
                                      thread + ",NULL,'here',NULL),(61,NULL,59," + thread +
                                      ",NULL,'open',NULL),"
                                      "(62,70,60," +
                                      thread + "," + other + ",'across',NULL),(63,71,60," + thread + "," + thread +
                                      ",NULL,1),"
                                      "(1,2,75," +
                                      thread + ",NULL,'a domain',NULL);");
  std::map<std::string, SpanKind> kinds;
  for (SpanId i = 0; i < trace.size(); ++i) kinds[std::string(trace.name(i))] = trace.kind(i);
  EXPECT_EQ(kinds, (std::map<std::string, SpanKind>{{"step 4", SpanKind::step},
                                                    {"aten::mm", SpanKind::op},
                                                    {"here", SpanKind::instant},
                                                    {"gemm", SpanKind::range}}));
  EXPECT_EQ(nsight_count_of(trace, "did not end"), 1u);
  EXPECT_EQ(nsight_count_of(trace, "ended on another"), 1u);
  EXPECT_EQ(measure(trace).steps.count, 1u);
  ASSERT_EQ(trace.columns().size(), 2u);
  EXPECT_EQ(trace.text(trace.columns()[0].text(0)), "[[8, 16], [16, 4]]");
  EXPECT_EQ(trace.columns()[1].integer(0), 7);
}

TEST(Nsight, SaysOfGraphsThatTheirKernelsWereNotRecorded) {
  const Trace trace = read_statements(
      kNames + kCalls +
      "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start, end, deviceId, contextId, streamId, correlationId, "
      "globalPid, graphId);" +
      "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10,20," + text(global(1, 5)) + ",7,3);" +
      "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (30,90,0,1,7,7," + text(global(1, 0)) + ",12);");
  EXPECT_EQ(nsight_count_of(trace, "--cuda-graph-trace=node"), 1u);
  const Measures measures = measure(trace);
  EXPECT_EQ(measures.records.gpu_ns, 60);
  EXPECT_EQ(measures.replays, 1u);
}

TEST(Nsight, CountsAGraphOnceWhereItsKernelsAreThereToo) {
  const Trace trace = read_statements(
      kNames +
      "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start, end, deviceId, streamId, correlationId, globalPid);" +
      "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, correlationId, globalPid, shortName);" +
      "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (30,40,0,7,7," + text(global(1, 0)) + ",1),(50,55,0,7,7," +
      text(global(1, 0)) + ",1);" + "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (30,55,0,7,7," +
      text(global(1, 0)) + "),(60,80,0,7,8," + text(global(1, 0)) + ");");
  EXPECT_EQ(measure(trace).records.gpu_ns, 35);
  EXPECT_EQ(nsight_count_of(trace, "rows of whole graphs"), 1u);
}

TEST(Nsight, SetsTimesByTheWallClockWhereTheFileHasIt) {
  const Trace trace = read_statements(
      kNames + kRanges +
      "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs); CREATE TABLE ANALYSIS_DETAILS (startTime);"
      "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1779630014975716426); INSERT INTO ANALYSIS_DETAILS "
      "VALUES (1000);"
      "INSERT INTO NVTX_EVENTS VALUES (1005,1009,59,5,NULL,'r',NULL);");
  ASSERT_EQ(trace.size(), 1u);
  EXPECT_EQ(trace.start(0), 1'779'630'014'975'716'431);
  EXPECT_EQ(trace.duration(0), 4);
}

// Nothing of the schema is run: a view in a table's place is no table.
TEST(Nsight, ReadsTablesOnlyAndCountsWhatIsNoTime) {
  EXPECT_THROW(read_statements(kNames + "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start, 2 AS end;"),
               Error);
  EXPECT_THROW(read_statements("CREATE TABLE other (a);"), Error);
  const Trace trace =
      read_statements(kNames + kRanges +
                      "INSERT INTO NVTX_EVENTS VALUES "
                      "(9,5,59,5,NULL,'r',NULL),(-9223372036854775808,9223372036854775807,59,5,NULL,'r',NULL),"
                      "('soon','late',59,5,NULL,'r',NULL),(5,9,59,'t',NULL,x'00ff',NULL);");
  EXPECT_EQ(measure(trace).records.timeless, 2u);
}

TEST(Nsight, RefusesWhatIsNoSqlite) {
  for (const std::string& bytes : {std::string(), std::string("SQLite format 3"), std::string(kSqliteMark),
                                   std::string(kSqliteMark) + std::string(5'000, 'x')}) {
    EXPECT_THROW(read_nsight(SqliteFile::of(bytes, "none"), "none"), Error);
  }
  EXPECT_THROW(SqliteFile::at("/nowhere/at?all&mode=rwc"), Error);
}

TEST(NvtxName, TellsWhatFrameworksPutIntoTheText) {
  const NvtxName thunk = parse_nvtx_name("TSL:Thunk:#name=dot.42,hlo_op=dot.42#");
  EXPECT_EQ(thunk.kind, SpanKind::op);
  EXPECT_EQ(thunk.name, "dot");
  EXPECT_EQ(thunk.instance, "dot.42");
  const NvtxName module = parse_nvtx_name("TSL:XlaModule:#hlo_module=jit_step,program_id=3#");
  EXPECT_EQ(module.kind, SpanKind::run);
  EXPECT_EQ(module.name, "jit_step");
  for (const char* step : {"ProfilerStep#12", "Iteration 3", "step_0", "iter=7"})
    EXPECT_EQ(parse_nvtx_name(step).kind, SpanKind::step) << step;
  for (const char* range : {"step", "12", "stepping 3", "forward", "", "a, b", "layer 3"}) {
    EXPECT_EQ(parse_nvtx_name(range).kind, SpanKind::range) << range;
    EXPECT_EQ(parse_nvtx_name(range).name, range);
  }
  EXPECT_EQ(parse_nvtx_name("aten::mm, seq = 3, sizes = [[1, 2").shapes, "");
  EXPECT_EQ(parse_nvtx_name("aten::mm, op_id = 3").name, "aten::mm");
}

}  // namespace
}  // namespace paoding::trace
