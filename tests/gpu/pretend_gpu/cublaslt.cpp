// SPDX-License-Identifier: Apache-2.0
// The functions of cuBLASLt that paoding uses, over a Machine: a product is a piece of work of its stream, computed in
// float64 from the operands' values by then. In the driver's own library, which libcublasLt.so.13 is a link to.
#include <cublasLt.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "tests/gpu/pretend_gpu/machine.h"

#pragma GCC visibility push(default)

namespace {

using paoding::pretend::Machine;

struct Product {
  cublasOperation_t first = CUBLAS_OP_N, second = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;  // of the result's type
};

struct Matrix {
  cudaDataType_t type = CUDA_R_32F;
  std::int64_t ld = 0, stride = 0, rows = 0, columns = 0;
  std::int32_t batch = 1;

  std::size_t place(std::int64_t matrix, std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>(matrix * stride + column * ld + row);
  }
};

template <class T>
T element(const void* at, std::size_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(at) + i * sizeof(T), sizeof(T));
  return value;
}

double get(cudaDataType_t type, const void* at, std::size_t i) {
  switch (type) {
    case CUDA_R_64F: return element<double>(at, i);
    case CUDA_R_16F: return paoding::f16_to_float(element<std::uint16_t>(at, i));
    case CUDA_R_16BF: return paoding::bf16_to_float(element<std::uint16_t>(at, i));
    default: return element<float>(at, i);
  }
}

template <class T>
void store(void* at, std::size_t i, T value) {
  std::memcpy(static_cast<char*>(at) + i * sizeof(T), &value, sizeof(T));
}

void put(cudaDataType_t type, void* at, std::size_t i, double value) {
  switch (type) {
    case CUDA_R_64F: return store(at, i, value);
    case CUDA_R_16F: return store(at, i, paoding::float_to_f16(static_cast<float>(value)));
    case CUDA_R_16BF: return store(at, i, paoding::float_to_bf16(static_cast<float>(value)));
    default: return store(at, i, static_cast<float>(value));
  }
}

// All matrices stand by columns, as the library has them.
struct ProductCall {
  Product product;
  Matrix a, b, d;
  const void *from_a, *from_b, *added;  // added: where a result lies, or nullptr
  void* to;

  void operator()() const {
    const bool a_transposed = product.first != CUBLAS_OP_N, b_transposed = product.second != CUBLAS_OP_N;
    const std::int64_t terms = a_transposed ? a.rows : a.columns;
    for (std::int64_t n = 0; n < d.batch; ++n) {
      for (std::int64_t j = 0; j < d.columns; ++j) {
        for (std::int64_t i = 0; i < d.rows; ++i) {
          double sum = 0;
          for (std::int64_t k = 0; k < terms; ++k) {
            sum += get(a.type, from_a, a_transposed ? a.place(n, k, i) : a.place(n, i, k)) *
                   get(b.type, from_b, b_transposed ? b.place(n, j, k) : b.place(n, k, j));
          }
          if (added != nullptr) sum += get(d.type, added, d.place(n, i, j));
          if (product.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
            sum += get(d.type, product.bias, static_cast<std::size_t>(i));
          if (product.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS) sum = std::max(sum, 0.0);
          put(d.type, to, d.place(n, i, j), sum);
        }
      }
    }
    Machine::get().launched("cublasLt", 0);
  }
};

template <class T, class Opaque>
T& as(Opaque* opaque) {
  return *reinterpret_cast<T*>(opaque);
}
template <class T, class Opaque>
cublasStatus_t drop(Opaque* opaque) {
  delete reinterpret_cast<T*>(opaque);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

size_t cublasLtGetVersion() { return 130100; }
const char* cublasLtGetStatusName(cublasStatus_t) { return "CUBLAS_STATUS_OF_A_PRETEND_GPU"; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "as a test wanted it"; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(&Machine::get());
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t, cudaDataType_t) {
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(new Product());
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) { return drop<Product>(product); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t which,
                                              const void* value, size_t) {
  if (which == CUBLASLT_MATMUL_DESC_TRANSA) as<Product>(product).first = element<cublasOperation_t>(value, 0);
  if (which == CUBLASLT_MATMUL_DESC_TRANSB) as<Product>(product).second = element<cublasOperation_t>(value, 0);
  if (which == CUBLASLT_MATMUL_DESC_EPILOGUE) as<Product>(product).epilogue = element<cublasLtEpilogue_t>(value, 0);
  if (which == CUBLASLT_MATMUL_DESC_BIAS_POINTER) as<Product>(product).bias = element<const void*>(value, 0);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Matrix{type, ld, 0, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matrix) { return drop<Matrix>(matrix); }
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matrix, cublasLtMatrixLayoutAttribute_t which,
                                                const void* value, size_t) {
  if (which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) as<Matrix>(matrix).batch = element<std::int32_t>(value, 0);
  if (which == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) as<Matrix>(matrix).stride = element<std::int64_t>(value, 0);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  return *made = nullptr, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t found[],
                                              int* count) {
  found[0] = {};
  found[0].state = CUBLAS_STATUS_SUCCESS;
  return *count = 1, CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void*, const void* a,
                              cublasLtMatrixLayout_t a_matrix, const void* b, cublasLtMatrixLayout_t b_matrix,
                              const void* beta, const void* c, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t d_matrix, const cublasLtMatmulAlgo_t*, void*, size_t,
                              cudaStream_t stream) {
  Machine& gpu = Machine::get();
  const std::lock_guard lock(gpu.mutex);
  if (gpu.enter("cublasLtMatmul") != 0) return CUBLAS_STATUS_EXECUTION_FAILED;
  const Matrix& to = as<Matrix>(d_matrix);
  const bool is_added = to.type == CUDA_R_64F ? element<double>(beta, 0) != 0 : element<float>(beta, 0) != 0;
  Piece piece{ProductCall{as<Product>(product), as<Matrix>(a_matrix), as<Matrix>(b_matrix), to, a, b,
                          is_added ? c : nullptr, d}};
  piece.kind = Piece::Kind::kernel;
  piece.name = "pretended_product";
  gpu.enqueue(reinterpret_cast<CUstream>(stream), std::move(piece));
  return CUBLAS_STATUS_SUCCESS;
}
