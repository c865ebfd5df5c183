// SPDX-License-Identifier: Apache-2.0
// One to four rows of f32 or bf16 times a matrix, alone or per batch: attention of one query, a layer for one request.
// All the time goes into reading the matrix once, so it is read along its contiguous axis, several rows or columns at a
// time. (Measured on AVX-512, one row times [256, 1024]: oneDNN 2.6.3 takes 37 us, 28 GB/s from L2.) Sums are f32.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/matmul/matmul_vector_cpu.cpp"
#include "hwy/foreach_target.h"
//
#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/product.h"
#include "cpu/parallel.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "ops/elements-inl.h"
#include "ops/matmul/matmul_cpu.h"
#include "ops/matmul/matmul_shape.h"

#ifndef PAODING_MATMUL_VECTOR_H_
#define PAODING_MATMUL_VECTOR_H_
namespace paoding {
/// c [rows, n] = a [rows, k] * b [k, n] for columns [begin, end) of one batch.
struct VectorProduct {
  const void *a, *b;
  void* c;
  std::int64_t rows, k, begin, end;
  std::int64_t lda, ldb, row_stride, column_stride;  // strides of c last
};
}  // namespace paoding
#endif

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t kRowsAtOnce = 8;  // of b: as many streams as the prefetchers follow

constexpr std::int64_t kColumns = 2048;  // of c per tile: 8 KB a row

HWY_INLINE float number(const float* at) { return *at; }
HWY_INLINE float number(const Half* at) { return hn::GetLane(load(hn::CappedTag<float, 1>(), at)); }

// b has contiguous rows. The sums of a tile of columns stay in L1 while rows of b pass by; `sums`: those of column j,
// with `stride` from row to row.
template <std::int64_t kRows, class T, class D>
HWY_INLINE void add_rows(D d, const VectorProduct& p, float* sums, std::int64_t stride, std::int64_t from,
                         std::int64_t count, std::int64_t j) {
  using V = hn::Vec<D>;
  const T *a = static_cast<const T*>(p.a), *b = static_cast<const T*>(p.b);
  V totals[kRows];
  for (std::int64_t r = 0; r < kRows; ++r) {
    totals[r] = from == 0 ? hn::Zero(d) : hn::LoadU(d, sums + r * stride);
  }
  for (std::int64_t i = from; i < from + count; ++i) {
    const V row = load(d, b + i * p.ldb + j);
    for (std::int64_t r = 0; r < kRows; ++r) {
      totals[r] = hn::MulAdd(hn::Set(d, number(a + r * p.lda + i)), row, totals[r]);
    }
  }
  for (std::int64_t r = 0; r < kRows; ++r) hn::StoreU(totals[r], d, sums + r * stride);
}

template <std::int64_t kRows, class T>
void by_rows(const VectorProduct& p) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr bool kIsWide = sizeof(T) == sizeof(float);  // then c itself holds the sums
  HWY_ALIGN float tile[kIsWide ? 1 : kRows * kColumns];
  T* c = static_cast<T*>(p.c);
  for (std::int64_t begin = p.begin; begin < p.end; begin += kColumns) {
    const std::int64_t end = std::min(begin + kColumns, p.end);
    const std::int64_t stride = kIsWide ? p.row_stride : kColumns;
    const auto sums = [&](std::int64_t j) -> float* {
      if constexpr (kIsWide) return c + j;
      return tile + (j - begin);
    };
    for (std::int64_t i = 0; i < p.k; i += kRowsAtOnce) {
      const std::int64_t count = std::min(kRowsAtOnce, p.k - i);
      std::int64_t j = begin;
      if (count == kRowsAtOnce) {
        for (; j + lanes <= end; j += lanes) add_rows<kRows, T>(d, p, sums(j), stride, i, kRowsAtOnce, j);
      } else {
        for (; j + lanes <= end; j += lanes) add_rows<kRows, T>(d, p, sums(j), stride, i, count, j);
      }
      for (; j < end; ++j) add_rows<kRows, T>(one, p, sums(j), stride, i, count, j);
    }
    if constexpr (!kIsWide) {
      for (std::int64_t r = 0; r < kRows; ++r) {
        std::int64_t j = begin;
        for (; j + lanes <= end; j += lanes) {
          store(d, hn::LoadU(d, sums(j) + r * stride), c + r * p.row_stride + j);
        }
        for (; j < end; ++j) store(one, hn::LoadU(one, sums(j) + r * stride), c + r * p.row_stride + j);
      }
    }
  }
}

// b has contiguous columns: dot products, kAtOnce columns at a time.
template <std::int64_t kRows, class T, std::int64_t kAtOnce>
HWY_INLINE void dot_columns(const VectorProduct& p, std::int64_t j) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const T *a = static_cast<const T*>(p.a), *b = static_cast<const T*>(p.b) + j * p.ldb;
  V sums[kRows][kAtOnce];
  for (auto& row : sums) {
    for (V& sum : row) sum = hn::Zero(d);
  }
  std::int64_t i = 0;
  for (; i + lanes <= p.k; i += lanes) {
    V rows[kRows];
    for (std::int64_t r = 0; r < kRows; ++r) rows[r] = load(d, a + r * p.lda + i);
    for (std::int64_t q = 0; q < kAtOnce; ++q) {
      const V column = load(d, b + q * p.ldb + i);
      hwy::Prefetch(b + (kAtOnce + q) * p.ldb + i);  // of the next: prefetchers do not follow columns of a page or less
      for (std::int64_t r = 0; r < kRows; ++r) sums[r][q] = hn::MulAdd(rows[r], column, sums[r][q]);
    }
  }
  const hn::CappedTag<float, 1> one;
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t q = 0; q < kAtOnce; ++q) {
      float total = hn::GetLane(hn::SumOfLanes(d, sums[r][q]));
      for (std::int64_t rest = i; rest < p.k; ++rest)
        total += number(a + r * p.lda + rest) * number(b + q * p.ldb + rest);
      T* c = static_cast<T*>(p.c) + r * p.row_stride + (j + q) * p.column_stride;
      store(one, hn::Set(one, total), c);
    }
  }
}

template <std::int64_t kRows, class T>
void by_columns(const VectorProduct& p) {
  std::int64_t j = p.begin;
  for (; j + 4 <= p.end; j += 4) dot_columns<kRows, T, 4>(p, j);
  for (; j < p.end; ++j) dot_columns<kRows, T, 1>(p, j);
}

template <class T>
void multiply_rows_of(const VectorProduct& p) {
  switch (p.rows) {
    case 1: return by_rows<1, T>(p);
    case 2: return by_rows<2, T>(p);
    case 3: return by_rows<3, T>(p);
    default: return by_rows<4, T>(p);
  }
}

template <class T>
void multiply_columns_of(const VectorProduct& p) {
  switch (p.rows) {
    case 1: return by_columns<1, T>(p);
    case 2: return by_columns<2, T>(p);
    case 3: return by_columns<3, T>(p);
    default: return by_columns<4, T>(p);
  }
}

void multiply_by_rows(const VectorProduct& p, bool is_half) {
  is_half ? multiply_rows_of<Half>(p) : multiply_rows_of<float>(p);
}
void multiply_by_columns(const VectorProduct& p, bool is_half) {
  is_half ? multiply_columns_of<Half>(p) : multiply_columns_of<float>(p);
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace paoding {
namespace {

HWY_EXPORT(multiply_by_rows);
HWY_EXPORT(multiply_by_columns);

constexpr std::int64_t kMostRows = 4;

// The product with the few rows in a: as given, or transposed when b has the few columns.
MatmulShape oriented(const KernelCall& call) {
  MatmulShape shape(call);
  if (shape.m <= kMostRows) return shape;
  std::swap(shape.m, shape.n);
  std::swap(shape.a, shape.b);
  for (MatmulOperand* operand : {&shape.a, &shape.b, &shape.c}) std::swap(operand->row_stride, operand->column_stride);
  return shape;
}

class VectorMatmul : public PreparedKernel {
 public:
  explicit VectorMatmul(MatmulShape shape) : shape_(std::move(shape)) {
    for (std::int64_t extent : shape_.batch) batches_ *= extent;
    by_rows_ = shape_.b.column_stride == 1 && (shape_.c.column_stride == 1 || shape_.n == 1);
    if (shape_.n == 1) by_rows_ = shape_.b.row_stride != 1;
    // A thread is worth waking for 64 KB of b.
    const std::int64_t work = capped_product({batches_, shape_.n, shape_.k});
    threads_ = static_cast<int>(std::clamp<std::int64_t>(work / 16384, 1, max_threads()));
    // Columns are shared out too when there are not enough batches; in whole cache lines.
    constexpr std::int64_t kLine = 16;
    const std::int64_t most_parts = std::max<std::int64_t>(shape_.n / (4 * kLine), 1);
    parts_ = batches_ >= 4 * threads_ ? 1 : std::min<std::int64_t>(threads_, most_parts);
    width_ = ((shape_.n + parts_ - 1) / parts_ + kLine - 1) / kLine * kLine;
  }

  void run(const KernelRun& run) const override {
    share_out(threads_, batches_ * parts_, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t unit = begin; unit < end; ++unit) run_unit(run.operands, unit / parts_, unit % parts_);
    });
  }

  bool is_swapped = false;

 private:
  void run_unit(void* const* operands, std::int64_t batch, std::int64_t part) const {
    VectorProduct p{};
    p.begin = std::min(part * width_, shape_.n);
    p.end = std::min(p.begin + width_, shape_.n);
    p.rows = shape_.m;
    p.k = shape_.k;
    const bool is_half = shape_.dtype == DType::bf16;
    const auto at = [&](int operand, const MatmulOperand& of) {
      return static_cast<std::byte*>(operands[operand]) + shape_.batch_offset(of, batch) * (is_half ? 2 : 4);
    };
    p.a = at(is_swapped ? 1 : 0, shape_.a);
    p.b = at(is_swapped ? 0 : 1, shape_.b);
    p.c = at(2, shape_.c);
    p.lda = shape_.a.row_stride;
    p.ldb = by_rows_ ? shape_.b.row_stride : shape_.b.column_stride;
    p.row_stride = shape_.c.row_stride;
    p.column_stride = shape_.c.column_stride;
    if (by_rows_) {
      HWY_DYNAMIC_DISPATCH(multiply_by_rows)(p, is_half);
    } else {
      HWY_DYNAMIC_DISPATCH(multiply_by_columns)(p, is_half);
    }
  }

  MatmulShape shape_;
  std::int64_t batches_ = 1, parts_ = 1, width_ = 0;
  int threads_ = 1;
  bool by_rows_ = false;
};

}  // namespace

std::string vector_matmul_refusal(const KernelCall& call) {
  const MatmulShape given(call), shape = oriented(call);
  if (given.is_empty()) return "an extent is 0";
  if (given.dtype != DType::f32 && given.dtype != DType::bf16) {
    return fmt::format("{} is not f32 or bf16", to_string(given.dtype));
  }
  if (shape.m > kMostRows)
    return fmt::format("a has {} rows and b {} columns, more than {}", given.m, given.n, kMostRows);
  if (shape.a.column_stride != 1 && shape.k > 1) return "the few rows are not contiguous";
  const bool has_rows = shape.b.column_stride == 1 && shape.c.column_stride == 1;
  if (!has_rows && shape.b.row_stride != 1) return "the matrix has neither rows nor columns contiguous";
  return "";
}

std::unique_ptr<PreparedKernel> prepare_vector_matmul(const KernelCall& call, const Device&) {
  auto kernel = std::make_unique<VectorMatmul>(oriented(call));
  kernel->is_swapped = MatmulShape(call).m > kMostRows;
  return kernel;
}

}  // namespace paoding
#endif  // HWY_ONCE
