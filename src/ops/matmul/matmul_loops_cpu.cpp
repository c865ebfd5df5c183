// SPDX-License-Identifier: Apache-2.0
// matmul as plain loops: f16, empty extents, and bf16 where oneDNN cannot.
#include <algorithm>

#include "base/check.h"
#include "base/half.h"
#include "cpu/parallel.h"
#include "ops/matmul/matmul_cpu.h"
#include "ops/matmul/matmul_shape.h"

namespace paoding {
namespace {

// Row by row, so that the inner loop runs along contiguous rows of b where they are.
template <class Stored, class Sum, Sum (*Load)(Stored), Stored (*Store)(Sum)>
class LoopMatmul : public PreparedKernel {
 public:
  explicit LoopMatmul(MatmulShape shape) : shape_(std::move(shape)) {
    for (std::int64_t extent : shape_.batch) batches_ *= extent;
    constexpr std::int64_t kWorthThreads = 32768;  // multiplications
    if (batches_ * shape_.m * shape_.n * std::max<std::int64_t>(shape_.k, 1) >= kWorthThreads) threads_ = max_threads();
    sums_ = std::make_unique<Sum[]>(static_cast<std::size_t>(threads_) * static_cast<std::size_t>(shape_.n));
  }

  void run(const KernelRun& run) const override {
    const auto* a = static_cast<const Stored*>(run.operands[0]);
    const auto* b = static_cast<const Stored*>(run.operands[1]);
    auto* c = static_cast<Stored*>(run.operands[2]);
    share_out(threads_, batches_ * shape_.m, [&](std::int64_t begin, std::int64_t end, int thread) {
      for (std::int64_t row = begin; row < end; ++row) {
        one_row(a, b, c, row / shape_.m, row % shape_.m, sums_of(thread));
      }
    });
  }

 private:
  std::int64_t batch_offset(const MatmulOperand& operand, std::int64_t batch) const {
    std::int64_t offset = 0;
    for (std::size_t i = shape_.batch.size(); i-- > 0; batch /= shape_.batch[i]) {
      offset += batch % shape_.batch[i] * operand.batch_strides[i];
    }
    return offset;
  }

  void one_row(const Stored* a, const Stored* b, Stored* c, std::int64_t batch, std::int64_t i, Sum* sums) const {
    const Stored* row = a + batch_offset(shape_.a, batch) + i * shape_.a.row_stride;
    const Stored* matrix = b + batch_offset(shape_.b, batch);
    Stored* out = c + batch_offset(shape_.c, batch) + i * shape_.c.row_stride;
    std::fill_n(sums, shape_.n, Sum{0});
    for (std::int64_t k = 0; k < shape_.k; ++k) {
      const Sum factor = Load(row[k * shape_.a.column_stride]);
      const Stored* from = matrix + k * shape_.b.row_stride;
      for (std::int64_t j = 0; j < shape_.n; ++j) sums[j] += factor * Load(from[j * shape_.b.column_stride]);
    }
    for (std::int64_t j = 0; j < shape_.n; ++j) out[j * shape_.c.column_stride] = Store(sums[j]);
  }

  Sum* sums_of(int thread) const { return sums_.get() + static_cast<std::int64_t>(thread) * shape_.n; }

  MatmulShape shape_;
  std::int64_t batches_ = 1;
  int threads_ = 1;
  std::unique_ptr<Sum[]> sums_;  // a row of sums per thread
};

template <class T>
T same(T value) {
  return value;
}

}  // namespace

std::unique_ptr<PreparedKernel> prepare_matmul_loops(const KernelCall& call, const Device&) {
  MatmulShape shape(call);
  switch (shape.dtype) {
    case DType::f64: return std::make_unique<LoopMatmul<double, double, same, same>>(std::move(shape));
    case DType::f32: return std::make_unique<LoopMatmul<float, float, same, same>>(std::move(shape));
    case DType::f16:
      return std::make_unique<LoopMatmul<std::uint16_t, float, f16_to_float, float_to_f16>>(std::move(shape));
    case DType::bf16:
      return std::make_unique<LoopMatmul<std::uint16_t, float, bf16_to_float, float_to_bf16>>(std::move(shape));
    default: PD_ASSERT(false, "matmul takes floats only"); return nullptr;
  }
}

}  // namespace paoding
