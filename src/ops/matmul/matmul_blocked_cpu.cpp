// SPDX-License-Identifier: Apache-2.0
// Products in blocks, of f64, and of f32 where a lies by columns, as for gradients of weights: rows of a and a panel of
// b are packed so that they fit the caches and lie in the order in which the inner kernel reads them, whatever the
// operands' strides (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008). The result is
// cut into a piece for each thread; each packs for itself.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/matmul/matmul_blocked_cpu.cpp"
#include "hwy/foreach_target.h"
//
#include <algorithm>
#include <type_traits>

#include "base/cancel_poll.h"
#include "base/check.h"
#include "cpu/parallel.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "ops/matmul/matmul_cpu.h"
#include "ops/matmul/matmul_shape.h"

#ifndef PAODING_MATMUL_BLOCKED_H_
#define PAODING_MATMUL_BLOCKED_H_
namespace paoding {
inline constexpr std::int64_t kTileRows = 6;      // of the inner kernel
inline constexpr std::int64_t kPanelBytes = 256;  // of a row of a panel of b, at most
inline constexpr std::int64_t kBlockRows = 512;   // of a, that are packed at once

/// Numbers of a row of a that are multiplied at a time: 128 KB of a panel, 1 MB of a's rows.
template <class T>
constexpr std::int64_t kBlockInner = 2048 / static_cast<std::int64_t>(sizeof(T));

/// A piece of c: rows x columns, with strides, and where its rows of a and columns of b start.
template <class T>
struct BlockProduct {
  const T *a, *b;
  T* c;
  std::int64_t rows, columns, k;
  std::int64_t a_row, a_column, b_row, b_column, c_row, c_column;
  T *packed_a, *panel;
};
}  // namespace paoding
#endif

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors of a panel's row: with 6 rows of sums, 24 of 32 registers, or 12 of 16.
constexpr std::int64_t kVectors = HWY_MAX_BYTES >= 64 ? 4 : 2;

template <class T>
HWY_INLINE std::int64_t panel_width() {
  return kVectors * static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()));
}

// c [kRows, panel_width()] = packed rows of a times a panel of b, or that is added to it.
template <std::int64_t kRows, class T>
HWY_INLINE void multiply_tile(const T* a, const T* panel, std::int64_t k, bool is_added, T* c, std::int64_t c_row) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V sums[kRows][kVectors];
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t v = 0; v < kVectors; ++v) {
      hwy::Prefetch(c + r * c_row + v * lanes);  // on their way while the tile is multiplied
      sums[r][v] = hn::Zero(d);
    }
  }
  for (std::int64_t i = 0; i < k; ++i, a += kRows, panel += kVectors * lanes) {
    V factors[kVectors];
    for (std::int64_t v = 0; v < kVectors; ++v) factors[v] = hn::Load(d, panel + v * lanes);
    for (std::int64_t r = 0; r < kRows; ++r) {
      const V element = hn::Set(d, a[r]);
      for (std::int64_t v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(element, factors[v], sums[r][v]);
    }
  }
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t v = 0; v < kVectors; ++v) {
      T* to = c + r * c_row + v * lanes;
      hn::StoreU(is_added ? hn::Add(hn::LoadU(d, to), sums[r][v]) : sums[r][v], d, to);
    }
  }
}

// Calls work(rows) with 1 .. kTileRows as a constant.
template <class Work>
HWY_INLINE void with_rows(std::int64_t rows, const Work& work) {
  switch (rows) {
    case 1: return work(std::integral_constant<std::int64_t, 1>());
    case 2: return work(std::integral_constant<std::int64_t, 2>());
    case 3: return work(std::integral_constant<std::int64_t, 3>());
    case 4: return work(std::integral_constant<std::int64_t, 4>());
    case 5: return work(std::integral_constant<std::int64_t, 5>());
    default: return work(std::integral_constant<std::int64_t, kTileRows>());
  }
}

// Groups of rows of about the same size, at most kTileRows.
HWY_INLINE std::int64_t groups_of(std::int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }
HWY_INLINE std::int64_t start_of(std::int64_t group, std::int64_t rows) { return rows * group / groups_of(rows); }

// Rows first .. end - 1 of a, k elements of each from `from` on: one group after the other, of each element all rows.
template <class T>
void pack_rows(const BlockProduct<T>& p, std::int64_t first, std::int64_t end, std::int64_t from, std::int64_t k) {
  constexpr std::int64_t kTogether = 16;  // elements, of which all groups are packed, then the next: a few lines of a
  const std::int64_t rows = end - first;
  for (std::int64_t i = 0; i < k; i += kTogether) {
    const std::int64_t last = std::min(i + kTogether, k);
    for (std::int64_t group = 0; group < groups_of(rows); ++group) {
      const std::int64_t row = start_of(group, rows);
      const T* a = p.a + (first + row) * p.a_row + from * p.a_column;
      with_rows(start_of(group + 1, rows) - row, [&](auto count) {
        T* to = p.packed_a + row * k + i * count;
        for (std::int64_t j = i; j < last; ++j, to += count) {
          if (p.a_row == 1) {
            for (std::int64_t r = 0; r < count; ++r) to[r] = a[r + j * p.a_column];
          } else {
            for (std::int64_t r = 0; r < count; ++r) to[r] = a[r * p.a_row + j * p.a_column];
          }
        }
      });
    }
  }
}

#if HWY_TARGET != HWY_SCALAR
// A whole panel of columns that are contiguous: of two at a time a cache line each, all of which is used at once, as
// lines of all columns may have the same place in a cache.
HWY_INLINE void turn_columns(const double* columns, std::int64_t stride, std::int64_t k, std::int64_t width,
                             double* panel) {
  constexpr std::int64_t kTogether = 8;
  const hn::FixedTag<double, 2> d;
  for (std::int64_t first = 0; first < k; first += kTogether) {
    const std::int64_t end = std::min(first + kTogether, k);
    for (std::int64_t j = 0; j < width; j += 2) {
      const double *one = columns + j * stride, *other = one + stride;
      std::int64_t i = first;
      for (; i + 2 <= end; i += 2) {
        const auto a = hn::LoadU(d, one + i), b = hn::LoadU(d, other + i);
        hn::StoreU(hn::InterleaveLower(d, a, b), d, panel + i * width + j);
        hn::StoreU(hn::InterleaveUpper(d, a, b), d, panel + (i + 1) * width + j);
      }
      if (i < end) panel[i * width + j] = one[i], panel[i * width + j + 1] = other[i];
    }
  }
}
#endif

// `columns` columns of b from `column` on, k elements of each, padded with zeros.
template <class T>
void pack_panel(const BlockProduct<T>& p, std::int64_t column, std::int64_t columns, std::int64_t from,
                std::int64_t k) {
  const hn::ScalableTag<T> d;
  const std::int64_t width = panel_width<T>();
  T* to = p.panel;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<T, double>) {
    if (columns == width && p.b_row == 1) {
      return turn_columns(p.b + from + column * p.b_column, p.b_column, k, width, to);
    }
  }
#endif
  for (std::int64_t i = 0; i < k; ++i, to += width) {
    const T* b = p.b + (from + i) * p.b_row + column * p.b_column;
    if (columns == width && p.b_column == 1) {
      for (std::int64_t j = 0; j < width; j += static_cast<std::int64_t>(hn::Lanes(d))) {
        hn::Store(hn::LoadU(d, b + j), d, to + j);
      }
    } else {
      for (std::int64_t j = 0; j < columns; ++j) to[j] = b[j * p.b_column];
      std::fill(to + columns, to + width, T{});
    }
  }
}

template <class T>
HWY_INLINE void multiply_blocks(const BlockProduct<T>& p) {
  const std::int64_t width = panel_width<T>();
  HWY_ALIGN T tile[kTileRows * kPanelBytes / sizeof(T)];
  const std::int64_t parts = (p.k + kBlockInner<T> - 1) / kBlockInner<T>;
  const std::int64_t blocks = (p.rows + kBlockRows - 1) / kBlockRows;
  for (std::int64_t turn = 0; turn < parts * blocks; ++turn) {
    const std::int64_t part = turn / blocks, block = turn % blocks;
    const std::int64_t from = p.k * part / parts, k = p.k * (part + 1) / parts - from;
    const std::int64_t first = p.rows * block / blocks, end = p.rows * (block + 1) / blocks, rows = end - first;
    pack_rows(p, first, end, from, k);
    for (std::int64_t column = 0; column < p.columns; column += width) {
      const std::int64_t columns = std::min(width, p.columns - column);
      pack_panel(p, column, columns, from, k);
      for (std::int64_t group = 0; group < groups_of(rows); ++group) {
        const std::int64_t row = start_of(group, rows);
        T* c = p.c + (first + row) * p.c_row + column * p.c_column;
        with_rows(start_of(group + 1, rows) - row, [&](auto count) {
          const T* a = p.packed_a + row * k;
          if (columns == width && p.c_column == 1) return multiply_tile<count>(a, p.panel, k, part > 0, c, p.c_row);
          multiply_tile<count>(a, p.panel, k, false, tile, width);
          for (std::int64_t r = 0; r < count; ++r) {
            for (std::int64_t j = 0; j < columns; ++j) {
              T& element = c[r * p.c_row + j * p.c_column];
              element = part == 0 ? tile[r * width + j] : element + tile[r * width + j];
            }
          }
        });
      }
    }
  }
}

void multiply_singles(const BlockProduct<float>& p) { multiply_blocks(p); }
void multiply_doubles(const BlockProduct<double>& p) { multiply_blocks(p); }

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace paoding {
namespace {

HWY_EXPORT(multiply_singles);
HWY_EXPORT(multiply_doubles);
void multiply_block(const BlockProduct<float>& p) { HWY_DYNAMIC_DISPATCH(multiply_singles)(p); }
void multiply_block(const BlockProduct<double>& p) { HWY_DYNAMIC_DISPATCH(multiply_doubles)(p); }

template <class T>
class BlockedMatmul : public PreparedKernel {
 public:
  explicit BlockedMatmul(MatmulShape shape) : shape_(std::move(shape)) {
    for (std::int64_t extent : shape_.batch) batches_ *= extent;
    constexpr std::int64_t kWorthThreads = 1 << 18;  // multiplications
    if (shape_.products() < kWorthThreads) return;
    cut(std::max<std::int64_t>(max_threads() / batches_, 1));
    threads_ = static_cast<int>(std::min<std::int64_t>(max_threads(), pieces()));
  }

  std::int64_t scratch_bytes() const override { return threads_ * kPackedBytes; }

  void run(const KernelRun& run) const override {
    const CancelPoll poll;
    poll();
    share_out(threads_, pieces(), [&](std::int64_t begin, std::int64_t end, int thread) {
      auto* packed = reinterpret_cast<T*>(static_cast<char*>(run.scratch) + thread * kPackedBytes);
      for (std::int64_t piece = begin; piece < end; ++piece) run_piece(run.operands, piece, packed);
    });
  }

 private:
  static constexpr std::int64_t kPanelElements = kBlockInner<T> * kPanelBytes / static_cast<std::int64_t>(sizeof(T));
  static constexpr std::int64_t kPackedBytes =
      (kPanelElements + kBlockInner<T> * kBlockRows) * static_cast<std::int64_t>(sizeof(T));

  // Cuts rows and columns so that threads pack as little as they can.
  void cut(std::int64_t parts) {
    constexpr std::int64_t kCostOfRows = 3;  // an element of a, beside one of b
    const auto cost = [&](std::int64_t by_rows) {
      return kCostOfRows * shape_.m / by_rows + shape_.n * by_rows / parts;
    };
    std::int64_t best = 1;
    for (std::int64_t by_rows = 2; by_rows <= parts; ++by_rows) {
      if (parts % by_rows == 0 && cost(by_rows) < cost(best)) best = by_rows;
    }
    constexpr std::int64_t kPieceRows = 2 * kTileRows, kPieceColumns = 64;  // at least
    row_pieces_ = std::clamp<std::int64_t>(shape_.m / kPieceRows, 1, best);
    column_pieces_ = std::clamp<std::int64_t>(shape_.n / kPieceColumns, 1, parts / best);
  }

  std::int64_t pieces() const { return batches_ * row_pieces_ * column_pieces_; }

  void run_piece(void* const* operands, std::int64_t piece, T* packed) const {
    const std::int64_t by_row = piece % row_pieces_, by_column = piece / row_pieces_ % column_pieces_;
    const std::int64_t batch = piece / row_pieces_ / column_pieces_;
    constexpr std::int64_t kWhole = 64;  // columns begin at whole panels
    const std::int64_t wholes = (shape_.n + kWhole - 1) / kWhole;
    const std::int64_t row = shape_.m * by_row / row_pieces_, column = wholes * by_column / column_pieces_ * kWhole;
    const std::int64_t end_column = std::min(wholes * (by_column + 1) / column_pieces_ * kWhole, shape_.n);
    const auto &a = shape_.a, &b = shape_.b, &c = shape_.c;
    multiply_block(BlockProduct<T>{
        .a = static_cast<const T*>(operands[0]) + shape_.batch_offset(a, batch) + row * a.row_stride,
        .b = static_cast<const T*>(operands[1]) + shape_.batch_offset(b, batch) + column * b.column_stride,
        .c = static_cast<T*>(operands[2]) + shape_.batch_offset(c, batch) + row * c.row_stride +
             column * c.column_stride,
        .rows = shape_.m * (by_row + 1) / row_pieces_ - row,
        .columns = end_column - column,
        .k = shape_.k,
        .a_row = a.row_stride,
        .a_column = a.column_stride,
        .b_row = b.row_stride,
        .b_column = b.column_stride,
        .c_row = c.row_stride,
        .c_column = c.column_stride,
        .packed_a = packed + kPanelElements,
        .panel = packed});
  }

  MatmulShape shape_;
  std::int64_t batches_ = 1, row_pieces_ = 1, column_pieces_ = 1;
  int threads_ = 1;
};

}  // namespace

std::string blocked_matmul_refusal(const KernelCall& call) {
  constexpr std::int64_t kRows = 256, kColumns = 1024, kDeep = 512;  // fewer are the library's in as little time
  constexpr int kFewThreads = 2;
  const MatmulShape shape(call);
  if (shape.is_empty()) return "an extent is 0";
  if (shape.dtype == DType::f64) return "";
  if (shape.dtype != DType::f32) return fmt::format("{} is neither f64 nor f32", to_string(shape.dtype));
  const bool is_of_weights = shape.a.row_stride == 1 && shape.b.column_stride == 1 && shape.c.column_stride == 1;
  if (!is_of_weights || !shape.batch.empty()) return "f32, and not columns of a with rows of b";
  if (shape.m < kRows || shape.n < kColumns || shape.k < kDeep)
    return fmt::format("{} x {} x {} of f32 is less than {} x {} x {}", shape.m, shape.n, shape.k, kRows, kColumns,
                       kDeep);
  if (call.target->isa != VectorIsa::avx512) return "f32 without AVX-512 is the library's";
  // With 16 a library is ahead in some of these shapes (benchmarks/results/2026-11-26-training-cpu.txt).
  if (call.target->threads > kFewThreads)
    return fmt::format("f32 with more than {} threads is the library's", kFewThreads);
  return "";
}

std::unique_ptr<PreparedKernel> prepare_blocked_matmul(const KernelCall& call, const Device&) {
  const MatmulShape shape(call);
  if (shape.dtype == DType::f32) return std::make_unique<BlockedMatmul<float>>(shape);
  return std::make_unique<BlockedMatmul<double>>(shape);
}

}  // namespace paoding
#endif  // HWY_ONCE
