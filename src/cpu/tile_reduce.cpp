// SPDX-License-Identifier: Apache-2.0
// Tile routines: reductions. A row of f32 is summed in f32 by many lanes (at most a tile's worth of terms, so a few
// ulp) and everything longer in f64; the largest and the smallest are exact in any order; products are taken in f64,
// where they do not overflow halfway. Integers are combined in i64.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/tile_reduce.cpp"
#include "hwy/foreach_target.h"
//
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/tile_stored.h"
#include "cpu/tile_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {

struct Sum {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V combine(D, V a, V b) {
    return hn::Add(a, b);
  }
  template <class T>
  static T identity() {
    return 0;
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE double across(D d, V v) {
    return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, v)));
  }
};

// The comparison's winner is chosen unless the new one is a NaN; an old NaN stays.
struct Max {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V combine(D, V a, V b) {
    return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
  }
  template <class T>
  static T identity() {
    return -std::numeric_limits<T>::infinity();
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE double across(D d, V v) {
    if (!hn::AllFalse(d, hn::IsNaN(v))) return std::numeric_limits<double>::quiet_NaN();
    return static_cast<double>(hn::GetLane(hn::MaxOfLanes(d, v)));
  }
};

struct Min {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V combine(D, V a, V b) {
    return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
  }
  template <class T>
  static T identity() {
    return std::numeric_limits<T>::infinity();
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE double across(D d, V v) {
    if (!hn::AllFalse(d, hn::IsNaN(v))) return std::numeric_limits<double>::quiet_NaN();
    return static_cast<double>(hn::GetLane(hn::MinOfLanes(d, v)));
  }
};

template <class Op, class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_rest(D d, const T* from, std::size_t n) {
  return hn::IfThenElse(hn::FirstN(d, n), load_first(d, from, n), hn::Set(d, Op::template identity<T>()));
}

// Four vectors of running results: enough to hide the latency of an addition.
template <class Op, class T>
HWY_INLINE double reduce_row(const T* a, std::size_t n) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  if (n <= lanes) return Op::across(d, load_rest<Op>(d, a, n));
  auto s0 = hn::Set(d, Op::template identity<T>()), s1 = s0, s2 = s0, s3 = s0;
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = Op::combine(d, s0, hn::LoadU(d, a + i));
    s1 = Op::combine(d, s1, hn::LoadU(d, a + i + lanes));
    s2 = Op::combine(d, s2, hn::LoadU(d, a + i + 2 * lanes));
    s3 = Op::combine(d, s3, hn::LoadU(d, a + i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) s0 = Op::combine(d, s0, hn::LoadU(d, a + i));
  if (i < n) s1 = Op::combine(d, s1, load_rest<Op>(d, a + i, n - i));
  return Op::across(d, Op::combine(d, Op::combine(d, s0, s1), Op::combine(d, s2, s3)));
}

template <class Op>
void combine_rows(double* sums, const float* a, std::size_t n) {
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<double> d;
  const std::size_t lanes = hn::Lanes(d);
  const hn::Rebind<float, decltype(d)> df;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::PromoteTo(d, hn::LoadU(df, a + i));
    hn::StoreU(Op::combine(d, hn::LoadU(d, sums + i), v), d, sums + i);
  }
#endif
  const hn::CappedTag<double, 1> one;
  for (; i < n; ++i) {
    const auto v = hn::Set(one, static_cast<double>(a[i]));
    hn::StoreU(Op::combine(one, hn::LoadU(one, sums + i), v), one, sums + i);
  }
}

template <class Op>
void combine_rows(double* sums, const double* a, std::size_t n) {
  const hn::ScalableTag<double> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(Op::combine(d, hn::LoadU(d, sums + i), hn::LoadU(d, a + i)), d, sums + i);
  }
  const hn::CappedTag<double, 1> one;
  for (; i < n; ++i) hn::StoreU(Op::combine(one, hn::LoadU(one, sums + i), hn::LoadU(one, a + i)), one, sums + i);
}

// Columns: a tile's rows are combined in T first, by blocks that keep the error of a sum at a few ulp.
constexpr std::size_t kRowBlock = 64;

template <class Op, class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> combine_down(D d, const T* a, std::size_t rows, std::size_t cols, std::size_t width) {
  const bool whole = width == hn::Lanes(d);
  auto v = whole ? hn::LoadU(d, a) : load_first(d, a, width);
  for (std::size_t r = 1; r < rows; ++r) {
    v = Op::combine(d, v, whole ? hn::LoadU(d, a + r * cols) : load_first(d, a + r * cols, width));
  }
  return v;
}

template <class Op, class T>
void combine_columns(double* sums, const T* a, std::size_t rows, std::size_t cols) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  HWY_ALIGN T block[hn::MaxLanes(d)];
  for (std::size_t r = 0; r < rows; r += kRowBlock, a += kRowBlock * cols) {
    const std::size_t count = std::min(kRowBlock, rows - r);
    for (std::size_t c = 0; c < cols; c += lanes) {
      const std::size_t width = std::min(lanes, cols - c);
      hn::Store(combine_down<Op>(d, a + c, count, cols, width), d, block);
      combine_rows<Op>(sums + c, block, width);
    }
  }
}

// All that is reduced lies in the tile: the results are written without accumulators.
template <class T, class Op>
void reduce(const Instruction& self, char* const* slots, const TileShape& shape) {
  T* out = reinterpret_cast<T*>(slots[self.out]);
  const T* a = reinterpret_cast<const T*>(slots[self.a]);
  const auto rows = static_cast<std::size_t>(shape.rows), cols = static_cast<std::size_t>(shape.cols);
  if (self.cols_reduced && self.rows_reduced) {
    *out = static_cast<T>(reduce_row<Op>(a, rows * cols));
    return;
  }
  if (self.cols_reduced) {
    for (std::size_t r = 0; r < rows; ++r, a += cols, out += self.row_stride) {
      *out = static_cast<T>(reduce_row<Op>(a, cols));
    }
    return;
  }
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t c = 0; c < cols; c += lanes) {
    const std::size_t width = std::min(lanes, cols - c);
    auto v = combine_down<Op>(d, a + c, std::min(kRowBlock, rows), cols, width);
    for (std::size_t r = kRowBlock; r < rows; r += kRowBlock) {
      v = Op::combine(d, v, combine_down<Op>(d, a + r * cols + c, std::min(kRowBlock, rows - r), cols, width));
    }
    width == lanes ? hn::StoreU(v, d, out + c) : store_first(v, d, out + c, width);
  }
}

template <class Op>
HWY_INLINE void combine_into(double* sum, double more) {
  const hn::CappedTag<double, 1> one;
  hn::StoreU(Op::combine(one, hn::LoadU(one, sum), hn::Set(one, more)), one, sum);
}

template <class T, class Op>
void accumulate(const Instruction& self, char* const* slots, const TileShape& shape) {
  auto* sums = reinterpret_cast<double*>(slots[self.out]);
  const T* a = reinterpret_cast<const T*>(slots[self.a]);
  const auto rows = static_cast<std::size_t>(shape.rows), cols = static_cast<std::size_t>(shape.cols);
  if (self.cols_reduced && self.rows_reduced) return combine_into<Op>(sums, reduce_row<Op>(a, rows * cols));
  if (self.rows_reduced && rows > 1) return combine_columns<Op>(sums, a, rows, cols);
  for (std::size_t r = 0; r < rows; ++r, a += cols, sums += self.pitch) {
    if (self.cols_reduced) {
      combine_into<Op>(sums, reduce_row<Op>(a, cols));
    } else {
      combine_rows<Op>(sums, a, cols);
    }
  }
}

template <class T>
TileRoutine find_reduce_of(Combine combine) {
  return combine == Combine::sum ? reduce<T, Sum> : combine == Combine::max ? reduce<T, Max> : reduce<T, Min>;
}

TileRoutine find_reduce_float(Combine combine, DType compute) {
  return compute == f32 ? find_reduce_of<float>(combine) : find_reduce_of<double>(combine);
}

template <class T>
TileRoutine find_of(Combine combine) {
  return combine == Combine::sum   ? accumulate<T, Sum>
         : combine == Combine::max ? accumulate<T, Max>
                                   : accumulate<T, Min>;
}

TileRoutine find_float(Combine combine, DType compute) {
  return compute == f32 ? find_of<float>(combine) : find_of<double>(combine);
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace paoding {
namespace {

// clang-format off
struct PlainSum { template <class A> static A combine(A a, A b) { return a + b; } };
struct PlainProd { template <class A> static A combine(A a, A b) { return a * b; } };
struct PlainMax { template <class A> static A combine(A a, A b) { return a > b || a != a ? a : b; } };
struct PlainMin { template <class A> static A combine(A a, A b) { return a < b || a != a ? a : b; } };
// clang-format on

// Sums and products wrap around, so they are taken without a sign.
template <class Op, class A>
using Accumulator = std::conditional_t<std::is_same_v<A, std::int64_t> &&
                                           (std::is_same_v<Op, PlainSum> || std::is_same_v<Op, PlainProd>),
                                       std::uint64_t, A>;

template <class T, class A, class Op>
void accumulate_plain(const Instruction& self, char* const* slots, const TileShape& shape) {
  using Acc = Accumulator<Op, A>;
  auto* sums = reinterpret_cast<Acc*>(slots[self.out]);
  const T* a = reinterpret_cast<const T*>(slots[self.a]);
  for (std::int64_t r = 0; r < shape.rows; ++r, a += shape.cols, sums += self.pitch) {
    if (self.cols_reduced) {
      Acc sum = *sums;
      for (std::int64_t c = 0; c < shape.cols; ++c) sum = Op::combine(sum, static_cast<Acc>(static_cast<A>(a[c])));
      *sums = sum;
    } else {
      for (std::int64_t c = 0; c < shape.cols; ++c) {
        sums[c] = Op::combine(sums[c], static_cast<Acc>(static_cast<A>(a[c])));
      }
    }
  }
}

template <class A, class Op>
void combine_plain(char* to, const char* from, std::int64_t count) {
  using Acc = Accumulator<Op, A>;
  auto* sums = reinterpret_cast<Acc*>(to);
  const auto* more = reinterpret_cast<const Acc*>(from);
  for (std::int64_t i = 0; i < count; ++i) sums[i] = Op::combine(sums[i], more[i]);
}

template <class A>
CombineRoutine find_combine_of(Combine combine) {
  switch (combine) {
    case Combine::max: return combine_plain<A, PlainMax>;
    case Combine::min: return combine_plain<A, PlainMin>;
    case Combine::prod: return combine_plain<A, PlainProd>;
    default: return combine_plain<A, PlainSum>;
  }
}

template <class T, class A>
TileRoutine find_plain(Combine combine) {
  switch (combine) {
    case Combine::max: return accumulate_plain<T, A, PlainMax>;
    case Combine::min: return accumulate_plain<T, A, PlainMin>;
    case Combine::prod: return accumulate_plain<T, A, PlainProd>;
    default: return accumulate_plain<T, A, PlainSum>;
  }
}

TileShape kept_shape(const Instruction& self, const TileShape& shape) {
  return {self.rows_reduced ? 1 : shape.rows, self.cols_reduced ? 1 : shape.cols};
}

template <Combine kCombine, DType kCompute>
void start(const Instruction& self, char* const* slots, const TileShape& shape) {
  const TileShape kept = kept_shape(self, shape);
  static const std::uint64_t bits = identity_bits(kCombine, kCompute);
  auto* out = reinterpret_cast<std::uint64_t*>(slots[self.out]);
  for (std::int64_t r = 0; r < kept.rows; ++r, out += self.pitch) std::fill_n(out, kept.cols, bits);
}

template <Combine kCombine>
TileRoutine find_start_of(DType compute) {
  switch (compute) {
    case DType::i64: return start<kCombine, DType::i64>;
    case DType::i32: return start<kCombine, DType::i32>;
    case DType::boolean: return start<kCombine, DType::boolean>;
    default: return start<kCombine, DType::f64>;
  }
}

template <DType kStored, class A>
void flush(const Instruction& self, char* const* slots, const TileShape& shape) {
  using S = Stored<kStored>;
  auto* out = reinterpret_cast<typename S::Type*>(slots[self.out]);
  const auto* a = reinterpret_cast<const A*>(slots[self.a]);
  const TileShape kept = kept_shape(self, shape);
  for (std::int64_t r = 0; r < kept.rows; ++r, a += self.pitch, out += self.row_stride) {
    for (std::int64_t c = 0; c < kept.cols; ++c) {
      auto& element = out[c * self.col_stride];
      const A sum = a[c];
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
HWY_EXPORT(find_reduce_float);

TileRoutine find_reduce(Combine combine, DType compute) {
  if (!is_float(compute) || combine == Combine::prod) return nullptr;
  return HWY_DYNAMIC_DISPATCH(find_reduce_float)(combine, compute);
}

std::uint64_t identity_bits(Combine combine, DType compute) {
  std::uint64_t bits = 0;
  if (is_float(compute)) {
    const double identity = identity_of(combine, compute);
    std::memcpy(&bits, &identity, sizeof bits);
  } else if (combine == Combine::min && compute == DType::i64) {
    bits = std::numeric_limits<std::int64_t>::max();  // which no double is
  } else {
    bits = static_cast<std::uint64_t>(static_cast<std::int64_t>(identity_of(combine, compute)));
  }
  return bits;
}

TileRoutine find_start(Combine combine, DType compute) {
  switch (combine) {
    case Combine::max: return find_start_of<Combine::max>(compute);
    case Combine::min: return find_start_of<Combine::min>(compute);
    case Combine::prod: return find_start_of<Combine::prod>(compute);
    default: return find_start_of<Combine::sum>(compute);
  }
}

TileRoutine find_accumulate(Combine combine, DType compute) {
  switch (compute) {
    case DType::i64: return find_plain<std::int64_t, std::int64_t>(combine);
    case DType::i32: return find_plain<std::int32_t, std::int64_t>(combine);
    case DType::boolean: return find_plain<std::uint8_t, std::int64_t>(combine);
    default: break;
  }
  if (combine != Combine::prod) return HWY_DYNAMIC_DISPATCH(find_float)(combine, compute);
  return compute == f32 ? find_plain<float, double>(combine) : find_plain<double, double>(combine);
}

CombineRoutine find_combine(Combine combine, DType compute) {
  return is_float(compute) ? find_combine_of<double>(combine) : find_combine_of<std::int64_t>(combine);
}

TileRoutine find_flush(DType compute, DType stored) {
  if (is_float(compute)) {
    return visit_stored(stored, [](auto dtype) -> TileRoutine { return flush<dtype.value, double>; });
  }
  return visit_stored(stored, [](auto dtype) -> TileRoutine { return flush<dtype.value, std::int64_t>; });
}

}  // namespace paoding
#endif
