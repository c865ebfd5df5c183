// SPDX-License-Identifier: Apache-2.0
// matmul on the GPU: a kernel of our own for few rows in f32, cuBLASLt for all else.
#include "ops/matmul/matmul_gpu.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/one_line.h"
#include "gpu/codegen/text_kernel.h"
#include "gpu/kernels/narrow_product.h"
#include "gpu/kernels/product_text.h"
#include "gpu/libraries/cublaslt.h"
#include "ops/all_kernels.h"
#include "ops/matmul/matmul_shape.h"
#include "ops/matmul/product_rules.h"

namespace paoding {
namespace {

// cuBLAS itself takes this much on Hopper. Small products need no more than some partial sums of their results.
constexpr std::int64_t kMostWorkspace = std::int64_t{32} << 20, kLeastWorkspace = std::int64_t{1} << 20;
constexpr std::int64_t kMostPartialSums = 16;

std::int64_t workspace_limit(const KernelCall& call) {
  const std::int64_t sums = call.outputs[0].type.shape.elements() * 4;
  return std::clamp(sums * kMostPartialSums, kLeastWorkspace, kMostWorkspace);
}

std::string cublaslt_refusal(const KernelCall& call) {
  const MatmulShape shape(call);
  if (shape.is_empty()) return "an extent is 0";
  std::int64_t ld;
  bool is_transposed;
  if (!blas_layout(shape.a, shape.m, shape.k, &ld, &is_transposed)) return "a has neither rows nor columns contiguous";
  if (!blas_layout(shape.b, shape.k, shape.n, &ld, &is_transposed)) return "b has neither rows nor columns contiguous";
  if (!blas_layout(shape.c, shape.m, shape.n, &ld, &is_transposed) || is_transposed) {
    return "the result's rows are not contiguous";
  }
  for (const auto& [operand, name] : {std::pair{&shape.a, "a"}, {&shape.b, "b"}, {&shape.c, "the result"}}) {
    if (!shape.batch.empty() && operand->batch_strides.back() < 0)
      return fmt::format("{}'s batch runs backwards", name);
  }
  constexpr std::int64_t kMostExtent = std::numeric_limits<std::int32_t>::max();  // that its kernels count
  const std::int64_t batch = shape.batch.empty() ? 1 : shape.batch.back();
  for (const auto& [extent, name] : {std::pair{shape.m, "M"}, {shape.n, "N"}, {shape.k, "K"}, {batch, "the batch"}}) {
    if (extent > kMostExtent) return fmt::format("{} is {}, 2^31 or more", name, extent);
  }
  return "";
}

// ---- Operands that are copied first ----

// The smaller operand, when both lie across K and a copy takes less than it saves.
std::uint32_t transposed_for_tf32(const KernelCall& call) {
  const MatmulShape shape(call);
  if (shape.dtype != DType::f32 || !call.allow_tf32 || call.target->major != 9 || !shape.batch.empty()) return 0;
  std::int64_t ld;
  bool is_a_across = false, is_b_along = false;
  blas_layout(shape.a, shape.m, shape.k, &ld, &is_a_across), blas_layout(shape.b, shape.k, shape.n, &ld, &is_b_along);
  if (!is_a_across || is_b_along || !transposing_pays(shape.m, shape.n, shape.k)) return 0;
  return shape.m <= shape.n ? 1 : 2;
}

// ---- Few rows in f32, rounded to TF32 or not: source of paoding's own ----

std::string few_rows_refusal(const KernelCall& call) {
  const MatmulShape shape(call);
  if (shape.dtype != DType::f32 || shape.result_dtype != DType::f32) return "not a product in f32";
  if (call.target->major != 9) return "written for the tensor cores of compute capability 9";
  if (shape.is_empty()) return "an extent is 0";
  if (!shape.batch.empty()) return "a batch of products";
  std::int64_t ld;
  bool is_transposed = false;
  const bool is_b_along = blas_layout(shape.b, shape.k, shape.n, &ld, &is_transposed) && is_transposed;
  const std::int64_t most = call.allow_tf32 ? kMostFewRows : is_b_along ? kMostExactRowsAlong : kMostExactRows;
  if (shape.m > most) return fmt::format("{} rows, {} at most", shape.m, most);
  if (!blas_layout(shape.a, shape.m, shape.k, &ld, &is_transposed) || is_transposed) {
    return "a's rows are not contiguous";
  }
  if (ld % 4 != 0 || call.alignments[0] % 16 != 0) return "a's rows do not start at multiples of 16 bytes";
  if (!blas_layout(shape.b, shape.k, shape.n, &ld, &is_transposed)) return "b has neither rows nor columns contiguous";
  if (ld % 4 != 0 || call.alignments[1] % 16 != 0) return "b's rows do not start at multiples of 16 bytes";
  if (!blas_layout(shape.c, shape.m, shape.n, &ld, &is_transposed) || is_transposed) {
    return "the result's rows are not contiguous";
  }
  if (ld % 4 != 0 || shape.n % 4 != 0 || call.alignments[2] % 16 != 0) {
    return "the result's rows are not of multiples of 16 bytes";
  }
  if (std::max(shape.n, shape.k) > std::numeric_limits<std::int32_t>::max() / 2) return "an extent is 2^30 or more";
  return "";
}

gpu::TextPlan plan_few_rows(const KernelCall& call) {
  const MatmulShape shape(call);
  gpu::ProductShape product{.m = shape.m, .n = shape.n, .k = shape.k};
  bool is_transposed = false;
  blas_layout(shape.a, shape.m, shape.k, &product.a_stride, &is_transposed);
  blas_layout(shape.b, shape.k, shape.n, &product.b_stride, &product.is_transposed_b);
  blas_layout(shape.c, shape.m, shape.n, &product.out_stride, &is_transposed);
  product.is_exact = !call.allow_tf32;
  product.is_b_unmodified_by_previous = (call.unmodified_by_previous >> 1 & 1u) != 0;
  gpu::TextPlan made;
  made.launches.push_back(plan_product(product, choose_product_tile(product, *call.target)));
  return made;
}

// ---- Few rows of 16 bits: the same, where a CTA has room for all that it multiplies ----

// From row to row, where rows are contiguous; else 0.
std::int64_t row_stride_of(const MatmulOperand& operand, std::int64_t rows, std::int64_t columns) {
  std::int64_t stride = 0;
  bool is_transposed = false;
  return blas_layout(operand, rows, columns, &stride, &is_transposed) && !is_transposed ? stride : 0;
}

gpu::NarrowProduct narrow_product_of(const KernelCall& call) {
  const MatmulShape shape(call);
  gpu::NarrowProduct product{.dtype = shape.dtype, .m = shape.m, .n = shape.n, .k = shape.k};
  product.a_stride = row_stride_of(shape.a, shape.m, shape.k);
  product.b_stride = row_stride_of(shape.b, shape.k, shape.n);
  product.out_stride = row_stride_of(shape.c, shape.m, shape.n);
  product.is_b_unmodified_by_previous = (call.unmodified_by_previous >> 1 & 1u) != 0;
  return product;
}

std::string narrow_rows_refusal(const KernelCall& call) {
  const MatmulShape shape(call);
  if (size_bytes(shape.dtype) != 2 || shape.result_dtype != shape.dtype) return "not a product of 16 bits in 16 bits";
  if (call.target->major != 9) return "measured on compute capability 9";
  if (shape.is_empty()) return "an extent is 0";
  if (!shape.batch.empty()) return "a batch of products";
  if (shape.m < kLeastNarrowRows || shape.m > kMostNarrowRows) {
    return fmt::format("{} rows, not {} to {}", shape.m, kLeastNarrowRows, kMostNarrowRows);
  }
  if (shape.k > kMostNarrowDepth) return fmt::format("K of {}, {} at most", shape.k, kMostNarrowDepth);
  const gpu::NarrowProduct product = narrow_product_of(call);
  if (product.a_stride == 0 || product.b_stride == 0 || product.out_stride == 0)
    return "an operand's rows are not contiguous";
  for (const std::int64_t extent : {product.n, product.k, product.a_stride, product.b_stride, product.out_stride}) {
    if (extent % 8 != 0) return "rows are not of multiples of 16 bytes";
  }
  for (int i = 0; i < 3; ++i) {
    if (call.alignments[static_cast<std::size_t>(i)] % 16 != 0) return "rows do not start at multiples of 16 bytes";
  }
  const std::int64_t bytes = gpu::narrow_product_bytes(product);
  if (bytes > call.target->shared_bytes) return fmt::format("a CTA's factors are {} bytes", bytes);
  if (gpu::narrow_product_ctas(product) > call.target->sm_count) return "more CTAs than multiprocessors";
  return "";
}

gpu::TextPlan plan_narrow_rows(const KernelCall& call) {
  gpu::TextPlan made;
  made.launches.push_back(plan_narrow_product(narrow_product_of(call)));
  return made;
}

using Offsets = std::array<std::int64_t, 3>;  // bytes from the start of a, b, c

// One per launch.
std::vector<Offsets> offsets_of(const MatmulShape& shape) {
  std::int64_t count = 1;
  for (std::size_t i = 0; i + 1 < shape.batch.size(); ++i) count *= shape.batch[i];
  const MatmulOperand* operands[] = {&shape.a, &shape.b, &shape.c};
  std::vector<Offsets> all;
  for (std::int64_t index = 0; index < count; ++index) {
    Offsets offsets{};
    std::int64_t rest = index;
    for (std::size_t axis = shape.batch.size() - std::min<std::size_t>(shape.batch.size(), 1); axis-- > 0;) {
      for (std::size_t k = 0; k < 3; ++k) {
        const std::int64_t size = size_bytes(k == 2 ? shape.result_dtype : shape.dtype);
        offsets[k] += rest % shape.batch[axis] * operands[k]->batch_strides[axis] * size;
      }
      rest /= shape.batch[axis];
    }
    all.push_back(offsets);
  }
  return all;
}

gpu::MatmulSpec spec_of(const KernelCall& call, const std::vector<Offsets>& all_offsets) {
  const MatmulShape shape(call);
  gpu::MatmulSpec spec;
  spec.a_dtype = spec.b_dtype = shape.dtype;
  spec.c_dtype = shape.result_dtype;
  spec.precision = shape.dtype == DType::f64                      ? gpu::MatmulPrecision::f64
                   : shape.dtype == DType::f32 && call.allow_tf32 ? gpu::MatmulPrecision::tf32
                                                                  : gpu::MatmulPrecision::f32;
  spec.m = shape.m;
  spec.n = shape.n;
  spec.k = shape.k;
  bool c_is_transposed = false;
  blas_layout(shape.a, shape.m, shape.k, &spec.lda, &spec.transpose_a);
  blas_layout(shape.b, shape.k, shape.n, &spec.ldb, &spec.transpose_b);
  blas_layout(shape.c, shape.m, shape.n, &spec.ldc, &c_is_transposed);
  // The innermost batch axis is the library's; others that do not merge with it are a launch each.
  if (!shape.batch.empty()) {
    spec.batch = shape.batch.back();
    spec.stride_a = shape.a.batch_strides.back();
    spec.stride_b = shape.b.batch_strides.back();
    spec.stride_c = shape.c.batch_strides.back();
  }
  const auto alignment = [&](std::size_t i) {
    std::int64_t bytes = std::min<std::int64_t>(call.alignments[i], 256);
    for (const Offsets& offsets : all_offsets) bytes = std::gcd(bytes, offsets[i]);
    return static_cast<int>(bytes);
  };
  spec.align_a = alignment(0);
  spec.align_b = alignment(1);
  spec.align_c = alignment(2);
  return spec;
}

class CublasLtMatmul : public PreparedKernel {
 public:
  CublasLtMatmul(const KernelCall& call, const Device& device, int algorithm)
      : offsets_(offsets_of(MatmulShape(call))),
        product_(gpu::GpuDevice::get(device.index), spec_of(call, offsets_),
                 static_cast<std::size_t>(workspace_limit(call)), algorithm) {}

  void run(const KernelRun& run) const override {
    const auto at = [&](std::size_t i, const Offsets& offsets) {
      return static_cast<char*>(run.operands[i]) + offsets[i];
    };
    for (const Offsets& offsets : offsets_) {
      product_.run(static_cast<CUstream>(run.stream), at(0, offsets), at(1, offsets), at(2, offsets), run.scratch);
    }
  }

 private:
  std::vector<Offsets> offsets_;  // one per launch
  gpu::Matmul product_;
};

// The timed choice for the call, where another algorithm than the library's first was faster.
const TimedChoice* faster_algorithm(const KernelCall& call) {
  const bool is_faster = call.timed != nullptr && call.timed->choice && call.timed->choice->is_library;
  return is_faster ? &*call.timed->choice : nullptr;
}

std::string cublaslt_reason(const KernelCall& call) {
  const TimedChoice* const timed = faster_algorithm(call);
  if (timed == nullptr) return "";
  return fmt::format("its algorithm {} took {:.1f} us, its first {:.1f}, when they were timed", timed->engine,
                     timed->library_us, timed->own_us);
}

std::unique_ptr<PreparedKernel> prepare_cublaslt(const KernelCall& call, const Device& device) {
  int algorithm = 0;
  if (const TimedChoice* const timed = faster_algorithm(call)) {
    const std::string& text = timed->engine;
    std::from_chars(text.data(), text.data() + text.size(), algorithm);
  }
  if (algorithm >= 1 && algorithm <= gpu::kMostAlgorithms) {
    try {
      return std::make_unique<CublasLtMatmul>(call, device, algorithm);
    } catch (const Error& error) {  // the library names fewer than it did
      if (error.kind() != ErrorKind::unsupported) throw;
    }
  }
  return std::make_unique<CublasLtMatmul>(call, device, 0);
}

// A product over no elements is zero.
class EmptyMatmul : public PreparedKernel {
 public:
  explicit EmptyMatmul(const KernelCall& call) : bytes_(static_cast<std::size_t>(size_bytes(call.outputs[0].type))) {}

  void run(const KernelRun& run) const override {
    if (bytes_ == 0) return;
    const auto address = reinterpret_cast<CUdeviceptr>(run.operands[2]);
    PD_CUDA(gpu::required_driver().cuMemsetD8Async(address, 0, bytes_, static_cast<CUstream>(run.stream)));
  }

 private:
  std::size_t bytes_;
};

}  // namespace

std::string product_key(const KernelCall& call) {
  const Target& target = *call.target;
  return one_line(fmt::format("{}, workspace {}, {} {} {} SMs, cublaslt {}",
                              gpu::to_string(spec_of(call, offsets_of(MatmulShape(call)))), workspace_limit(call),
                              target.name, target.arch(), target.sm_count, target.version_of("cublaslt")));
}

std::int64_t cublaslt_workspace_bytes(const KernelCall& call) { return workspace_limit(call); }

std::vector<std::unique_ptr<PreparedKernel>> cublaslt_kernels(const KernelCall& call, const Device& device, int most) {
  std::vector<std::unique_ptr<PreparedKernel>> kernels;
  kernels.push_back(std::make_unique<CublasLtMatmul>(call, device, 0));
  try {
    for (int i = 1; i <= most; ++i) kernels.push_back(std::make_unique<CublasLtMatmul>(call, device, i));
  } catch (const Error& error) {  // it names no more
    if (error.kind() != ErrorKind::unsupported) throw;
  }
  return kernels;
}

void register_matmul_gpu() {
  gpu::register_text_kernel("matmul", "few_rows", few_rows_refusal, plan_few_rows);
  gpu::register_text_kernel("matmul", "narrow_rows", narrow_rows_refusal, plan_narrow_rows);
  for (const char* op : {"matmul", "matmul_wide"}) {
    register_kernel(op, {.name = kCublasLtRow,
                         .device = DeviceKind::cuda,
                         .refusal = cublaslt_refusal,
                         .prepare = prepare_cublaslt,
                         .workspace_bytes = workspace_limit,
                         .transposed = transposed_for_tf32,
                         .reason = cublaslt_reason,
                         .timing_key = [](const KernelCall& call) {
                           return cublaslt_refusal(call).empty() ? product_key(call) : "";
                         }});
    register_kernel(op, {"zero", DeviceKind::cuda,
                         [](const KernelCall& call) -> std::string {
                           if (!MatmulShape(call).is_empty()) return "no extent is 0";
                           return call.outputs[0].is_dense() ? "" : "the result is not dense";
                         },
                         [](const KernelCall& call, const Device&) { return std::make_unique<EmptyMatmul>(call); }});
  }
}

}  // namespace paoding
