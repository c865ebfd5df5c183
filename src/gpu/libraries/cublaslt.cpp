// SPDX-License-Identifier: Apache-2.0
#include "gpu/libraries/cublaslt.h"

#include <array>
#include <limits>
#include <map>
#include <mutex>

namespace paoding::gpu {
namespace {

struct LoadedCublasLt {
  Library library;
  CublasLt table;
  std::string problem;

  LoadedCublasLt() : library({"libcublasLt.so.13", "libcublasLt.so.12"}), problem(library.problem()) {
    if (!library.loaded()) return;
    try {
#define PD_CUBLASLT_LOAD(name) table.name = library.symbol<decltype(&::name)>(#name);
      PD_CUBLASLT_FUNCTIONS(PD_CUBLASLT_LOAD)
#undef PD_CUBLASLT_LOAD
    } catch (const Error& error) {
      problem = error.what();
    }
  }
};

const LoadedCublasLt& loaded_cublaslt() {
  static const LoadedCublasLt* loaded = new LoadedCublasLt();
  return *loaded;
}

const CublasLt& required_cublaslt() {
  const CublasLt* table = cublaslt();
  if (table == nullptr) fail(ErrorKind::device, "cublaslt: {}", cublaslt_problem());
  return *table;
}

void check_cublas(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const CublasLt& table = required_cublaslt();
  fail(ErrorKind::device, "{}: {}: {}", what, table.cublasLtGetStatusName(status),
       table.cublasLtGetStatusString(status));
}

#define PD_CUBLASLT(call) check_cublas((call), #call)

/// One handle per GPU, kept until the process ends.
cublasLtHandle_t cublaslt_handle_of(const GpuDevice& device) {
  static auto* mutex = new std::mutex();
  static auto* handles = new std::map<int, cublasLtHandle_t>();
  std::lock_guard lock(*mutex);
  auto found = handles->find(device.index());
  if (found != handles->end()) return found->second;
  device.make_current();  // the handle belongs to the CUcontext that is current when it is made
  cublasLtHandle_t handle = nullptr;
  PD_CUBLASLT(required_cublaslt().cublasLtCreate(&handle));
  handles->emplace(device.index(), handle);
  return handle;
}

cudaDataType_t cuda_type(DType dtype) {
  switch (dtype) {
    case DType::f64: return CUDA_R_64F;
    case DType::f32: return CUDA_R_32F;
    case DType::f16: return CUDA_R_16F;
    case DType::bf16: return CUDA_R_16BF;
    default: fail(ErrorKind::dtype, "matmul: {}, needed f64, f32, f16 or bf16", to_string(dtype));
  }
}

cublasComputeType_t compute_type(MatmulPrecision precision) {
  switch (precision) {
    case MatmulPrecision::f64: return CUBLAS_COMPUTE_64F;
    case MatmulPrecision::tf32: return CUBLAS_COMPUTE_32F_FAST_TF32;
    case MatmulPrecision::f32: break;
  }
  return CUBLAS_COMPUTE_32F;
}

const char* to_string(MatmulPrecision precision) {
  switch (precision) {
    case MatmulPrecision::f64: return "f64";
    case MatmulPrecision::tf32: return "tf32";
    case MatmulPrecision::f32: break;
  }
  return "f32";
}

const char* to_string(MatmulEpilogue epilogue) {
  switch (epilogue) {
    case MatmulEpilogue::bias: return " and a bias";
    case MatmulEpilogue::bias_relu: return ", a bias and relu";
    case MatmulEpilogue::none: break;
  }
  return "";
}

void check_dtypes(const MatmulSpec& spec) {
  cuda_type(spec.a_dtype);  // refuses dtypes that are no floats
  const bool is_half = spec.a_dtype == DType::f16 || spec.a_dtype == DType::bf16;
  if (spec.b_dtype != spec.a_dtype) {
    fail(ErrorKind::dtype, "matmul: b is {}, needed a's {}; {}", to_string(spec.b_dtype), to_string(spec.a_dtype),
         to_string(spec));
  }
  if (spec.c_dtype != spec.a_dtype && !(is_half && spec.c_dtype == DType::f32)) {
    fail(ErrorKind::dtype, "matmul: c is {}, needed {}{}; {}", to_string(spec.c_dtype), to_string(spec.a_dtype),
         is_half ? " or f32" : "", to_string(spec));
  }
  const bool is_f64 = spec.a_dtype == DType::f64;
  if (is_f64 != (spec.precision == MatmulPrecision::f64)) {
    fail(ErrorKind::dtype, "matmul: precision {} does not go with {}; {}", to_string(spec.precision),
         to_string(spec.a_dtype), to_string(spec));
  }
  if (spec.precision == MatmulPrecision::tf32 && spec.a_dtype != DType::f32) {
    fail(ErrorKind::dtype, "matmul: precision tf32 needs f32, a is {}; {}", to_string(spec.a_dtype), to_string(spec));
  }
}

/// A stored row-major [rows, columns] read by columns.
ColumnMajorMatrix by_columns(const MatmulSpec& spec, const char* which, std::int64_t rows, std::int64_t columns,
                             std::int64_t ld, std::int64_t stride) {
  if (ld != 0 && ld < columns) {
    fail(ErrorKind::argument, "matmul: {} has rows of {} elements {} apart, needed at least {}; {}", which, columns, ld,
         columns, to_string(spec));
  }
  if (stride < 0) {
    fail(ErrorKind::argument, "matmul: {} has stride {}, needed at least 0; {}", which, stride, to_string(spec));
  }
  return {columns, rows, ld == 0 ? columns : ld, stride};
}

}  // namespace

const CublasLt* cublaslt() {
  const LoadedCublasLt& loaded = loaded_cublaslt();
  return loaded.problem.empty() ? &loaded.table : nullptr;
}

const std::string& cublaslt_problem() { return loaded_cublaslt().problem; }

const Library& cublaslt_library() { return loaded_cublaslt().library; }

std::string to_string(const MatmulSpec& spec) {
  return fmt::format(
      "matmul a {}{} lda {} stride {} align {}, b {}{} ldb {} stride {} align {}, c {} ldc {} stride {} align {}, "
      "precision {}{}{}, m {} n {} k {} batch {}",
      to_string(spec.a_dtype), spec.transpose_a ? " transposed" : "", spec.lda, spec.stride_a, spec.align_a,
      to_string(spec.b_dtype), spec.transpose_b ? " transposed" : "", spec.ldb, spec.stride_b, spec.align_b,
      to_string(spec.c_dtype), spec.ldc, spec.stride_c, spec.align_c, to_string(spec.precision),
      spec.has_added ? ", another added" : "", to_string(spec.epilogue), spec.m, spec.n, spec.k, spec.batch);
}

ColumnMajorMatmul to_column_major(const MatmulSpec& spec) {
  check_dtypes(spec);
  if (spec.m < 1 || spec.n < 1 || spec.k < 1 || spec.batch < 1 ||
      spec.batch > std::numeric_limits<std::int32_t>::max()) {
    fail(ErrorKind::shape, "matmul: m {}, n {}, k {}, batch {}, needed at least 1 of each and a batch below 2^31",
         spec.m, spec.n, spec.k, spec.batch);
  }
  for (int align : {spec.align_a, spec.align_b, spec.align_c}) {
    if (align < 1) fail(ErrorKind::argument, "matmul: alignment {}, needed at least 1; {}", align, to_string(spec));
  }
  ColumnMajorMatmul call;
  call.first = spec.transpose_b ? by_columns(spec, "b", spec.n, spec.k, spec.ldb, spec.stride_b)
                                : by_columns(spec, "b", spec.k, spec.n, spec.ldb, spec.stride_b);
  call.second = spec.transpose_a ? by_columns(spec, "a", spec.k, spec.m, spec.lda, spec.stride_a)
                                 : by_columns(spec, "a", spec.m, spec.k, spec.lda, spec.stride_a);
  call.result = by_columns(spec, "c", spec.m, spec.n, spec.ldc, spec.stride_c);
  call.transpose_first = spec.transpose_b;
  call.transpose_second = spec.transpose_a;
  if (spec.batch > 1 && spec.stride_c == 0) {
    fail(ErrorKind::argument, "matmul: c has stride 0, so that {} results overlap; {}", spec.batch, to_string(spec));
  }
  return call;
}

void Matmul::Destroy::operator()(cublasLtMatmulDescOpaque_t* product) const {
  if (const CublasLt* table = cublaslt()) table->cublasLtMatmulDescDestroy(product);
}

void Matmul::Destroy::operator()(cublasLtMatrixLayoutOpaque_t* layout) const {
  if (const CublasLt* table = cublaslt()) table->cublasLtMatrixLayoutDestroy(layout);
}

Matmul::Layout Matmul::make_layout(DType dtype, const ColumnMajorMatrix& matrix, std::int64_t batch) {
  const CublasLt& table = required_cublaslt();
  cublasLtMatrixLayout_t made = nullptr;
  PD_CUBLASLT(table.cublasLtMatrixLayoutCreate(&made, cuda_type(dtype), static_cast<std::uint64_t>(matrix.rows),
                                               static_cast<std::uint64_t>(matrix.columns), matrix.ld));
  Layout layout(made);
  if (batch > 1) {
    const std::int32_t count = static_cast<std::int32_t>(batch);
    PD_CUBLASLT(
        table.cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)));
    PD_CUBLASLT(table.cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                       &matrix.stride, sizeof(matrix.stride)));
  }
  return layout;
}

Matmul::Matmul(const GpuDevice& device, const MatmulSpec& spec, std::size_t workspace_limit_bytes, int algorithm)
    : spec_(spec) {
  const ColumnMajorMatmul call = to_column_major(spec);
  const CublasLt& table = required_cublaslt();
  handle_ = cublaslt_handle_of(device);
  device.make_current();

  cublasLtMatmulDesc_t product = nullptr;
  PD_CUBLASLT(table.cublasLtMatmulDescCreate(&product, compute_type(spec.precision),
                                             spec.precision == MatmulPrecision::f64 ? CUDA_R_64F : CUDA_R_32F));
  product_.reset(product);
  const cublasOperation_t first = call.transpose_first ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t second = call.transpose_second ? CUBLAS_OP_T : CUBLAS_OP_N;
  PD_CUBLASLT(table.cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof(first)));
  PD_CUBLASLT(table.cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof(second)));
  if (spec.epilogue != MatmulEpilogue::none) {
    // The library computes c^T, so its bias goes along rows.
    const cublasLtEpilogue_t epilogue =
        spec.epilogue == MatmulEpilogue::bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_RELU_BIAS;
    const cudaDataType_t dtype = cuda_type(spec.c_dtype);
    PD_CUBLASLT(
        table.cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)));
    PD_CUBLASLT(
        table.cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &dtype, sizeof(dtype)));
    const void* const aligned = reinterpret_cast<const void*>(std::uintptr_t{256});  // algorithms are chosen for that
    PD_CUBLASLT(
        table.cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &aligned, sizeof(aligned)));
  }
  first_ = make_layout(spec.b_dtype, call.first, spec.batch);
  second_ = make_layout(spec.a_dtype, call.second, spec.batch);
  result_ = make_layout(spec.c_dtype, call.result, spec.batch);
  choose_algorithm(workspace_limit_bytes, algorithm);
}

void Matmul::choose_algorithm(std::size_t workspace_limit_bytes, int algorithm) {
  const CublasLt& table = required_cublaslt();
  struct DestroyPreference {
    void operator()(cublasLtMatmulPreferenceOpaque_t* limits) const {
      required_cublaslt().cublasLtMatmulPreferenceDestroy(limits);
    }
  };
  cublasLtMatmulPreference_t made = nullptr;
  PD_CUBLASLT(table.cublasLtMatmulPreferenceCreate(&made));
  std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, DestroyPreference> limits(made);

  const std::uint64_t workspace = workspace_limit_bytes;
  PD_CUBLASLT(table.cublasLtMatmulPreferenceSetAttribute(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                         sizeof(workspace)));
  // cuBLASLt's A is our b, see ColumnMajorMatmul.
  const std::uint32_t first = static_cast<std::uint32_t>(spec_.align_b);
  const std::uint32_t second = static_cast<std::uint32_t>(spec_.align_a);
  const std::uint32_t result = static_cast<std::uint32_t>(spec_.align_c);
  auto set_alignment = [&](cublasLtMatmulPreferenceAttributes_t which, const std::uint32_t& bytes) {
    PD_CUBLASLT(table.cublasLtMatmulPreferenceSetAttribute(made, which, &bytes, sizeof(bytes)));
  };
  set_alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, first);
  set_alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, second);
  set_alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, result);
  set_alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, result);

  PD_ASSERT(algorithm >= 0 && algorithm <= kMostAlgorithms, "algorithms are counted");
  std::array<cublasLtMatmulHeuristicResult_t, kMostAlgorithms> found{};
  const std::size_t which = algorithm == 0 ? 0 : static_cast<std::size_t>(algorithm) - 1;
  int count = 0;
  cublasStatus_t status = table.cublasLtMatmulAlgoGetHeuristic(
      handle_, product_.get(), first_.get(), second_.get(), result_.get(), result_.get(), made,
      algorithm == 0 ? 1 : kMostAlgorithms, found.data(), &count);
  const bool is_there = count > static_cast<int>(which);
  if (status == CUBLAS_STATUS_SUCCESS && is_there) status = found[which].state;
  if (status != CUBLAS_STATUS_SUCCESS || !is_there) {
    fail(ErrorKind::unsupported, "cublaslt: no algorithm{} within {} bytes of workspace ({}): {}",
         algorithm == 0 ? "" : fmt::format(" {} of {}", algorithm, count), workspace_limit_bytes,
         table.cublasLtGetStatusName(status), to_string(spec_));
  }
  algorithm_ = found[which].algo;
  workspace_bytes_ = found[which].workspaceSize;
}

void Matmul::run(CUstream stream, const void* a, const void* b, void* c, void* workspace, const void* bias,
                 const void* added) const {
  PD_ASSERT(product_ != nullptr, "run() of a Matmul that was never prepared");
  if (spec_.epilogue != MatmulEpilogue::none) {
    PD_CUBLASLT(cublaslt()->cublasLtMatmulDescSetAttribute(product_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                                           sizeof(bias)));
  }
  const bool is_f64 = spec_.precision == MatmulPrecision::f64;
  static constexpr double kOneF64 = 1, kZeroF64 = 0;
  static constexpr float kOneF32 = 1, kZeroF32 = 0;
  const void* alpha = is_f64 ? static_cast<const void*>(&kOneF64) : &kOneF32;
  const void* beta = spec_.has_added ? alpha : is_f64 ? static_cast<const void*>(&kZeroF64) : &kZeroF32;
  cublasStatus_t status = cublaslt()->cublasLtMatmul(handle_, product_.get(), alpha, b, first_.get(), a, second_.get(),
                                                     beta, spec_.has_added ? added : c, result_.get(), c, result_.get(),
                                                     &algorithm_, workspace, workspace_bytes_, stream);
  if (status != CUBLAS_STATUS_SUCCESS) check_cublas(status, ("cublasLtMatmul of " + to_string(spec_)).c_str());
}

}  // namespace paoding::gpu
