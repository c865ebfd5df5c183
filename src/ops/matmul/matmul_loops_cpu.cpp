// SPDX-License-Identifier: Apache-2.0
// matmul as plain loops: f16, empty extents, and bf16 where oneDNN cannot.
#include <algorithm>

#include "base/check.h"
#include "base/product.h"
#include "cpu/parallel.h"
#include "cpu/tile_stored.h"
#include "ops/matmul/matmul_cpu.h"
#include "ops/matmul/matmul_shape.h"

namespace paoding {
namespace {

// Row by row, so that the inner loop runs along contiguous rows of b where they are.
template <class Dtype, class Result = Dtype>  // Stored<..>, of a and b, and of c
class LoopMatmul : public PreparedKernel {
 public:
  using Element = typename Dtype::Type;
  using Sum = typename Dtype::Compute;

  explicit LoopMatmul(MatmulShape shape) : shape_(std::move(shape)) {
    for (std::int64_t extent : shape_.batch) batches_ *= extent;
    constexpr std::int64_t kWorthThreads = 32768;  // multiplications
    if (capped_product({batches_, shape_.m, shape_.n, std::max<std::int64_t>(shape_.k, 1)}) >= kWorthThreads)
      threads_ = max_threads();
    sums_ = std::make_unique<Sum[]>(static_cast<std::size_t>(threads_) * static_cast<std::size_t>(shape_.n));
  }

  void run(const KernelRun& run) const override {
    const auto* a = static_cast<const Element*>(run.operands[0]);
    const auto* b = static_cast<const Element*>(run.operands[1]);
    auto* c = static_cast<typename Result::Type*>(run.operands[2]);
    share_out(threads_, batches_ * shape_.m, [&](std::int64_t begin, std::int64_t end, int thread) {
      for (std::int64_t row = begin; row < end; ++row) {
        one_row(a, b, c, row / shape_.m, row % shape_.m, sums_of(thread));
      }
    });
  }

 private:
  void one_row(const Element* a, const Element* b, typename Result::Type* c, std::int64_t batch, std::int64_t i,
               Sum* sums) const {
    const Element* row = a + shape_.batch_offset(shape_.a, batch) + i * shape_.a.row_stride;
    const Element* matrix = b + shape_.batch_offset(shape_.b, batch);
    auto* out = c + shape_.batch_offset(shape_.c, batch) + i * shape_.c.row_stride;
    std::fill_n(sums, shape_.n, Sum{0});
    for (std::int64_t k = 0; k < shape_.k; ++k) {
      const Sum factor = Dtype::load(row[k * shape_.a.column_stride]);
      const Element* from = matrix + k * shape_.b.row_stride;
      for (std::int64_t j = 0; j < shape_.n; ++j) sums[j] += factor * Dtype::load(from[j * shape_.b.column_stride]);
    }
    for (std::int64_t j = 0; j < shape_.n; ++j) out[j * shape_.c.column_stride] = Result::store(sums[j]);
  }

  Sum* sums_of(int thread) const { return sums_.get() + static_cast<std::int64_t>(thread) * shape_.n; }

  MatmulShape shape_;
  std::int64_t batches_ = 1;
  int threads_ = 1;
  std::unique_ptr<Sum[]> sums_;  // a row of sums per thread
};

}  // namespace

std::unique_ptr<PreparedKernel> prepare_matmul_loops(const KernelCall& call, const Device&) {
  MatmulShape shape(call);
  return visit_stored_float(shape.dtype, [&](auto dtype) -> std::unique_ptr<PreparedKernel> {
    if constexpr (dtype.value == DType::f16 || dtype.value == DType::bf16) {
      using Wide = Stored<DType::f32>;
      if (shape.result_dtype == DType::f32)
        return std::make_unique<LoopMatmul<Stored<dtype.value>, Wide>>(std::move(shape));
    }
    return std::make_unique<LoopMatmul<Stored<dtype.value>>>(std::move(shape));
  });
}

}  // namespace paoding
