// SPDX-License-Identifier: Apache-2.0
// Traces that others' profilers wrote (tests/recordings/others): what is read of them is what Python counts in them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "profile/recording.h"
#include "profile/report.h"
#include "tests/support/temporary_folder.h"
#include "trace/reader.h"

namespace paoding::trace {
namespace {

using namespace profile;

constexpr const char* kFolder = "tests/recordings/others/";

struct Sums {
  std::string file;
  std::int64_t kernels = 0, kernels_ns = 0, copies = 0, copies_ns = 0, sets = 0, sets_ns = 0, ops = 0;
  std::string text() const {
    return fmt::format("{} {} {} {} {} {} {} {}", file, kernels, kernels_ns, copies, copies_ns, sets, sets_ns, ops);
  }
};

std::vector<std::string> counted_by_python() {
  std::ifstream file(std::string(kFolder) + "sums.txt");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

Sums sums_of(const Trace& trace, const std::string& file) {
  Sums sums{.file = file};
  for (SpanId i = 0; i < trace.size(); ++i) {
    const SpanKind kind = trace.kind(i);
    sums.ops += kind == SpanKind::op && !trace.on_gpu(i);
    if (!trace.on_gpu(i)) continue;
    const auto add = [&](std::int64_t& count, std::int64_t& ns) { ++count, ns += trace.duration(i); };
    if (kind == SpanKind::kernel) add(sums.kernels, sums.kernels_ns);
    if (kind == SpanKind::memcpy) add(sums.copies, sums.copies_ns);
    if (kind == SpanKind::memset) add(sums.sets, sums.sets_ns);
  }
  return sums;
}

TEST(OthersTraces, HaveTheKernelsCopiesAndOpsThatPythonCounts) {
  const std::vector<std::string> lines = counted_by_python();
  ASSERT_GE(lines.size(), 7u);
  for (const std::string& line : lines) {
    const std::string file = line.substr(0, line.find(' '));
    EXPECT_EQ(sums_of(read_trace(kFolder + file), file).text(), line);
  }
}

TEST(OthersTraces, AreSomeOpsFor99PercentOfTheGpusTimeWherePyTorchRanOpByOp) {
  for (const char* file : {"simple_add_2023.json.gz", "mi250_2024.json.gz", "bert_h100_2025.json.gz"}) {
    const Records records = measure(read_trace(std::string(kFolder) + file)).records;
    EXPECT_GT(records.gpu_ns, 0) << file;
    EXPECT_LE(records.unattributed_ns, 0.01 * records.gpu_ns) << file;
  }
}

TEST(OthersTraces, HaveRowsAndBudgetsThatAddUp) {
  for (const std::string& line : counted_by_python()) {
    const std::string file = line.substr(0, line.find(' '));
    const Trace trace = read_trace(kFolder + file);
    const Measures m = measure(trace);
    EXPECT_EQ(m.wall, m.total + m.compile + m.unseen + m.yours) << file;
    EXPECT_EQ(m.total, m.computation + m.framework + m.recording) << file;
    for (const Budget& budget : m.budgets) {
      std::int64_t sum = 0;
      for (const BudgetPart& part : budget.parts) sum += part.ns;
      EXPECT_EQ(sum, trace.wall_ns()) << file << ", " << budget.of;
    }
    for (const Section& section : m.per_thread) {
      for (const Row& row : section.rows) {
        EXPECT_GE(row.ratio, 0) << row.name;
        EXPECT_LE(row.ratio, 1) << row.name;
      }
    }
  }
}

TEST(OthersTraces, AreTheSameWhenTheyWereSavedAsRecordings) {
  const TemporaryFolder folder;
  for (const char* file : {"mi250_2024.json.gz", "jax_2026.json.gz"}) {
    const Trace trace = read_trace(std::string(kFolder) + file);
    const std::string path = (folder / "saved.paoding").string();
    write_recording(trace, path);
    const Trace again = read_trace(path);
    EXPECT_EQ(sums_of(again, file).text(), sums_of(trace, file).text());
    EXPECT_EQ(report(again, {.format = ReportFormat::json}), report(trace, {.format = ReportFormat::json})) << file;
    EXPECT_EQ(again.processes().at(0).source, trace.processes().at(0).source);
  }
}

TEST(OthersTraces, OfXlaAreTimedByItsStepsAndNamedByItsOps) {
  const Trace trace = read_trace(std::string(kFolder) + "jax_2026.json.gz");
  const Measures m = measure(trace);
  EXPECT_EQ(m.steps.count, 5u);
  EXPECT_EQ(m.records.unattributed, 0u);
  EXPECT_EQ(trace.processes().at(0).source, Source::jax);
}

}  // namespace
}  // namespace paoding::trace
