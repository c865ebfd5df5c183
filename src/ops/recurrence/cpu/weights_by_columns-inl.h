// SPDX-License-Identifier: Apache-2.0
// u that lies by columns, [gates * H, H], as PyTorch keeps it: the forward part of a recurrence turns tiles of it into
// its panels, or adds up whole columns where few rows of very few steps are multiplied.
#if defined(PAODING_WEIGHTS_BY_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAODING_WEIGHTS_BY_COLUMNS_INL_H_
#undef PAODING_WEIGHTS_BY_COLUMNS_INL_H_
#else
#define PAODING_WEIGHTS_BY_COLUMNS_INL_H_
#endif

#include "hwy/cache_control.h"
#include "ops/recurrence/cpu/recurrence_work-inl.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
// Words of four vectors that are below each other side by side: to_stride apart in `to`.
template <class D>
HWY_INLINE void turn_words(D d, const hn::Vec<D>* from, hn::TFromD<D>* to, std::int64_t to_stride) {
  const hn::FixedTag<std::uint64_t, 2> wide;
  const auto both = [&](auto a) { return hn::BitCast(wide, a); };
  const auto lower01 = both(hn::InterleaveLower(d, from[0], from[1]));
  const auto lower23 = both(hn::InterleaveLower(d, from[2], from[3]));
  const auto upper01 = both(hn::InterleaveUpper(d, from[0], from[1]));
  const auto upper23 = both(hn::InterleaveUpper(d, from[2], from[3]));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, lower01, lower23)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, lower01, lower23)), d, to + to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, upper01, upper23)), d, to + 2 * to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, upper01, upper23)), d, to + 3 * to_stride);
}
#endif

// pack_gates() of u by columns: rows first_row .. end_row - 1 of the panel. A tile is some of each of its columns'
// lines.
template <class Cell, class M, std::int64_t kBlocks>
void pack_columns(const RecurrenceWork& w, std::int64_t block, std::int64_t first_row, std::int64_t end_row,
                  typename M::Stored* panel) {
  using T = typename M::Stored;
  constexpr std::int64_t kParts = kBlocks * Cell::kGates, kWidth = kParts * kUnitBlock;
  constexpr std::int64_t kDeep = has_pairs<M> ? 2 : 1, kWords = 4;  // a word: elements side by side in a panel
  constexpr std::int64_t kTile = kUnitBlock * kDeep;
  const std::int64_t H = w.hidden;
  for (std::int64_t part = 0; part < kParts; ++part) {
    const std::int64_t first = (block + part / Cell::kGates) * kUnitBlock, gate = part % Cell::kGates;
    const T* columns = static_cast<const T*>(w.u) + (gate * H + first) * H;
    for (std::int64_t from = first_row; from < end_row; from += kTile) {
      const std::int64_t end = std::min(from + kTile, end_row);
      for (std::int64_t j = 0; j < kUnitBlock; j += kWords) {
        std::int64_t k = from;
#if HWY_TARGET != HWY_SCALAR
        if constexpr (sizeof(T) * kDeep == sizeof(std::uint32_t)) {
          const hn::FixedTag<std::uint32_t, kWords> words;
          const hn::Repartition<T, decltype(words)> stored;
          for (; first + j + kWords <= H && k + kWords * kDeep <= std::min(end, H); k += kWords * kDeep) {
            hn::Vec<decltype(words)> transposed[kWords];
            for (std::int64_t i = 0; i < kWords; ++i) {
              transposed[i] = hn::BitCast(words, hn::LoadU(stored, columns + (j + i) * H + k));
            }
            auto* to = reinterpret_cast<std::uint32_t*>(panel + panel_at<M>(k, part * kUnitBlock + j, kWidth));
            turn_words(words, transposed, to, kWidth);
          }
        }
#endif
        for (; k < end; ++k) {
          for (std::int64_t i = j; i < j + kWords; ++i) {
            const bool is_there = k < H && first + i < H;
            panel[panel_at<M>(k, part * kUnitBlock + i, kWidth)] = is_there ? columns[i * H + k] : T{};
          }
        }
      }
    }
  }
}

// Columns begin .. begin + kAtOnce - 1 of a gate of h u, for rows of h.
template <std::int64_t kRows, std::int64_t kAtOnce, class T>
HWY_INLINE void multiply_columns(std::int64_t H, const float* h, const T* columns, std::int64_t stride, float* sums) {
  const Lanes d;
  const OneLane one;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  hn::Vec<Lanes> totals[kRows][kAtOnce];
  for (auto& row : totals) {
    for (auto& total : row) total = hn::Zero(d);
  }
  std::int64_t k = 0;
  for (; k + lanes <= H; k += lanes) {
    hn::Vec<Lanes> rows[kRows];
    for (std::int64_t r = 0; r < kRows; ++r) rows[r] = hn::LoadU(d, h + r * H + k);
    for (std::int64_t q = 0; q < kAtOnce; ++q) {
      const auto column = load(d, columns + q * H + k);
      hwy::Prefetch(columns + (kAtOnce + q) * H + k);  // of the next, as matmul_vector_cpu.cpp does
      for (std::int64_t r = 0; r < kRows; ++r) totals[r][q] = hn::MulAdd(rows[r], column, totals[r][q]);
    }
  }
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t q = 0; q < kAtOnce; ++q) {
      float total = hn::GetLane(hn::SumOfLanes(d, totals[r][q]));
      for (std::int64_t i = k; i < H; ++i) total += h[r * H + i] * hn::GetLane(load(one, columns + q * H + i));
      sums[r * stride + q] = total;
    }
  }
}

// multiply_in_place() of u by columns.
template <class Cell, std::int64_t kRows, class T>
HWY_INLINE void multiply_in_columns(const RecurrenceWork& w, const float* h, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kAtOnce = 4;
  const std::int64_t H = w.hidden, stride = Cell::kGates * H;
  for (std::int64_t gate = 0; gate < Cell::kGates; ++gate) {
    const T* columns = static_cast<const T*>(w.u) + gate * H * H;
    float* sums = w.sums + gate * H;
    std::int64_t j = begin;
    for (; j + kAtOnce <= end; j += kAtOnce) {
      multiply_columns<kRows, kAtOnce>(H, h, columns + j * H, stride, sums + j);
    }
    for (; j < end; ++j) multiply_columns<kRows, 1>(H, h, columns + j * H, stride, sums + j);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#endif  // per target
