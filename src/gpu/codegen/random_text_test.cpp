// SPDX-License-Identifier: Apache-2.0
// Random numbers within groups, in the emulation, against float64: rows of whole blocks of four numbers, where a kernel
// works each block out once, and rows that begin within one, alone, beside sums of rows, and where rows are transposed.
#include "paoding/ops.h"
#include "tests/gpu/emulated_cases.h"

namespace paoding::testing_program {
namespace {

std::unique_ptr<Graph> graph_of(std::int64_t rows, std::int64_t columns, DType dtype, bool has_sums,
                                bool is_transposed) {
  auto graph = std::make_unique<Graph>();
  const Value x = graph->input("x", dtype, {rows, columns}), other = graph->input("other", dtype, {columns, rows});
  Value y = dropout(relu(x), 0.3);
  if (is_transposed) y = y + transpose(other, std::vector<std::int64_t>{1, 0});
  graph->fetch("y", y);
  if (has_sums) graph->fetch("normal", y - mean(y, std::vector<std::int64_t>{1}, true));
  return graph;
}

TEST(RandomText, DropoutIsThatOfFloat64) {
  EmulatedCases cases;
  for (const auto& [rows, columns] : {std::pair{6, 64}, {7, 2048}, {5, 50}, {9, 33}, {40, 12}}) {
    for (const DType dtype : {f32, bf16}) {
      for (int kind = 0; kind < 4; ++kind) {
        auto graph = graph_of(rows, columns, dtype, kind % 2 != 0, kind / 2 != 0);
        const Feeds feeds = make_feeds(*graph, 3);
        auto program = std::make_unique<EmulatedProgram>(*graph);
        cases.add(fmt::format("{} x {} {}, {}", rows, columns, to_string(dtype), kind), std::move(graph), feeds,
                  std::move(program));
      }
    }
  }
  cases.check();
}

TEST(RandomText, BlocksAreWorkedOutOnceWhereRowsAreOfWholeOnes) {
  const auto source = [](std::int64_t columns) {
    const EmulatedProgram program(*graph_of(4096, columns, bf16, true, false));
    std::string text;
    for (const gpu::TextLaunch* kernel : program.kernels()) text += kernel->source;
    return text;
  };
  EXPECT_NE(source(2048).find("& ~3"), std::string::npos);
  EXPECT_EQ(source(2050).find("& ~3"), std::string::npos);
}

}  // namespace
}  // namespace paoding::testing_program
