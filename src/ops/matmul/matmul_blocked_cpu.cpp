// SPDX-License-Identifier: Apache-2.0
// f64 products in blocks: a block of a and a panel of b are packed so that they fit the caches and lie in the order in
// which the inner kernel reads them, whatever the operands' strides (Goto and van de Geijn, "Anatomy of
// high-performance matrix multiplication", 2008). The blocks of the result are shared out among threads; each packs for
// itself.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/matmul/matmul_blocked_cpu.cpp"
#include "hwy/foreach_target.h"
//
#include <algorithm>

#include "base/check.h"
#include "cpu/parallel.h"
#include "hwy/highway.h"
#include "ops/matmul/matmul_cpu.h"
#include "ops/matmul/matmul_shape.h"

#ifndef PAODING_MATMUL_BLOCKED_H_
#define PAODING_MATMUL_BLOCKED_H_
namespace paoding {
inline constexpr std::int64_t kBlockRows = 96, kBlockInner = 256, kBlockColumns = 256;  // 192 KB of a, 512 KB of b
inline constexpr std::int64_t kTileRows = 6;  // of the inner kernel; its columns are two vectors

/// A block of c: rows x columns, with strides, and where its rows of a and columns of b start.
struct BlockProduct {
  const double *a, *b;
  double* c;
  std::int64_t rows, columns, k;
  std::int64_t a_row, a_column, b_row, b_column, c_row, c_column;
  double *packed_a, *packed_b;
};
}  // namespace paoding
#endif

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// tile [kTileRows, 2 vectors] = packed rows of a times packed columns of b.
HWY_INLINE void multiply_tile(const double* a, const double* b, std::int64_t k, double* tile) {
  const hn::ScalableTag<double> d;
  using V = hn::Vec<decltype(d)>;
  const std::size_t lanes = hn::Lanes(d);
  V left[kTileRows], right[kTileRows];
  for (std::int64_t r = 0; r < kTileRows; ++r) left[r] = right[r] = hn::Zero(d);
  for (std::int64_t i = 0; i < k; ++i) {
    const V b0 = hn::LoadU(d, b), b1 = hn::LoadU(d, b + lanes);
    for (std::int64_t r = 0; r < kTileRows; ++r) {
      const V factor = hn::Set(d, a[r]);
      left[r] = hn::MulAdd(factor, b0, left[r]);
      right[r] = hn::MulAdd(factor, b1, right[r]);
    }
    a += kTileRows;
    b += 2 * lanes;
  }
  for (std::int64_t r = 0; r < kTileRows; ++r) {
    hn::StoreU(left[r], d, tile + static_cast<std::size_t>(r) * 2 * lanes);
    hn::StoreU(right[r], d, tile + static_cast<std::size_t>(r) * 2 * lanes + lanes);
  }
}

void multiply_block(const BlockProduct& p) {
  const hn::ScalableTag<double> d;
  const auto width = static_cast<std::int64_t>(2 * hn::Lanes(d));
  HWY_ALIGN double tile[kTileRows * 2 * hn::MaxLanes(d)];
  for (std::int64_t from = 0; from < p.k; from += kBlockInner) {
    const std::int64_t k = std::min(kBlockInner, p.k - from);
    // Panels of kTileRows rows and of `width` columns, filled up with zeros.
    double* to = p.packed_a;
    for (std::int64_t row = 0; row < p.rows; row += kTileRows) {
      for (std::int64_t i = 0; i < k; ++i) {
        for (std::int64_t r = 0; r < kTileRows; ++r) {
          *to++ = row + r < p.rows ? p.a[(row + r) * p.a_row + (from + i) * p.a_column] : 0;
        }
      }
    }
    to = p.packed_b;
    for (std::int64_t column = 0; column < p.columns; column += width) {
      for (std::int64_t i = 0; i < k; ++i) {
        for (std::int64_t j = 0; j < width; ++j) {
          *to++ = column + j < p.columns ? p.b[(from + i) * p.b_row + (column + j) * p.b_column] : 0;
        }
      }
    }
    for (std::int64_t column = 0; column < p.columns; column += width) {
      for (std::int64_t row = 0; row < p.rows; row += kTileRows) {
        multiply_tile(p.packed_a + row * k, p.packed_b + column * k, k, tile);
        for (std::int64_t r = 0; r < std::min(kTileRows, p.rows - row); ++r) {
          double* c = p.c + (row + r) * p.c_row + column * p.c_column;
          for (std::int64_t j = 0; j < std::min(width, p.columns - column); ++j) {
            double& element = c[j * p.c_column];
            element = from == 0 ? tile[r * width + j] : element + tile[r * width + j];
          }
        }
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace paoding {
namespace {

HWY_EXPORT(multiply_block);

class BlockedMatmul : public PreparedKernel {
 public:
  explicit BlockedMatmul(MatmulShape shape) : shape_(std::move(shape)) {
    for (std::int64_t extent : shape_.batch) batches_ *= extent;
    constexpr std::int64_t kWorthThreads = 1 << 18;  // multiplications
    const bool is_large = shape_.products() >= kWorthThreads;
    // Smaller blocks where there would be fewer than threads.
    const std::int64_t wanted = is_large ? 2 * max_threads() : 1;
    while (blocks() < wanted && columns_ > 32) columns_ /= 2;
    while (blocks() < wanted && rows_ > kTileRows) rows_ = (rows_ / 2 + kTileRows - 1) / kTileRows * kTileRows;
    threads_ = is_large ? static_cast<int>(std::min<std::int64_t>(max_threads(), blocks())) : 1;
  }

  std::int64_t scratch_bytes() const override { return threads_ * kPackedBytes; }

  void run(const KernelRun& run) const override {
    share_out(threads_, blocks(), [&](std::int64_t begin, std::int64_t end, int thread) {
      auto* packed = reinterpret_cast<double*>(static_cast<char*>(run.scratch) + thread * kPackedBytes);
      for (std::int64_t block = begin; block < end; ++block) run_block(run.operands, block, packed);
    });
  }

 private:
  static constexpr std::int64_t kWidest = 64;  // columns of a tile on any CPU, and more
  static constexpr std::int64_t kPackedBytes =
      (kBlockInner * (kBlockRows + kTileRows) + kBlockInner * (kBlockColumns + kWidest)) *
      static_cast<std::int64_t>(sizeof(double));

  std::int64_t row_blocks() const { return (shape_.m + rows_ - 1) / rows_; }
  std::int64_t column_blocks() const { return (shape_.n + columns_ - 1) / columns_; }
  std::int64_t blocks() const { return batches_ * row_blocks() * column_blocks(); }

  void run_block(void* const* operands, std::int64_t block, double* packed) const {
    const std::int64_t row = block % row_blocks() * rows_, column = block / row_blocks() % column_blocks() * columns_;
    const std::int64_t batch = block / row_blocks() / column_blocks();
    const auto &a = shape_.a, &b = shape_.b, &c = shape_.c;
    const BlockProduct p{
        .a = static_cast<const double*>(operands[0]) + shape_.batch_offset(a, batch) + row * a.row_stride,
        .b = static_cast<const double*>(operands[1]) + shape_.batch_offset(b, batch) + column * b.column_stride,
        .c = static_cast<double*>(operands[2]) + shape_.batch_offset(c, batch) + row * c.row_stride +
             column * c.column_stride,
        .rows = std::min(rows_, shape_.m - row),
        .columns = std::min(columns_, shape_.n - column),
        .k = shape_.k,
        .a_row = a.row_stride,
        .a_column = a.column_stride,
        .b_row = b.row_stride,
        .b_column = b.column_stride,
        .c_row = c.row_stride,
        .c_column = c.column_stride,
        .packed_a = packed,
        .packed_b = packed + kBlockInner * (kBlockRows + kTileRows)};
    HWY_DYNAMIC_DISPATCH(multiply_block)(p);
  }

  MatmulShape shape_;
  std::int64_t batches_ = 1, rows_ = kBlockRows, columns_ = kBlockColumns;
  int threads_ = 1;
};

}  // namespace

std::string blocked_matmul_refusal(const KernelCall& call) {
  const MatmulShape shape(call);
  if (shape.is_empty()) return "an extent is 0";
  return shape.dtype == DType::f64 ? "" : fmt::format("{} is not f64", to_string(shape.dtype));
}

std::unique_ptr<PreparedKernel> prepare_blocked_matmul(const KernelCall& call, const Device&) {
  return std::make_unique<BlockedMatmul>(MatmulShape(call));
}

}  // namespace paoding
#endif  // HWY_ONCE
