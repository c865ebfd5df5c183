// SPDX-License-Identifier: Apache-2.0
// Tile routines: sums. A row of f32 is summed in f32 by many lanes (at most a tile's worth of terms, so a few ulp) and
// everything longer in f64; integers are summed in i64.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/tile_sum.cpp"
#include "hwy/foreach_target.h"
//
#include <cstring>

#include "cpu/tile_stored.h"
#include "cpu/tile_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {

// Four vectors of running sums: enough to hide the latency of an addition. Lanes are added up in f64.
template <class T>
double sum_row(const T* a, std::size_t n) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::Add(s0, hn::LoadU(d, a + i));
    s1 = hn::Add(s1, hn::LoadU(d, a + i + lanes));
    s2 = hn::Add(s2, hn::LoadU(d, a + i + 2 * lanes));
    s3 = hn::Add(s3, hn::LoadU(d, a + i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) s0 = hn::Add(s0, hn::LoadU(d, a + i));
  if (i < n) s1 = hn::Add(s1, load_first(d, a + i, n - i));
  HWY_ALIGN T each[hn::MaxLanes(d)];
  hn::Store(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), d, each);
  double sum = 0;
  for (std::size_t k = 0; k < lanes; ++k) sum += static_cast<double>(each[k]);
  return sum;
}

void add_row(double* sums, const float* a, std::size_t n) {
  const hn::ScalableTag<double> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::Rebind<float, decltype(d)> df;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::PromoteTo(d, hn::LoadU(df, a + i));
    hn::StoreU(hn::Add(hn::LoadU(d, sums + i), v), d, sums + i);
  }
#endif
  (void)lanes;
  for (; i < n; ++i) sums[i] += static_cast<double>(a[i]);
}

void add_row(double* sums, const double* a, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) sums[i] += a[i];
}

template <class T>
void accumulate(const Instruction& self, char* const* slots, const TileShape& shape) {
  auto* sums = reinterpret_cast<double*>(slots[self.out]);
  const T* a = reinterpret_cast<const T*>(slots[self.a]);
  const auto rows = static_cast<std::size_t>(shape.rows), cols = static_cast<std::size_t>(shape.cols);
  if (self.cols_reduced && self.rows_reduced) {
    sums[0] += sum_row(a, rows * cols);
    return;
  }
  for (std::size_t r = 0; r < rows; ++r, a += cols, sums += self.pitch) {
    if (self.cols_reduced) {
      sums[0] += sum_row(a, cols);
    } else {
      add_row(sums, a, cols);
    }
  }
}

TileRoutine find_float(DType compute) { return compute == f32 ? accumulate<float> : accumulate<double>; }

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace paoding {
namespace {

template <class T>
void accumulate_integer(const Instruction& self, char* const* slots, const TileShape& shape) {
  auto* sums = reinterpret_cast<std::uint64_t*>(slots[self.out]);  // wraps around
  const T* a = reinterpret_cast<const T*>(slots[self.a]);
  for (std::int64_t r = 0; r < shape.rows; ++r, a += shape.cols, sums += self.pitch) {
    for (std::int64_t c = 0; c < shape.cols; ++c) {
      sums[self.cols_reduced ? 0 : c] += static_cast<std::uint64_t>(static_cast<std::int64_t>(a[c]));
    }
  }
}

TileShape sum_shape(const Instruction& self, const TileShape& shape) {
  return {self.rows_reduced ? 1 : shape.rows, self.cols_reduced ? 1 : shape.cols};
}

void zero(const Instruction& self, char* const* slots, const TileShape& shape) {
  const TileShape sums = sum_shape(self, shape);
  for (std::int64_t r = 0; r < sums.rows; ++r) {
    std::memset(slots[self.out] + r * self.pitch * kSumBytes, 0, static_cast<std::size_t>(sums.cols * kSumBytes));
  }
}

template <DType kStored, class Sum>
void flush(const Instruction& self, char* const* slots, const TileShape& shape) {
  using S = Stored<kStored>;
  auto* out = reinterpret_cast<typename S::Type*>(slots[self.out]);
  const auto* a = reinterpret_cast<const Sum*>(slots[self.a]);
  const TileShape sums = sum_shape(self, shape);
  for (std::int64_t r = 0; r < sums.rows; ++r, a += self.pitch, out += self.row_stride) {
    for (std::int64_t c = 0; c < sums.cols; ++c) {
      auto& element = out[c * self.col_stride];
      Sum sum = a[c];
      if (self.accumulate) sum += static_cast<Sum>(S::load(element));
      if constexpr (kStored == DType::boolean) {
        element = sum != 0;
      } else {
        element = S::store(static_cast<typename S::Compute>(sum));
      }
    }
  }
}

}  // namespace

HWY_EXPORT(find_float);

TileRoutine find_zero() { return zero; }

TileRoutine find_accumulate(DType compute) {
  switch (compute) {
    case DType::i64: return accumulate_integer<std::int64_t>;
    case DType::i32: return accumulate_integer<std::int32_t>;
    case DType::boolean: return accumulate_integer<std::uint8_t>;
    default: return HWY_DYNAMIC_DISPATCH(find_float)(compute);
  }
}

TileRoutine find_flush(DType compute, DType stored) {
  if (is_float(compute)) {
    return visit_stored(stored, [](auto dtype) -> TileRoutine { return flush<dtype.value, double>; });
  }
  return visit_stored(stored, [](auto dtype) -> TileRoutine { return flush<dtype.value, std::int64_t>; });
}

}  // namespace paoding
#endif
