// SPDX-License-Identifier: Apache-2.0
// Without a GPU these check the mapping to column-major against a product written out by hand; with one, the
// library's results too.
#include "gpu/libraries/cublaslt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "gpu/driver/write_memory.h"
#include "paoding/tensor.h"

namespace paoding::gpu {
namespace {

/// Whole numbers from -4 to 4, so that every dtype and precision multiplies and sums them without rounding.
std::vector<double> values(std::size_t count, unsigned seed) {
  std::vector<double> result(count);
  for (double& value : result) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<double>(seed >> 24) / 255.0;
    value = std::floor(value * 8.999) - 4.0;
  }
  return result;
}

struct Operands {
  std::vector<double> a, b, c;
};

/// Elements that `rows` rows `ld` apart and `batch` matrices `stride` apart reach.
std::size_t reach(std::int64_t rows, std::int64_t ld, std::int64_t batch, std::int64_t stride) {
  return static_cast<std::size_t>((batch - 1) * stride + rows * ld);
}

Operands operands_of(const MatmulSpec& spec) {
  return {values(reach(spec.transpose_a ? spec.k : spec.m, spec.lda, spec.batch, spec.stride_a), 1),
          values(reach(spec.transpose_b ? spec.n : spec.k, spec.ldb, spec.batch, spec.stride_b), 2),
          values(reach(spec.m, spec.ldc, spec.batch, spec.stride_c), 3)};
}

/// Computes the definition in MatmulSpec's comment element by element; elements between rows stay as they were in c.
std::vector<double> row_major_product(const MatmulSpec& spec, const Operands& in) {
  std::vector<double> c = in.c;
  auto at = [](const std::vector<double>& v, std::int64_t i) { return v[static_cast<std::size_t>(i)]; };
  for (std::int64_t g = 0; g < spec.batch; ++g) {
    for (std::int64_t i = 0; i < spec.m; ++i) {
      for (std::int64_t j = 0; j < spec.n; ++j) {
        double sum = 0;
        for (std::int64_t p = 0; p < spec.k; ++p) {
          double left = at(in.a, g * spec.stride_a + (spec.transpose_a ? p * spec.lda + i : i * spec.lda + p));
          double right = at(in.b, g * spec.stride_b + (spec.transpose_b ? j * spec.ldb + p : p * spec.ldb + j));
          sum += left * right;
        }
        std::size_t to = static_cast<std::size_t>(g * spec.stride_c + i * spec.ldc + j);
        c[to] = sum;
      }
    }
  }
  return c;
}

/// Computes the product of column-major operands as cuBLASLt's documentation defines it; checks that sizes fit
/// together.
std::vector<double> column_major_product(const MatmulSpec& spec, const Operands& in) {
  const ColumnMajorMatmul call = to_column_major(spec);
  const std::vector<double>&first = in.b, &second = in.a;
  std::vector<double> c = in.c;
  auto at = [](const std::vector<double>& v, const ColumnMajorMatrix& matrix, std::int64_t g, std::int64_t row,
               std::int64_t column) {
    EXPECT_LT(row, matrix.rows);
    EXPECT_LT(column, matrix.columns);
    EXPECT_LE(matrix.rows, matrix.ld);
    return v.at(static_cast<std::size_t>(g * matrix.stride + column * matrix.ld + row));
  };
  const std::int64_t inner = call.transpose_first ? call.first.rows : call.first.columns;
  EXPECT_EQ(inner, call.transpose_second ? call.second.columns : call.second.rows);
  EXPECT_EQ(call.result.rows, call.transpose_first ? call.first.columns : call.first.rows);
  EXPECT_EQ(call.result.columns, call.transpose_second ? call.second.rows : call.second.columns);
  for (std::int64_t g = 0; g < spec.batch; ++g) {
    for (std::int64_t i = 0; i < call.result.rows; ++i) {
      for (std::int64_t j = 0; j < call.result.columns; ++j) {
        double sum = 0;
        for (std::int64_t p = 0; p < inner; ++p) {
          sum += (call.transpose_first ? at(first, call.first, g, p, i) : at(first, call.first, g, i, p)) *
                 (call.transpose_second ? at(second, call.second, g, j, p) : at(second, call.second, g, p, j));
        }
        std::size_t to = static_cast<std::size_t>(g * call.result.stride + j * call.result.ld + i);
        c.at(to) = sum;
      }
    }
  }
  return c;
}

/// All transpositions of a batched product with room between rows and matrices, and a shared b.
std::vector<MatmulSpec> specs() {
  std::vector<MatmulSpec> all;
  for (int bits = 0; bits < 16; ++bits) {
    MatmulSpec spec;
    spec.m = 8;
    spec.n = 24;
    spec.k = 16;
    spec.transpose_a = (bits & 1) != 0;
    spec.transpose_b = (bits & 2) != 0;
    const bool is_batched = (bits & 4) != 0;
    const std::int64_t room = (bits & 8) != 0 ? 8 : 0;
    spec.lda = (spec.transpose_a ? spec.m : spec.k) + room;
    spec.ldb = (spec.transpose_b ? spec.k : spec.n) + room;
    spec.ldc = spec.n + room;
    spec.batch = is_batched ? 3 : 1;
    spec.stride_a = is_batched ? (spec.transpose_a ? spec.k : spec.m) * spec.lda + room : 0;
    spec.stride_b = 0;
    spec.stride_c = is_batched ? spec.m * spec.ldc + room : 0;
    all.push_back(spec);
  }
  return all;
}

ErrorKind kind_of_error(const MatmulSpec& spec) {
  try {
    to_column_major(spec);
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << "no error for " << to_string(spec);
  return ErrorKind::file;
}

TEST(CublasLt, EitherLoadsOrSaysWhyNot) {
  EXPECT_EQ(cublaslt() == nullptr, !cublaslt_problem().empty());
  if (cublaslt() != nullptr) {
    EXPECT_GE(cublaslt()->cublasLtGetVersion(), 120000u);
  }
}

TEST(MatmulSpec, ARowMajorProductIsTheColumnMajorOneOfTheSwappedOperands) {
  for (const MatmulSpec& spec : specs()) {
    Operands in = operands_of(spec);
    EXPECT_EQ(column_major_product(spec, in), row_major_product(spec, in)) << to_string(spec);
  }
}

TEST(MatmulSpec, ALeadingDimensionOfZeroMeansDenseRows) {
  MatmulSpec spec;
  spec.m = 2;
  spec.n = 3;
  spec.k = 5;
  ColumnMajorMatmul call = to_column_major(spec);
  EXPECT_EQ(call.first.ld, 3);
  EXPECT_EQ(call.second.ld, 5);
  EXPECT_EQ(call.result.ld, 3);
  spec.transpose_a = spec.transpose_b = true;
  call = to_column_major(spec);
  EXPECT_EQ(call.first.ld, 5);
  EXPECT_EQ(call.second.ld, 2);
}

TEST(MatmulSpec, RefusesWhatDoesNotGoTogether) {
  MatmulSpec good;
  good.m = good.n = good.k = 4;
  MatmulSpec spec = good;
  spec.k = 0;
  EXPECT_EQ(kind_of_error(spec), ErrorKind::shape);
  spec = good;
  spec.lda = 3;
  EXPECT_EQ(kind_of_error(spec), ErrorKind::argument);
  spec = good;
  spec.batch = 2;  // with stride_c 0
  EXPECT_EQ(kind_of_error(spec), ErrorKind::argument);
  spec = good;
  spec.a_dtype = spec.b_dtype = spec.c_dtype = DType::i32;
  EXPECT_EQ(kind_of_error(spec), ErrorKind::dtype);
  spec = good;
  spec.b_dtype = DType::f16;
  EXPECT_EQ(kind_of_error(spec), ErrorKind::dtype);
  spec = good;
  spec.c_dtype = DType::bf16;
  EXPECT_EQ(kind_of_error(spec), ErrorKind::dtype);
  spec = good;
  spec.precision = MatmulPrecision::f64;
  EXPECT_EQ(kind_of_error(spec), ErrorKind::dtype);
  spec = good;
  spec.a_dtype = spec.b_dtype = spec.c_dtype = DType::bf16;
  spec.precision = MatmulPrecision::tf32;
  EXPECT_EQ(kind_of_error(spec), ErrorKind::dtype);
  EXPECT_NO_THROW(to_column_major(good));
}

TEST(MatmulSpec, TextShowsEveryField) {
  MatmulSpec spec;
  spec.m = 11;
  spec.n = 12;
  spec.k = 13;
  spec.transpose_b = true;
  spec.precision = MatmulPrecision::tf32;
  std::string text = to_string(spec);
  for (const char* part : {"m 11 n 12 k 13", "b f32 transposed", "precision tf32", "align 16"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

// ---- on a GPU ----

std::vector<std::byte> stored(DType dtype, const std::vector<double>& from) {
  Tensor tensor = Tensor::from(dtype, Shape{static_cast<std::int64_t>(from.size())}, from);
  return {tensor.bytes(), tensor.bytes() + tensor.size_bytes()};
}

std::vector<double> gpu_product(const GpuDevice& device, const MatmulSpec& spec, const Operands& in) {
  const Driver& cuda = required_driver();
  const std::vector<std::byte> a = stored(spec.a_dtype, in.a), b = stored(spec.b_dtype, in.b),
                               c = stored(spec.c_dtype, in.c);
  DeviceMemory a_there(device, a.size()), b_there(device, b.size()), c_there(device, c.size());
  write_memory(a_there.address(), a.data(), a.size());
  write_memory(b_there.address(), b.data(), b.size());
  write_memory(c_there.address(), c.data(), c.size());
  Matmul matmul(device, spec, std::size_t{32} << 20);
  EXPECT_LE(matmul.workspace_bytes(), std::size_t{32} << 20);
  Matmul moved = std::move(matmul);
  DeviceMemory workspace(device, moved.workspace_bytes());
  Stream stream(device);
  moved.run(stream.get(), a_there.pointer(), b_there.pointer(), c_there.pointer(), workspace.pointer());
  stream.wait_idle();
  Tensor result(spec.c_dtype, Shape{static_cast<std::int64_t>(in.c.size())});
  PD_CUDA(cuda.cuMemcpyDtoH(result.bytes(), c_there.address(), c.size()));
  return result.to_doubles();
}

TEST(Matmul, GivesTheProductOnTheGpuForEveryDtype) {
  if (GpuDevice::count() == 0) GTEST_SKIP() << "NOT CHECKED: no GPU here: " << driver_problem();
  if (cublaslt() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << cublaslt_problem();
  struct Case {
    DType in, out;
    MatmulPrecision precision;
  };
  const Case cases[] = {
      {DType::f64, DType::f64, MatmulPrecision::f64},  {DType::f32, DType::f32, MatmulPrecision::f32},
      {DType::f32, DType::f32, MatmulPrecision::tf32}, {DType::f16, DType::f16, MatmulPrecision::f32},
      {DType::f16, DType::f32, MatmulPrecision::f32},  {DType::bf16, DType::f32, MatmulPrecision::f32}};
  for (const Case& one : cases) {
    for (MatmulSpec spec : specs()) {
      spec.a_dtype = spec.b_dtype = one.in;
      spec.c_dtype = one.out;
      spec.precision = one.precision;
      Operands in = operands_of(spec);
      // Sums of 16 products of whole numbers up to 16: exact in every dtype here (bf16 results would not be).
      EXPECT_EQ(gpu_product(GpuDevice::get(0), spec, in), row_major_product(spec, in)) << to_string(spec);
    }
  }
}

TEST(Matmul, KeepsItsWorkspaceLimit) {
  if (GpuDevice::count() == 0) GTEST_SKIP() << "NOT CHECKED: no GPU here: " << driver_problem();
  if (cublaslt() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << cublaslt_problem();
  MatmulSpec spec;
  spec.m = spec.n = 64;
  spec.k = 65536;  // a product that wants to split k
  EXPECT_EQ(Matmul(GpuDevice::get(0), spec, 0).workspace_bytes(), 0u);
}

}  // namespace
}  // namespace paoding::gpu
