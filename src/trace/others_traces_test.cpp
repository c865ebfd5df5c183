// SPDX-License-Identifier: Apache-2.0
// Traces that others' profilers wrote (tests/recordings/others): they give sound reports.
#include <gtest/gtest.h>
#include <simdjson.h>

#include "profile/recording.h"
#include "profile/report.h"
#include "tests/support/temporary_folder.h"
#include "trace/reader.h"

namespace paoding::trace {
namespace {

using namespace profile;

constexpr const char* kFolder = "tests/recordings/others/";

// JSON that other decoders read too; what they find in it the suite BinaryTraces compares.
std::vector<std::string> json_files() {
  simdjson::dom::parser parser;
  std::vector<std::string> files;
  for (const auto& [file, sums] : simdjson::dom::object(parser.load(std::string(kFolder) + "sums.json"))) {
    if (file.ends_with(".json.gz") && sums["ops"].error() == simdjson::SUCCESS) files.emplace_back(file);
  }
  EXPECT_GE(files.size(), 7u);
  return files;
}

TEST(OthersTraces, AreSomeOpsFor99PercentOfTheGpusTimeWherePyTorchRanOpByOp) {
  for (const char* file : {"simple_add_2023.json.gz", "mi250_2024.json.gz", "bert_h100_2025.json.gz"}) {
    const Records records = measure(read_trace(std::string(kFolder) + file)).records;
    EXPECT_GT(records.gpu_ns, 0) << file;
    EXPECT_LE(records.unattributed_ns, 0.01 * records.gpu_ns) << file;
  }
}

TEST(OthersTraces, HaveRowsAndBudgetsThatAddUp) {
  for (const std::string& file : json_files()) {
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
    ASSERT_EQ(again.size(), trace.size()) << file;
    for (SpanId i = 0; i < trace.size(); ++i) {
      ASSERT_EQ(again.kind(i), trace.kind(i)) << file << " " << i;
      ASSERT_EQ(again.duration(i), trace.duration(i)) << file << " " << i;
    }
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
