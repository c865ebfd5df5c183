// SPDX-License-Identifier: Apache-2.0
// Matrix products by cuBLASLt, loaded at run time. Everything but the launch is decided when a Matmul is made,
// so that run() is one library call and can be captured.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "gpu/driver/driver.h"
#include "gpu/driver/library.h"
#include "paoding/types.h"

namespace paoding::gpu {

#define PD_CUBLASLT_FUNCTIONS(X)          \
  X(cublasLtGetVersion)                   \
  X(cublasLtGetStatusName)                \
  X(cublasLtGetStatusString)              \
  X(cublasLtCreate)                       \
  X(cublasLtDestroy)                      \
  X(cublasLtMatmulDescCreate)             \
  X(cublasLtMatmulDescDestroy)            \
  X(cublasLtMatmulDescSetAttribute)       \
  X(cublasLtMatrixLayoutCreate)           \
  X(cublasLtMatrixLayoutDestroy)          \
  X(cublasLtMatrixLayoutSetAttribute)     \
  X(cublasLtMatmulPreferenceCreate)       \
  X(cublasLtMatmulPreferenceDestroy)      \
  X(cublasLtMatmulPreferenceSetAttribute) \
  X(cublasLtMatmulAlgoGetHeuristic)       \
  X(cublasLtMatmul)

#define PD_CUBLASLT_MEMBER(name) decltype(&::name) name = nullptr;
struct CublasLt {
  PD_CUBLASLT_FUNCTIONS(PD_CUBLASLT_MEMBER)
};
#undef PD_CUBLASLT_MEMBER

/// cuBLASLt's functions; nullptr when the library is missing. Loaded once, from any thread.
const CublasLt* cublaslt();
/// Why cublaslt() is nullptr, in words; empty when it is not.
const std::string& cublaslt_problem();
/// The library search behind cublaslt(), for `doctor`.
const Library& cublaslt_library();

/// Arithmetic of a product. f16 and bf16 are multiplied exactly and summed in f32.
enum class MatmulPrecision : std::uint8_t {
  f32,   // f32 products and sums
  tf32,  // f32 storage, products of values rounded to 10 mantissa bits, f32 sums
  f64,   // f64 throughout
};

/// An operation on a product before it is stored: a bias [n], which all rows share, is added; relu replaces negative
/// results by 0.
enum class MatmulEpilogue : std::uint8_t { none, bias, bias_relu };

/// c = op(a) op(b) for `batch` row-major matrices.
/// op(a): [m, k], op(b): [k, n], c: [m, n]. a is stored as [k, m] when transposed, b as [n, k].
struct MatmulSpec {
  DType a_dtype = DType::f32;
  DType b_dtype = DType::f32;  // the same as a_dtype
  DType c_dtype = DType::f32;  // the same, or f32 for f16 and bf16
  MatmulPrecision precision = MatmulPrecision::f32;
  MatmulEpilogue epilogue = MatmulEpilogue::none;
  bool has_added = false;  // another matrix, which lies as c does, is added before the epilogue
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t batch = 1;
  std::int64_t lda = 0;  // elements from one stored row to the next; 0: rows lie side by side
  std::int64_t ldb = 0;
  std::int64_t ldc = 0;
  std::int64_t stride_a = 0;  // elements from one matrix to the next; 0: all products read the same one
  std::int64_t stride_b = 0;
  std::int64_t stride_c = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  int align_a = 16;  // bytes that every address passed to run() is a multiple of
  int align_b = 16;
  int align_c = 16;
};

/// Every field, for errors and `PAODING_EXPLAIN`.
std::string to_string(const MatmulSpec& spec);

/// A matrix as cuBLASLt sees it: column-major, `ld` elements from one column to the next.
struct ColumnMajorMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t ld = 0;
  std::int64_t stride = 0;
};

/// A row-major product as a column-major one: c^T = op(b)^T op(a)^T, and a row-major matrix read by columns is
/// its own transpose. So b comes first, a second, and nothing moves.
struct ColumnMajorMatmul {
  ColumnMajorMatrix first;   // b's memory
  ColumnMajorMatrix second;  // a's memory
  ColumnMajorMatrix result;  // c's memory
  bool transpose_first = false;
  bool transpose_second = false;
};
/// Error (shape, dtype or argument) when the spec is empty, mixes dtypes that do not go together, or has a
/// leading dimension or stride that makes rows or results overlap.
ColumnMajorMatmul to_column_major(const MatmulSpec& spec);

/// Algorithms that the library is asked for where there may be another than its first.
inline constexpr int kMostAlgorithms = 16;

/// A prepared product on one GPU. Made when a program is planned; run() decides and allocates nothing.
class Matmul {
 public:
  Matmul() = default;
  /// Error (device) without cuBLASLt; (unsupported), with the spec, when it has no algorithm within the limit.
  /// `algorithm` 0 is the one that the library names when it is asked for one, 1 the first of those that it names when
  /// it is asked for many.
  Matmul(const GpuDevice& device, const MatmulSpec& spec, std::size_t workspace_limit_bytes, int algorithm = 0);

  /// Bytes that run() needs at a 256-byte aligned `workspace`; at most the limit given.
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  const MatmulSpec& spec() const { return spec_; }

  /// Starts the product on `stream`. `bias`, of c's dtype, where the epilogue adds one, `added` where the spec does.
  /// From one thread at a time.
  void run(CUstream stream, const void* a, const void* b, void* c, void* workspace, const void* bias = nullptr,
           const void* added = nullptr) const;

 private:
  struct Destroy {
    void operator()(cublasLtMatmulDescOpaque_t* product) const;
    void operator()(cublasLtMatrixLayoutOpaque_t* layout) const;
  };
  using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy>;

  static Layout make_layout(DType dtype, const ColumnMajorMatrix& matrix, std::int64_t batch);
  void choose_algorithm(std::size_t workspace_limit_bytes, int algorithm);

  MatmulSpec spec_;
  cublasLtHandle_t handle_ = nullptr;  // the device's, not owned
  std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy> product_;
  Layout first_, second_, result_;
  cublasLtMatmulAlgo_t algorithm_{};
  std::size_t workspace_bytes_ = 0;
};

}  // namespace paoding::gpu
