// SPDX-License-Identifier: Apache-2.0
// What the kernels of lstm_recurrence and of its gradient share, for each instruction set: elements of f32 and bf16,
// products of rows with a packed panel.
#if defined(PAODING_LSTM_WORK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAODING_LSTM_WORK_INL_H_
#undef PAODING_LSTM_WORK_INL_H_
#else
#define PAODING_LSTM_WORK_INL_H_
#endif

#include <algorithm>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "ops/recurrence/lstm_work.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::CappedTag<float, kUnitBlock>;
using OneLane = hn::CappedTag<float, 1>;
using Half = std::uint16_t;  // the bits of a bf16

#if HWY_MAX_BYTES >= 64
constexpr std::int64_t kTileRows = 6;  // 24 of 32 registers are sums
#else
constexpr std::int64_t kTileRows = 2;
#endif

// ---- elements ----

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const Half* from) {
  const hn::RebindToUnsigned<D> bits;
  const hn::Rebind<Half, D> halves;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(bits, hn::LoadU(halves, from))));
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> value, float* to) {
  hn::StoreU(value, d, to);
}
// To the nearest, of two to the even one.
template <class D>
HWY_INLINE void store(D /*d*/, hn::Vec<D> value, Half* to) {
  const hn::RebindToUnsigned<D> bits;
  const hn::RebindToSigned<D> whole;
  const hn::Rebind<Half, D> halves;
  const auto raw = hn::BitCast(bits, value);
  const auto odd = hn::And(hn::ShiftRight<16>(raw), hn::Set(bits, 1));
  const auto rounded = hn::Add(raw, hn::Add(odd, hn::Set(bits, 0x7fff)));
  const auto kept =
      hn::IfThenElse(hn::RebindMask(bits, hn::IsNaN(value)), hn::Or(raw, hn::Set(bits, 0x400000)), rounded);
  hn::StoreU(hn::DemoteTo(halves, hn::BitCast(whole, hn::ShiftRight<16>(kept))), halves, to);
}

template <class D>
HWY_INLINE hn::Vec<D> sigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0F);
  return hn::Div(one, hn::Add(one, hn::Exp(d, hn::Min(hn::Neg(x), hn::Set(d, 88.0F)))));
}

// Calls with vectors of elements, and one by one what is left of them: work(d, index).
template <class Work>
HWY_INLINE void for_units(std::int64_t count, const Work& work) {
  const Lanes d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) work(d, i);
  for (; i < count; ++i) work(OneLane(), i);
}

// ---- products ----

// tile [kRows, kParts * kUnitBlock] = rows of a times a packed panel [k, kParts * kUnitBlock].
template <std::int64_t kRows, std::int64_t kParts, class T>
HWY_INLINE void multiply_rows(const float* a, std::int64_t stride, std::int64_t k, const T* panel, float* tile) {
  const Lanes d;
  using V = hn::Vec<Lanes>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr std::int64_t kWidth = kParts * kUnitBlock;
  constexpr std::int64_t kVectors = 4;  // at a time
  for (std::int64_t from = 0; from < kWidth; from += kVectors * lanes) {
    V sums[kRows][kVectors];
    for (auto& row : sums) {
      for (V& sum : row) sum = hn::Zero(d);
    }
    const std::int64_t vectors = std::min(kVectors, (kWidth - from) / lanes);
    if (vectors == kVectors) {
      const T* column = panel + from;
      for (std::int64_t i = 0; i < k; ++i, column += kWidth) {
        V factors[kVectors];
        for (std::int64_t v = 0; v < kVectors; ++v) factors[v] = load(d, column + v * lanes);
        for (std::int64_t r = 0; r < kRows; ++r) {
          const V element = hn::Set(d, a[r * stride + i]);
          for (std::int64_t v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(element, factors[v], sums[r][v]);
        }
      }
    } else {
      const T* column = panel + from;
      for (std::int64_t i = 0; i < k; ++i, column += kWidth) {
        for (std::int64_t v = 0; v < vectors; ++v) {
          const V factor = load(d, column + v * lanes);
          for (std::int64_t r = 0; r < kRows; ++r) {
            sums[r][v] = hn::MulAdd(hn::Set(d, a[r * stride + i]), factor, sums[r][v]);
          }
        }
      }
    }
    for (std::int64_t r = 0; r < kRows; ++r) {
      for (std::int64_t v = 0; v < vectors; ++v) hn::StoreU(sums[r][v], d, tile + r * kWidth + from + v * lanes);
    }
  }
}

template <std::int64_t kParts, class T>
HWY_INLINE void multiply(std::int64_t rows, const float* a, std::int64_t stride, std::int64_t k, const T* panel,
                         float* tile) {
  switch (rows) {
    case 1: return multiply_rows<1, kParts>(a, stride, k, panel, tile);
    case 2: return multiply_rows<2, kParts>(a, stride, k, panel, tile);
#if HWY_MAX_BYTES >= 64
    case 3: return multiply_rows<3, kParts>(a, stride, k, panel, tile);
    case 4: return multiply_rows<4, kParts>(a, stride, k, panel, tile);
    case 5: return multiply_rows<5, kParts>(a, stride, k, panel, tile);
    case 6: return multiply_rows<6, kParts>(a, stride, k, panel, tile);
#endif
  }
}

// Rows in parts of about the same size, at most kTileRows, of which those without a row that counts are left out.
template <class Work>
HWY_INLINE void for_rows(const LstmWork& w, std::int64_t step, const Work& work) {
  const std::int64_t parts = (w.rows + kTileRows - 1) / kTileRows;
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t begin = w.rows * part / parts, end = w.rows * (part + 1) / parts;
    bool is_counted = false;
    for (std::int64_t row = begin; row < end; ++row) is_counted |= w.counts(step, row);
    work(begin, end, is_counted);
  }
}

// ---- states ----

// Copies columns of [B, H] between types.
template <class From, class To>
HWY_INLINE void copy_columns(const LstmWork& w, std::int64_t begin, std::int64_t end, const From* from, To* to) {
  for (std::int64_t row = 0; row < w.rows; ++row) {
    const std::int64_t at = row * w.hidden + begin;
    for_units(end - begin, [&](auto d, std::int64_t j) { store(d, load(d, from + at + j), to + at + j); });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#endif  // per target
