// SPDX-License-Identifier: Apache-2.0
// Real traces of other profilers, cut down, against the sums of decoders in Python and of SQLite itself
// (tests/trace_sums.py --write).
#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>

#include "paoding/error.h"
#include "profile/report.h"
#include "profile/timeline_rows.h"
#include "trace/reader.h"
#include "trace/trace_file.h"

namespace paoding::trace {
namespace {

using namespace profile;

const std::string kRecordingFolder = "tests/recordings/others/";

struct BinarySums {
  std::uint64_t kernels = 0, launched = 0, copies = 0;
  std::int64_t kernel_ns = 0, copy_ns = 0;
  std::vector<std::pair<std::uint64_t, std::int64_t>> tracks;  // kernels and their time, sorted
  std::uint64_t slices = 0, fills = 0, ops = 0;
  std::int64_t slice_ns = 0, fill_ns = 0;
};

BinarySums sums_of(const Trace& trace) {
  BinarySums sums;
  std::map<TrackId, std::pair<std::uint64_t, std::int64_t>> tracks;
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.kind(i) != SpanKind::instant) {
      sums.slices += 1;
      sums.slice_ns += trace.duration(i);
    }
    if (!trace.on_gpu(i)) {
      sums.ops += trace.kind(i) == SpanKind::op ? 1 : 0;
      continue;
    }
    if (trace.kind(i) == SpanKind::memset) {
      sums.fills += 1;
      sums.fill_ns += trace.duration(i);
    }
    if (trace.kind(i) == SpanKind::kernel) {
      sums.kernels += 1;
      sums.kernel_ns += trace.duration(i);
      sums.launched += trace.cause(i) != kNone ? 1 : 0;
      auto& [count, ns] = tracks[trace.track_id(i)];
      count += 1;
      ns += trace.duration(i);
    } else if (trace.kind(i) == SpanKind::memcpy) {
      sums.copies += 1;
      sums.copy_ns += trace.duration(i);
    }
  }
  for (const auto& [track, sum] : tracks) sums.tracks.push_back(sum);
  std::ranges::sort(sums.tracks);
  return sums;
}

TEST(BinaryTraces, AddUpToWhatOtherDecodersFindToTheNanosecond) {
  simdjson::dom::parser parser;
  const simdjson::dom::object expected = parser.load(kRecordingFolder + "sums.json");
  ASSERT_GE(expected.size(), 17u);
  for (const auto& [file, sums] : expected) {
    SCOPED_TRACE(std::string(file));
    const Trace trace = read_trace(kRecordingFolder + std::string(file));
    const BinarySums own = sums_of(trace);
    EXPECT_EQ(own.kernels, std::uint64_t(sums["kernels"]));
    EXPECT_EQ(own.kernel_ns, std::int64_t(sums["kernel_ns"]));
    EXPECT_EQ(own.launched, std::uint64_t(sums["launched"]));
    EXPECT_EQ(own.copies, std::uint64_t(sums["copies"]));
    EXPECT_EQ(own.copy_ns, std::int64_t(sums["copy_ns"]));
    std::vector<std::pair<std::uint64_t, std::int64_t>> tracks;
    for (const simdjson::dom::element track : simdjson::dom::array(sums["tracks"])) {
      tracks.emplace_back(std::uint64_t(track.at(0)), std::int64_t(track.at(1)));
    }
    EXPECT_EQ(own.tracks, tracks);
    if (std::uint64_t slices = 0; sums["slices"].get(slices) == simdjson::SUCCESS) {
      EXPECT_EQ(own.slices, slices);
      EXPECT_EQ(own.slice_ns, std::int64_t(sums["slice_ns"]));
    }
    if (std::uint64_t ops = 0; sums["ops"].get(ops) == simdjson::SUCCESS) {
      EXPECT_EQ(own.ops, ops);
      EXPECT_EQ(own.fills, std::uint64_t(sums["fills"]));
      EXPECT_EQ(own.fill_ns, std::int64_t(sums["fill_ns"]));
    }
    const Measures measures = measure(trace);
    EXPECT_EQ(measures.records.gpu_ns, static_cast<double>(own.kernel_ns));
    EXPECT_GE(measures.framework, 0);
  }
}

std::string all_reports(const Trace& trace) {
  std::string all;
  for (const ReportFormat format : {ReportFormat::text, ReportFormat::json, ReportFormat::csv}) {
    for (const Nesting nesting : {Nesting::op, Nesting::scope}) {
      all += report(trace, {.detail = Detail::instances, .nesting = nesting, .kernels = true, .format = format});
    }
  }
  return all;
}

TEST(BinaryTraces, ShowNothingOfTheEnvironmentThatTheyHold) {
  for (const char* file : {"nsight_one_kernel.sqlite.gz", "nsight_two_processes.sqlite.gz", "rocprofv3.json.gz",
                           "rocprofv3_mi350x.json.gz"}) {
    const Trace trace = read_trace(kRecordingFolder + file);
    EXPECT_EQ(all_reports(trace).find("do-not-show-me"), std::string::npos) << file;
    std::string timeline;
    write_chrome(trace, [&](std::string_view piece) { timeline += piece; });
    write_perfetto(trace, [&](std::string_view piece) { timeline += piece; });
    EXPECT_EQ(timeline.find("do-not-show-me"), std::string::npos) << file;
  }
}

TEST(BinaryTraces, OfJaxNameTheUsersOpsWithScopesShapesAndLines) {
  const Trace trace = read_trace(kRecordingFolder + "jax_h200.xplane.pb.gz");
  EXPECT_EQ(trace.processes().at(0).source, Source::jax);
  EXPECT_EQ(trace.processes().at(0).pid, 447);
  std::map<std::string, std::string> shapes;  // of instances
  for (const ArgumentColumn& column : trace.columns()) {
    if (trace.text(column.name) != "shapes") continue;
    for (std::size_t i = 0; i < column.of.size(); ++i) {
      shapes[std::string(trace.text(trace.site(column.of[i]).instance))] = trace.text(column.text(i));
    }
  }
  // As the module's text has it.
  EXPECT_EQ(shapes["gemm_fusion_dot_general.72"], "f32[8,256,512], f32[8,256,512] -> f32[8,256,256]");
  bool has_scope = false;
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.kind(i) != SpanKind::kernel || trace.text(trace.site(i).instance) != "loop_add_fusion.3") continue;
    has_scope = true;
    EXPECT_TRUE(trace.text(trace.site(i).scope).starts_with("jit(<lambda>)")) << trace.text(trace.site(i).scope);
  }
  EXPECT_TRUE(has_scope);
  const Measures measures = measure(trace);
  EXPECT_EQ(measures.steps.count, 5u);
}

// Hundreds of kernels have the number of one launch.
TEST(BinaryTraces, OfGraphLaunchesJoinEveryKernelWithItsLaunch) {
  const Trace trace = read_trace(kRecordingFolder + "jax_h200.xplane.pb.gz");
  std::map<SpanId, int> kernels;
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.kind(i) == SpanKind::kernel) kernels[trace.cause(i)] += 1;
  }
  int most = 0;
  for (const auto& [launch, count] : kernels) {
    ASSERT_NE(launch, kNone);
    EXPECT_LE(trace.start(launch), trace.end(launch));
    if (count > most && trace.name(launch) == "cuGraphLaunch") most = count;
  }
  EXPECT_GT(most, 100);
}

TEST(BinaryTraces, OfTwoProcessesDoNotMixLaunchesOfOneNumber) {
  const Trace trace = read_trace(kRecordingFolder + "nsight_two_processes.sqlite.gz");
  ASSERT_GE(trace.processes().size(), 2u);
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (!trace.on_gpu(i) || trace.cause(i) == kNone) continue;
    EXPECT_EQ(trace.track(i).process, trace.track(trace.cause(i)).process);
    EXPECT_LE(trace.start(trace.cause(i)), trace.start(i));
  }
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(BinaryTraces, AreRecognisedByTheirContentAndNotByTheirNames) {
  const std::pair<const char*, Source> files[] = {{"jax_h200.xplane.pb.gz", Source::jax},
                                                  {"nsight_old_columns.sqlite.gz", Source::nsight_systems},
                                                  {"nested_tracks.perfetto-trace.gz", Source::perfetto},
                                                  {"rocprofv3.json.gz", Source::rocprof},
                                                  {"rocprofv3_mi350x.json.gz", Source::rocprof},
                                                  {"rocprof_old.json.gz", Source::rocprof}};
  for (const auto& [file, source] : files) {
    const Trace trace = read_trace_text(bytes_of(kRecordingFolder + file), "report.txt");
    bool is_of_source = false;
    for (const Process& process : trace.processes()) is_of_source |= process.source == source;
    EXPECT_TRUE(is_of_source) << file;
  }
}

// A trace that is cut off anywhere is an error, or says that something is missing; no kernel is counted twice.
TEST(BinaryTraces, ThatAreCutOffSayWhatIsMissing) {
  for (const char* file : {"rocm_jax_gemm.xplane.pb.gz", "nsight_one_kernel.sqlite.gz",
                           "nested_tracks.perfetto-trace.gz", "rocprofv3.json.gz"}) {
    TraceFile whole_file(kRecordingFolder + std::string(file));
    const std::string whole = whole_file.rest();
    const BinarySums all = sums_of(read_trace_text(whole, "whole"));
    for (const double part : {0.001, 0.03, 0.3, 0.5, 0.77, 0.95, 0.9999}) {
      const auto size = static_cast<std::size_t>(static_cast<double>(whole.size()) * part);
      SCOPED_TRACE(std::string(file) + " " + std::to_string(size));
      try {
        const Trace trace = read_trace_text(std::string_view(whole).substr(0, size), "cut");
        const BinarySums own = sums_of(trace);
        EXPECT_LE(own.kernels, all.kernels);
        EXPECT_LE(own.kernel_ns, all.kernel_ns);
        // Between two packets a trace of Perfetto may end.
        const bool is_said = !trace.notes().empty() ||
                             !read_trace_text(std::string_view(whole).substr(0, size + 1), "cut").notes().empty();
        EXPECT_TRUE(is_said);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::file);
      }
    }
  }
}

}  // namespace
}  // namespace paoding::trace
