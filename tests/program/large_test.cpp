// SPDX-License-Identifier: Apache-2.0
// Every family of CPU kernels over more than 2^31 elements, at indices beyond. Slow, so only where PAODING_LARGE_TESTS
// is set (make test-large); each takes less than 6 GB of memory and is skipped where that is not free.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/memory.h"
#include "tests/support/program_check.h"
#include "tests/support/sparse_memory.h"

namespace paoding::testing_program {
namespace {

constexpr std::int64_t kBillions = std::int64_t{1} << 31;

std::int64_t free_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string key; file >> key;) {
    std::int64_t kilobytes = 0;
    if (key == "MemAvailable:" && file >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

class LargeTensors : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("PAODING_LARGE_TESTS") == nullptr) GTEST_SKIP() << "NOT CHECKED: PAODING_LARGE_TESTS is not set";
    if (free_bytes() < std::int64_t{6} << 30) GTEST_SKIP() << "NOT CHECKED: 6 GB are needed, but " << memory_left();
  }
};

TEST_F(LargeTensors, AreWrittenAndReducedByGroups) {
  constexpr std::int64_t kRows = 65'537, kColumns = 32'800;  // 2^31 + 2 million
  static_assert(kRows * kColumns > kBillions);
  Graph g;
  const Shape shape{kRows, kColumns};
  const Value is_last_row = cast(equal(iota(g, shape, 0, i64), full(g, Shape{}, kRows - 1, i64)), i64);
  const Value is_last_column = cast(equal(iota(g, shape, 1, i64), full(g, Shape{}, kColumns - 1, i64)), i64);
  const Value two = g.input("two", i64, {});  // values made of constants alone are not fused
  const Value y = is_last_row * two + is_last_column;
  g.fetch("y", cast(y, u8));
  g.fetch("rows", sum(y, Ints{1}));
  g.fetch("columns", sum(y, Ints{0}));
  Tensors got;  // one at a time: together they would keep y
  for (const char* name : {"y", "rows", "columns"}) {
    CompileOptions options;
    options.fetches = {name};
    got.merge(Program(g, options).run({{"two", Tensor::from(i64, {}, Dense{2})}}));
  }
  const auto* bytes = got.at("y").data<std::uint8_t>();
  for (const std::int64_t i : {std::int64_t{0}, kColumns - 1, kBillions - 1, kBillions, (kRows - 1) * kColumns - 1,
                               (kRows - 1) * kColumns, kRows * kColumns - 1}) {
    EXPECT_EQ(bytes[i], (i / kColumns == kRows - 1 ? 2 : 0) + (i % kColumns == kColumns - 1 ? 1 : 0)) << i;
  }
  const auto *rows = got.at("rows").data<std::int64_t>(), *columns = got.at("columns").data<std::int64_t>();
  EXPECT_EQ(rows[0], 1);
  EXPECT_EQ(rows[kRows - 2], 1);
  EXPECT_EQ(rows[kRows - 1], 2 * kColumns + 1);
  EXPECT_EQ(columns[0], 2);
  EXPECT_EQ(columns[kColumns - 1], kRows + 2);
}

TEST_F(LargeTensors, AreMultipliedByLibrariesAndLoops) {
  struct Case {
    DType dtype;
    std::int64_t m, k, n;
    const char* kernel;
  };
  const Case cases[] = {{bf16, 64, 40'000, 60'000, "onednn"}, {bf16, 600'000'000, 4, 2, "onednn"},
                        {f32, 64, 40'000, 60'000, "onednn"},  {f32, 1, kBillions + 40, 1, "vector"},
                        {f32, 8, 600'000'000, 2, "loops"},    {bf16, 1, std::int64_t{1} << 32, 1, "loops"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(to_string(c.dtype)) + " " + std::to_string(c.m) + " x " + std::to_string(c.k) + " x " +
                 std::to_string(c.n));
    const KernelCall call =
        dense_call("matmul", {{c.dtype, Shape{c.m, c.k}}, {c.dtype, Shape{c.k, c.n}}}, {{c.dtype, Shape{c.m, c.n}}});
    const SparseMemory a(call.inputs[0].type), b(call.inputs[1].type), y(call.outputs[0].type);
    for (const std::int64_t i : {std::int64_t{0}, c.m - 1}) a.set(i * c.k, 2), a.set(i * c.k + c.k - 1, 3);
    for (const std::int64_t j : {std::int64_t{0}, c.n - 1}) b.set(j, 5), b.set((c.k - 1) * c.n + j, 7);
    EXPECT_EQ(run_dense(call, {&a, &b, &y}), c.kernel);
    for (const std::int64_t i : {std::int64_t{0}, c.m / 2, c.m - 1}) {
      for (const std::int64_t j : {std::int64_t{0}, c.n / 2, c.n - 1}) {
        const bool is_zero = (i != 0 && i != c.m - 1) || (j != 0 && j != c.n - 1);
        EXPECT_EQ(y.get(i * c.n + j), is_zero ? 0 : 31) << i << ", " << j;
      }
    }
  }
}

TEST_F(LargeTensors, AreConvolvedAndPooled) {
  constexpr std::int64_t kImages = 40'000, kSide = 60, kChannels = 16;  // 2.3 billion
  KernelCall conv = dense_call("conv2d", {{bf16, Shape{kImages, kChannels, kSide, kSide}}, {bf16, Shape{2, 16, 3, 3}}},
                               {{bf16, Shape{kImages, 2, 3, 3}}}, {{"stride", Ints{20, 20}}});
  conv.inputs[0] = channels_last(conv.inputs[0].type), conv.outputs[0] = channels_last(conv.outputs[0].type);
  const SparseMemory x(conv.inputs[0].type), w(conv.inputs[1].type), y(conv.outputs[0].type);
  const std::int64_t last = (kImages - 1) * kChannels * kSide * kSide;
  x.set(0, 2), x.set(last, 3);           // channel 0 of the first pixel
  w.set(0, 5), w.set(kChannels * 9, 7);  // the first tap of both results
  EXPECT_EQ(run_dense(conv, {&x, &w, &y}), "onednn");
  EXPECT_EQ(y.get(0), 10);
  EXPECT_EQ(y.get(1), 14);
  EXPECT_EQ(y.get(2), 0);
  EXPECT_EQ(y.get((kImages - 1) * 18), 15);
  EXPECT_EQ(y.get((kImages - 1) * 18 + 1), 21);

  // The kernels' gradient sums over all images; that of an image is as large as they are.
  KernelCall grad = dense_call("conv2d_grad_weight",
                               {{bf16, Shape{kImages, kChannels, kSide, kSide}}, {bf16, Shape{kImages, 2, 3, 3}}},
                               {{bf16, Shape{2, 16, 3, 3}}}, {{"kernel", Ints{3, 3}}, {"stride", Ints{20, 20}}});
  for (Layout* layout : {&grad.inputs[0], &grad.inputs[1]}) *layout = channels_last(layout->type);
  const SparseMemory dy(grad.inputs[1].type), dw(grad.outputs[0].type);
  dy.set(0, 4), dy.set((kImages - 1) * 18 + 1, 6);
  ASSERT_NE(run_dense(grad, {&x, &dy, &dw}), "");
  EXPECT_EQ(dw.get(0), 8);
  EXPECT_EQ(dw.get(kChannels * 9), 18);
  EXPECT_EQ(dw.get(1), 0);

  const KernelCall pool = dense_call("avg_pool2d", {{bf16, Shape{kImages, kChannels, kSide, kSide}}},
                                     {{bf16, Shape{kImages, kChannels, 1, 1}}}, {{"kernel", Ints{kSide, kSide}}});
  const SparseMemory means(pool.outputs[0].type);
  x.set(last + 15 * kSide * kSide, 3600);
  EXPECT_NE(run_dense(pool, {&x, &means}), "");
  EXPECT_EQ(means.get(kImages * kChannels - 1), 1);
  EXPECT_EQ(means.get(kImages * kChannels - 2), 0);
}

TEST_F(LargeTensors, AreGatheredFromAndScatteredTo) {
  constexpr std::int64_t kRows = kBillions / 64 + 10;
  const KernelCall rows = dense_call("gather", {{u8, Shape{kRows, 64}}, {i64, Shape{3}}}, {{u8, Shape{3, 64}}});
  const SparseMemory table(rows.inputs[0].type), ids(rows.inputs[1].type), picked(rows.outputs[0].type);
  table.set(kRows * 64 - 1, 9), table.set(64 * (kRows - 10), 8);
  ids.at<std::int64_t>(0) = kRows - 1, ids.at<std::int64_t>(1) = kRows - 10;
  ASSERT_NE(run_dense(rows, {&table, &ids, &picked}), "");
  EXPECT_EQ(picked.get(63), 9);
  EXPECT_EQ(picked.get(64), 8);
  EXPECT_EQ(picked.get(128), 0);

  const KernelCall elements =
      dense_call("gather_elements", {{u8, Shape{kBillions + 5}}, {i64, Shape{2}}}, {{u8, Shape{2}}});
  const SparseMemory line(elements.inputs[0].type), places(elements.inputs[1].type), found(elements.outputs[0].type);
  line.set(kBillions + 4, 7);
  places.at<std::int64_t>(0) = kBillions + 4;
  ASSERT_NE(run_dense(elements, {&line, &places, &found}), "");
  EXPECT_EQ(found.get(0), 7);
  EXPECT_EQ(found.get(1), 0);

  const KernelCall added =
      dense_call("scatter_add", {{i64, Shape{3}}, {u8, Shape{3, 64}}}, {{u8, Shape{kRows, 64}}}, {{"extent", kRows}});
  const SparseMemory updates(added.inputs[1].type), sums(added.outputs[0].type);
  updates.set(63, 3), updates.set(64, 4), updates.set(128, 5);
  ids.at<std::int64_t>(2) = kRows - 1;
  ASSERT_NE(run_dense(added, {&ids, &updates, &sums}), "");
  EXPECT_EQ(sums.get(kRows * 64 - 1), 3);
  EXPECT_EQ(sums.get(64 * (kRows - 1)), 5);
  EXPECT_EQ(sums.get(64 * (kRows - 10)), 4);
}

TEST_F(LargeTensors, AreScatteredToByElements) {
  const std::int64_t extent = kBillions + 5;
  const KernelCall added = dense_call("scatter_add_elements", {{i64, Shape{3}}, {u8, Shape{3}}}, {{u8, Shape{extent}}},
                                      {{"extent", extent}});
  const SparseMemory ids(added.inputs[0].type), updates(added.inputs[1].type), sums(added.outputs[0].type);
  ids.at<std::int64_t>(0) = extent - 1, ids.at<std::int64_t>(1) = kBillions, ids.at<std::int64_t>(2) = extent - 1;
  for (const std::int64_t i : {0, 1, 2}) updates.set(i, double(i + 3));
  ASSERT_NE(run_dense(added, {&ids, &updates, &sums}), "");
  EXPECT_EQ(sums.get(extent - 1), 8);
  EXPECT_EQ(sums.get(kBillions), 4);
  EXPECT_EQ(sums.get(0), 0);
}

TEST_F(LargeTensors, AreSummedUpAndSorted) {
  constexpr std::int64_t kLength = kBillions / 2 + 40;
  const KernelCall running =
      dense_call("cumsum", {{u8, Shape{2, kLength}}}, {{u8, Shape{2, kLength}}}, {{"axis", std::int64_t{1}}});
  const SparseMemory a(running.inputs[0].type), sums(running.outputs[0].type);
  a.set(kLength, 2), a.set(2 * kLength - 1, 3);
  ASSERT_NE(run_dense(running, {&a, &sums}), "");
  EXPECT_EQ(sums.get(kLength - 1), 0);
  EXPECT_EQ(sums.get(2 * kLength - 2), 2);
  EXPECT_EQ(sums.get(2 * kLength - 1), 5);

  constexpr std::int64_t kRows = 40'000'000, kColumns = 60;
  const KernelCall best =
      dense_call("topk", {{u8, Shape{kRows, kColumns}}}, {{u8, Shape{kRows, 1}}, {i64, Shape{kRows, 1}}},
                 {{"k", std::int64_t{1}}, {"axis", std::int64_t{1}}});
  const SparseMemory rows(best.inputs[0].type), values(best.outputs[0].type), places(best.outputs[1].type);
  rows.set(kRows * kColumns - 2, 6), rows.set(kBillions, 4);
  ASSERT_NE(run_dense(best, {&rows, &values, &places}), "");
  EXPECT_EQ(values.get(kRows - 1), 6);
  EXPECT_EQ(places.at<std::int64_t>(kRows - 1), kColumns - 2);
  EXPECT_EQ(values.get(kBillions / kColumns), 4);
  EXPECT_EQ(places.at<std::int64_t>(kBillions / kColumns), kBillions % kColumns);
}

}  // namespace
}  // namespace paoding::testing_program
