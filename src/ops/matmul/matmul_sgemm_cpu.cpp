// SPDX-License-Identifier: Apache-2.0
// Products of many rows of f32 by oneDNN's sgemm, which is older than its matmul primitive and faster for such shapes
// with few threads: on AVX-512 by 2 to 12%, 6400 x 7709 x 512 by up to 40; with 16 threads from 6,400 rows on
// (benchmarks/results/2026-11-24-products-cpu.txt). For few rows, and with b transposed, the primitive is faster.
#include <fmt/format.h>

#include <algorithm>

#include "base/cancel_poll.h"
#include "cpu/onednn.h"
#include "cpu/parallel.h"
#include "ops/matmul/matmul_cpu.h"
#include "ops/matmul/matmul_shape.h"

namespace paoding {
namespace {

constexpr std::int64_t kManyRows = 1536, kRowsOfAThread = 256, kManyColumns = 1024, kDeep = 128;

struct Operand {
  std::int64_t ld = 0;
  bool is_transposed = false;
};

/// Whether the operand is a plain matrix, and how it lies.
bool is_plain(const MatmulOperand& operand, std::int64_t rows, std::int64_t columns, Operand* place) {
  return blas_layout(operand, rows, columns, &place->ld, &place->is_transposed);
}

class Sgemm : public PreparedKernel {
 public:
  Sgemm(const MatmulShape& shape, const Operand& a, const Operand& b, const Operand& c)
      : m_(shape.m), n_(shape.n), k_(shape.k), a_(a), b_(b), c_(c) {}

  void run(const KernelRun& run) const override {
    const CancelPoll poll;
    poll();
    const auto* a = static_cast<const float*>(run.operands[0]);
    const auto* b = static_cast<const float*>(run.operands[1]);
    const dnnl_status_t status = dnnl_sgemm(a_.is_transposed ? 'T' : 'N', 'N', m_, n_, k_, 1.0F, a, a_.ld, b, b_.ld,
                                            0.0F, static_cast<float*>(run.operands[2]), c_.ld);
    if (status != dnnl_success) {
      fail_in_onednn("matmul", fmt::format("sgemm gave status {}", static_cast<int>(status)));
    }
  }

 private:
  std::int64_t m_, n_, k_;
  Operand a_, b_, c_;
};

}  // namespace

std::unique_ptr<PreparedKernel> prepare_sgemm(const MatmulShape& shape) {
  if (shape.dtype != DType::f32 || shape.result_dtype != DType::f32 || !shape.batch.empty()) return nullptr;
  const std::int64_t rows = std::max(kManyRows, kRowsOfAThread * max_threads());
  if (shape.m < rows || shape.n < kManyColumns || shape.k < kDeep) return nullptr;
  Operand a, b, c;
  if (!is_plain(shape.a, shape.m, shape.k, &a) || !is_plain(shape.b, shape.k, shape.n, &b) ||
      !is_plain(shape.c, shape.m, shape.n, &c) || b.is_transposed || c.is_transposed) {
    return nullptr;
  }
  return std::make_unique<Sgemm>(shape, a, b, c);
}

}  // namespace paoding
