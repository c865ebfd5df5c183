// SPDX-License-Identifier: Apache-2.0
// Products with extents or leading dimensions that a library counts in 32 bits: it declines them, another kernel gives
// the result, and a product that none can do is an error. Where it was not asked, oneDNN gave wrong sums or ended the
// process.
#include <gtest/gtest.h>

#include "cpu/this_cpu.h"
#include "ops/matmul/matmul_cpu.h"
#include "ops/matmul/matmul_packed.h"
#include "tests/support/allocation_count.h"
#include "tests/support/program_check.h"
#include "tests/support/sparse_memory.h"

namespace paoding::testing_program {
namespace {

KernelCall product_call(DType dtype, const Shape& a, const Shape& b, bool transpose_a = false,
                        bool transpose_b = false) {
  const std::int64_t m = a[transpose_a ? 1 : 0], n = b[transpose_b ? 0 : 1];
  return dense_call("matmul", {{dtype, a}, {dtype, b}}, {{dtype, Shape{m, n}}},
                    {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
}

TEST(MatmulLimits, OfOneDnnAreExtentsAndRowsThatItCountsIn32Bits) {
  constexpr std::int64_t kBillion = 1'000'000'000, kPower = std::int64_t{1} << 32;
  for (const DType dtype : {f32, bf16}) {
    const auto refusal = [&](const Shape& a, const Shape& b, bool ta = false, bool tb = false) {
      return onednn_matmul_refusal(product_call(dtype, a, b, ta, tb));
    };
    EXPECT_TRUE(has(refusal({8, kPower}, {kPower, 8}), "a has an extent of 4294967296"));
    EXPECT_TRUE(has(refusal({kPower * 3, 8}, {8, 8}), "a has an extent of 12884901888"));
    EXPECT_TRUE(has(refusal({8, 8}, {8, kPower}), "b has an extent of 4294967296"));
    EXPECT_TRUE(has(refusal({8, kBillion}, {kBillion, 8}), "a has rows or columns 1000000000 elements apart"));
    EXPECT_TRUE(has(refusal({8, kBillion}, {8, 8}, true), "a has rows or columns 1000000000 elements apart"));
    EXPECT_TRUE(has(refusal({8, 8}, {kBillion, 8}, false, true), "the result has rows or columns 1000000000"));
    if (dtype == bf16 && this_cpu().isa != VectorIsa::avx512) continue;  // it has none at all
    // Many short rows are not far apart.
    EXPECT_EQ(refusal({kBillion, 4}, {4, 4}), "");
    EXPECT_EQ(refusal({200'000, 5000}, {5000, 8}), "");
  }
}

TEST(MatmulLimits, OfPackedWeightsAreThose) {
  constexpr std::int64_t kPower = std::int64_t{1} << 32;
  for (const auto& [rows, inner, columns] :
       {std::array{kPower, std::int64_t{64}, std::int64_t{64}}, {64, kPower, 64}, {64, 64, kPower}}) {
    EXPECT_EQ(packed_order(f32, rows, inner, columns), PackedOrder());
    EXPECT_EQ(packed_order(bf16, rows, inner, columns), PackedOrder());
  }
  const std::string start = "paoding graph 1\n";
  const std::string pack = message_of([&] {
    Program program(*parse_graph(start + "x = input f32[4,5]\ny = pack_weights(x) {rows=1099511627776, elements=4096}\n"
                                         "fetch y\n"));
  });
  EXPECT_TRUE(has(pack, "pack_weights") && has(pack, "an extent of 1099511627776")) << pack;
  const std::string read = message_of([&] {
    Program program(*parse_graph(start + "a = input f32[3,4]\np = input f32[4096]\n"
                                         "y = matmul_packed(a, p) {rows=1099511627776, columns=5}\nfetch y\n"));
  });
  EXPECT_TRUE(has(read, "matmul_packed")) << read;
}

// Batches over which neither operand moves are turns of a loop, which is not written out.
KernelCall repeated_call(const Shape& batch, unsigned shared) {
  Shape shape = batch;
  shape = shape.with_inserted(batch.rank(), 9).with_inserted(batch.rank(), 9);
  KernelCall call = dense_call("matmul", {{f32, shape}, {f32, shape}}, {{f32, shape}});
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(batch.rank()); ++axis) {
    if (((shared >> axis) & 1u) == 0) continue;
    call.inputs[0].strides[axis] = call.inputs[1].strides[axis] = 0;
  }
  return call;
}

TEST(MatmulLimits, OfRepeatedBatchesAreTheirResults) {
  const auto allocations = [](std::int64_t batch) {
    const KernelCall call = repeated_call({batch}, 1);
    const KernelImplementation* const chosen = decide(call).kernel();
    EXPECT_EQ(chosen->name, std::string("onednn"));
    const AllocationCount allocated;
    const auto kernel = chosen->prepare(call, Device::cpu()).take();
    return allocated.count();
  };
  allocations(1 << 14);  // oneDNN keeps its primitives
  EXPECT_EQ(allocations(1 << 20), allocations(1 << 14));
}

TEST(MatmulLimits, OfRepeatedBatchesLeaveEveryProductInItsPlace) {
  const Shape batch{2, 3, 4, 3};
  for (unsigned shared = 0; shared < 16; ++shared) {
    const KernelCall call = repeated_call(batch, shared);
    const SparseMemory a(call.inputs[0].type), b(call.inputs[1].type), y(call.outputs[0].type);
    const std::int64_t elements = call.outputs[0].type.shape.elements();
    for (std::int64_t i = 0; i < elements; ++i) {
      a.set(i, static_cast<float>(i % 7 - 3));
      b.set(i, static_cast<float>(i % 5 - 2));
    }
    EXPECT_EQ(run_dense(call, {&a, &b, &y}), "onednn");
    for (std::int64_t i = 0; i < elements; ++i) {
      std::int64_t from = 0, rest = i / 81, matrix = 81;
      for (int axis = batch.rank(); axis-- > 0; matrix *= batch[axis]) {
        if (((shared >> axis) & 1u) == 0) from += rest % batch[axis] * matrix;
        rest /= batch[axis];
      }
      float sum = 0;
      for (std::int64_t k = 0; k < 9; ++k) {
        sum += a.get(from + i % 81 / 9 * 9 + k) * b.get(from + k * 9 + i % 9);
      }
      ASSERT_EQ(y.get(i), sum) << "shared " << shared << " at " << i;
    }
  }
}

// oneDNN gave zeros in the last rows of such a product. The first and the last element of a row are not zero.
TEST(MatmulLimits, OfALibraryAreNoneOfTheResult) {
  constexpr std::int64_t kRows = 16, kInner = 70'000'000;  // so many rows take more than 2^31 bytes
  const KernelCall call = product_call(bf16, {kRows, kInner}, {kInner, 1});
  const SparseMemory a(call.inputs[0].type), b(call.inputs[1].type), y(call.outputs[0].type);
  for (const std::int64_t i : {std::int64_t{0}, kRows - 1}) a.set(i * kInner, 2), a.set((i + 1) * kInner - 1, 3);
  b.set(0, 5), b.set(kInner - 1, 7);
  EXPECT_EQ(run_dense(call, {&a, &b, &y}), "vector");
  for (std::int64_t i = 0; i < kRows; ++i) EXPECT_EQ(y.get(i), i == 0 || i == kRows - 1 ? 31 : 0) << i;
}

}  // namespace
}  // namespace paoding::testing_program
