// SPDX-License-Identifier: Apache-2.0
// Tile routines: loads and stores of operands, which is where stored dtypes become compute dtypes and back.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/tile_memory.cpp"
#include "hwy/foreach_target.h"
//
#include <algorithm>
#include <cstring>

#include "cpu/tile_stored.h"
#include "cpu/tile_vector-inl.h"
#include "hwy/cache_control.h"
#include "ops/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {

// ---- dense bf16 and f16: vectors ---------------------------------------------

template <DType dtype>
void load_half(const Instruction& self, char* const* slots, const TileShape& shape) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d), n = static_cast<std::size_t>(element_count(self, shape));
  auto* out = reinterpret_cast<float*>(slots[self.out]);
  const auto* a = reinterpret_cast<const std::uint16_t*>(slots[self.a]);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(LiesAs<dtype>::load(d, a + i), d, out + i);
  for (; i < n; ++i) out[i] = Stored<dtype>::load(a[i]);
}

template <DType dtype>
void store_half(const Instruction& self, char* const* slots, const TileShape& shape) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d), n = static_cast<std::size_t>(element_count(self, shape));
  auto* out = reinterpret_cast<std::uint16_t*>(slots[self.out]);
  const auto* a = reinterpret_cast<const float*>(slots[self.a]);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) LiesAs<dtype>::store(d, hn::LoadU(d, a + i), out + i);
  for (; i < n; ++i) out[i] = Stored<dtype>::store(a[i]);
}

// ---- copies ------------------------------------------------------------------

template <std::size_t kBytes>
void copy(const Instruction& self, char* const* slots, const TileShape& shape) {
  std::memcpy(slots[self.out], slots[self.a], static_cast<std::size_t>(element_count(self, shape)) * kBytes);
}

template <std::size_t kBytes>
void stream(const Instruction& self, char* const* slots, const TileShape& shape) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d), n = static_cast<std::size_t>(element_count(self, shape)) * kBytes;
  auto* out = reinterpret_cast<std::uint8_t*>(slots[self.out]);
  const auto* a = reinterpret_cast<const std::uint8_t*>(slots[self.a]);
  std::size_t i = std::min(n, (lanes - reinterpret_cast<std::uintptr_t>(out)) & (lanes - 1));  // streams are aligned
  std::memcpy(out, a, i);
  for (; i + lanes <= n; i += lanes) hn::Stream(hn::LoadU(d, a + i), d, out + i);
  std::memcpy(out + i, a + i, n - i);
}

TileRoutine find_dense_load(DType stored) {
  switch (stored) {
    case DType::f64:
    case DType::i64: return copy<8>;
    case DType::f32:
    case DType::i32: return copy<4>;
    case DType::boolean: return copy<1>;
    case DType::f16: return load_half<DType::f16>;
    case DType::bf16: return load_half<DType::bf16>;
    case DType::u8: return nullptr;
  }
  return nullptr;
}

TileRoutine find_dense_store(DType stored, bool streaming) {
  switch (stored) {
    case DType::f64:
    case DType::i64: return streaming ? stream<8> : copy<8>;
    case DType::f32:
    case DType::i32: return streaming ? stream<4> : copy<4>;
    case DType::boolean: return streaming ? stream<1> : copy<1>;
    case DType::f16: return store_half<DType::f16>;
    case DType::bf16: return store_half<DType::bf16>;
    case DType::u8: return nullptr;
  }
  return nullptr;
}

// ---- one row or column for the whole tile --------------------------------------

void spread_32(const Instruction& self, char* const* slots, const TileShape& shape) {
  const hn::ScalableTag<std::uint32_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const TileShape values = value_shape(self, shape);
  const auto rows = static_cast<std::size_t>(values.rows), cols = static_cast<std::size_t>(values.cols);
  auto* out = reinterpret_cast<std::uint32_t*>(slots[self.out]);
  const auto* a = reinterpret_cast<const std::uint32_t*>(slots[self.a]);
  if (self.col_stride != 0) {
    for (std::size_t r = 0; r < rows; ++r, out += cols) std::memcpy(out, a, cols * sizeof *out);
    return;
  }
  const std::size_t length = self.row_stride == 0 ? rows * cols : cols, count = self.row_stride == 0 ? 1 : rows;
  const std::size_t total = count * length;
  for (std::size_t r = 0, at = 0; r < count; ++r, at += length) {
    const auto v = hn::Set(d, a[r]);
    // A row may run over its end into the next one, which is written after it.
    std::size_t i = 0;
    for (; i < length && at + i + lanes <= total; i += lanes) hn::StoreU(v, d, out + at + i);
    if (i < length) {
      for (; i + lanes <= length; i += lanes) hn::StoreU(v, d, out + at + i);
      if (i < length) store_first(v, d, out + at + i, length - i);
    }
  }
}

TileRoutine find_spread_32() { return spread_32; }

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace paoding {
namespace {

template <DType kStored>
void load_strided(const Instruction& self, char* const* slots, const TileShape& shape) {
  using S = Stored<kStored>;
  auto* out = reinterpret_cast<typename S::Compute*>(slots[self.out]);
  const auto* a = reinterpret_cast<const typename S::Type*>(slots[self.a]);
  const auto [rows, cols] = value_shape(self, shape);
  const std::int64_t step = self.col_stride;
  if (rows > 1 && self.row_stride == 1 && step > 1) {  // down the columns, which are contiguous in the operand
    for (std::int64_t c = 0; c < cols; ++c) {
      for (std::int64_t r = 0; r < rows; ++r) out[r * cols + c] = S::load(a[c * step + r]);
    }
    return;
  }
  for (std::int64_t r = 0; r < rows; ++r, out += cols, a += self.row_stride) {
    if (step == 1 && std::is_same_v<typename S::Type, typename S::Compute>) {
      std::memcpy(out, a, static_cast<std::size_t>(cols) * sizeof *out);
    } else if (step == 1) {
      for (std::int64_t c = 0; c < cols; ++c) out[c] = S::load(a[c]);
    } else if (step == 0) {
      const auto value = S::load(a[0]);
      for (std::int64_t c = 0; c < cols; ++c) out[c] = value;
    } else {
      for (std::int64_t c = 0; c < cols; ++c) out[c] = S::load(a[c * step]);
    }
  }
}

template <DType kStored>
void store_strided(const Instruction& self, char* const* slots, const TileShape& shape) {
  using S = Stored<kStored>;
  auto* out = reinterpret_cast<typename S::Type*>(slots[self.out]);
  const auto* a = reinterpret_cast<const typename S::Compute*>(slots[self.a]);
  const auto [rows, cols] = value_shape(self, shape);
  const std::int64_t step = self.col_stride;
  for (std::int64_t r = 0; r < rows; ++r, a += cols, out += self.row_stride) {
    if (step == 1 && std::is_same_v<typename S::Type, typename S::Compute>) {
      std::memcpy(out, a, static_cast<std::size_t>(cols) * sizeof *out);
    } else if (step == 1) {
      for (std::int64_t c = 0; c < cols; ++c) out[c] = S::store(a[c]);
    } else {
      for (std::int64_t c = 0; c < cols; ++c) out[c * step] = S::store(a[c]);
    }
  }
}

template <class T>
void spread(const Instruction& self, char* const* slots, const TileShape& shape) {
  T* out = reinterpret_cast<T*>(slots[self.out]);
  const T* a = reinterpret_cast<const T*>(slots[self.a]);
  const auto [rows, cols] = value_shape(self, shape);
  if (self.row_stride == 0 && self.col_stride == 0) {
    std::fill_n(out, rows * cols, *a);
    return;
  }
  for (std::int64_t r = 0; r < rows; ++r, out += cols, a += self.row_stride) {
    if (self.col_stride == 0) {
      std::fill_n(out, cols, *a);
    } else {
      std::memcpy(out, a, static_cast<std::size_t>(cols) * sizeof(T));
    }
  }
}

template <class T>
void index(const Instruction& self, char* const* slots, const TileShape& shape) {
  T* out = reinterpret_cast<T*>(slots[self.out]);
  auto start = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(slots[self.a]));
  const auto [rows, cols] = value_shape(self, shape);
  for (std::int64_t r = 0; r < rows; ++r, out += cols, start += self.row_stride) {
    for (std::int64_t c = 0; c < cols; ++c) out[c] = static_cast<T>(start + c * self.col_stride);
  }
}

}  // namespace

HWY_EXPORT(find_dense_load);
HWY_EXPORT(find_dense_store);
HWY_EXPORT(find_spread_32);

TileRoutine find_load(DType stored, Spacing spacing) {
  if (spacing == Spacing::dense) {
    if (const TileRoutine found = HWY_DYNAMIC_DISPATCH(find_dense_load)(stored)) return found;
  }
  return visit_stored(stored, [](auto dtype) -> TileRoutine { return load_strided<dtype.value>; });
}

TileRoutine find_store(DType stored, Spacing spacing, bool streaming) {
  if (spacing == Spacing::dense) {
    if (const TileRoutine found = HWY_DYNAMIC_DISPATCH(find_dense_store)(stored, streaming)) return found;
  }
  return visit_stored(stored, [](auto dtype) -> TileRoutine { return store_strided<dtype.value>; });
}

TileRoutine find_spread(DType compute) {
  switch (size_bytes(compute)) {
    case 8: return spread<std::uint64_t>;
    case 4: return HWY_DYNAMIC_DISPATCH(find_spread_32)();
    default: return spread<std::uint8_t>;
  }
}

TileRoutine find_index(DType compute) { return compute == i32 ? index<std::int32_t> : index<std::int64_t>; }

TileRoutine find_prefetch() {
  return [](const Instruction& self, char* const* slots, const TileShape& shape) {
    constexpr std::int64_t kLine = 64;
    const std::int64_t bytes = element_count(self, shape) * size_bytes(self.meaning.stored);
    const char* const first = slots[self.a] + self.meaning.ahead;
    for (std::int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(first + at, 0, 2);
  };
}

void finish_streaming() { hwy::FlushStream(); }

}  // namespace paoding
#endif
