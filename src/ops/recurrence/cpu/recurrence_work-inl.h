// SPDX-License-Identifier: Apache-2.0
// The parts that the kernels of recurrences and of their gradients share, for each instruction set: elements of f32 and
// bf16, products of rows with a packed panel.
#if defined(PAODING_RECURRENCE_WORK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAODING_RECURRENCE_WORK_INL_H_
#undef PAODING_RECURRENCE_WORK_INL_H_
#else
#define PAODING_RECURRENCE_WORK_INL_H_
#endif

#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "hwy/highway.h"
#include "ops/elements-inl.h"
#include "ops/recurrence/cpu/activations-inl.h"
#include "ops/recurrence/recurrence_work.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::CappedTag<float, kUnitBlock>;
using OneLane = hn::CappedTag<float, 1>;

// The types of elements in memory and in products.
struct Singles {
  using Stored = float;
  using Left = float;
  static constexpr Numbers kNumbers = Numbers::f32;
};
struct Halves {
  using Stored = Half;
  using Left = float;
  static constexpr Numbers kNumbers = Numbers::bf16_as_f32;
};
struct Pairs {
  using Stored = Half;
  using Left = Half;
  static constexpr Numbers kNumbers = Numbers::bf16_in_pairs;
};
struct Tiles {
  using Stored = Half;
  using Left = Half;
  static constexpr Numbers kNumbers = Numbers::bf16_in_tiles;
};

template <class M>
constexpr bool has_tiles = M::kNumbers == Numbers::bf16_in_tiles;
// Two elements below each other lie side by side in a panel, which is always packed.
template <class M>
constexpr bool has_pairs = M::kNumbers == Numbers::bf16_in_pairs || has_tiles<M>;

// Rows whose sums are in registers: with 64 bytes 24 of 32.
template <class M>
constexpr std::int64_t tile_rows(std::int64_t parts) {
  if (has_tiles<M>) return kRowsInTiles;
  return has_pairs<M> || HWY_MAX_BYTES >= 64 ? rows_in_registers(parts) : 2;
}

// ---- elements ----

// The value as it reads back after it was stored as T.
template <class T, class D>
HWY_INLINE hn::Vec<D> rounded(D d, hn::Vec<D> value) {
  if constexpr (std::is_same_v<T, float>) return value;
  T stored[kUnitBlock];
  store(d, value, stored);
  return load(d, stored);
}

// Calls work(d, index) with vectors of elements, and one by one for the remaining ones.
template <class Work>
HWY_INLINE void for_units(std::int64_t count, const Work& work) {
  const Lanes d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) work(d, i);
  for (; i < count; ++i) work(OneLane(), i);
}

// ---- products ----

// tile [kRows, kParts * kUnitBlock] = rows of a times a packed panel [k, kParts * kUnitBlock], kParts vectors at a
// time.
template <std::int64_t kRows, std::int64_t kParts, class T>
HWY_INLINE void multiply_rows(const float* a, std::int64_t stride, std::int64_t k, const T* panel, float* tile) {
  const Lanes d;
  using V = hn::Vec<Lanes>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr std::int64_t kWidth = kParts * kUnitBlock;
  for (std::int64_t from = 0; from < kWidth; from += kParts * lanes) {
    V sums[kRows][kParts];
    for (auto& row : sums) {
      for (V& sum : row) sum = hn::Zero(d);
    }
    const T* column = panel + from;
    for (std::int64_t i = 0; i < k; ++i, column += kWidth) {
      V factors[kParts];
      for (std::int64_t v = 0; v < kParts; ++v) factors[v] = load(d, column + v * lanes);
      for (std::int64_t r = 0; r < kRows; ++r) {
        const V element = hn::Set(d, a[r * stride + i]);
        for (std::int64_t v = 0; v < kParts; ++v) sums[r][v] = hn::MulAdd(element, factors[v], sums[r][v]);
      }
    }
    for (std::int64_t r = 0; r < kRows; ++r) {
      for (std::int64_t v = 0; v < kParts; ++v) hn::StoreU(sums[r][v], d, tile + r * kWidth + from + v * lanes);
    }
  }
}

// The same of up to tile_rows(kParts) rows; k elements of each are multiplied.
template <class M, std::int64_t kParts, class T>
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
#if HWY_MAX_BYTES >= 64
  if constexpr (kParts == 3) {
    if (rows == 7) return multiply_rows<7, kParts>(a, stride, k, panel, tile);
    if (rows == 8) return multiply_rows<8, kParts>(a, stride, k, panel, tile);
  }
#endif
}
template <class M, std::int64_t kParts>
HWY_INLINE void multiply(std::int64_t rows, const Half* a, std::int64_t stride, std::int64_t k, const Half* panel,
                         float* tile) {
  if constexpr (has_tiles<M>) {
    multiply_tiles(rows, kParts, a, stride, RecurrenceWork::padded(M::kNumbers, k), panel, tile);
  } else {
    multiply_pairs(rows, kParts, a, stride, (k + 1) / 2, panel, tile);
  }
}

// Where element k of column `column` lies in a panel of `width` columns.
template <class M>
HWY_INLINE std::int64_t panel_at(std::int64_t k, std::int64_t column, std::int64_t width) {
  if constexpr (has_pairs<M>) return (k / 2 * width + column) * 2 + k % 2;
  return k * width + column;
}

// Calls work(block, count) for blocks first .. end - 1, kMost (1 or 4) at a time and for the remaining ones half as
// many; count is a constant. Backwards the same calls come the other way round.
template <std::int64_t kMost, class Work>
HWY_INLINE void for_blocks(std::int64_t first, std::int64_t end, bool is_backwards, const Work& work) {
  const std::int64_t whole = (end - first) / kMost, rest = first + whole * kMost;
  for (const bool is_rest : {is_backwards, !is_backwards}) {
    if (is_rest) {
      if constexpr (kMost > 1) for_blocks<kMost / 2>(rest, end, is_backwards, work);
      continue;
    }
    for (std::int64_t i = 0; i < whole; ++i) {
      work(first + (is_backwards ? whole - 1 - i : i) * kMost, std::integral_constant<std::int64_t, kMost>());
    }
  }
}

// Rows in parts of about the same size, but of whole tiles, at most `most`: work(first, end, whether a row of them
// counts).
template <class M, class Work>
HWY_INLINE void for_rows(const RecurrenceWork& w, std::int64_t step, std::int64_t most, const Work& work) {
  const std::int64_t rows = w.end_row - w.first_row, parts = (rows + most - 1) / most;
  const auto start_of = [&](std::int64_t part) {
    return w.first_row + (has_tiles<M> ? std::min(part * most, rows) : rows * part / parts);
  };
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t begin = start_of(part), end = start_of(part + 1);
    bool is_counted = false;
    for (std::int64_t row = begin; row < end; ++row) is_counted |= w.counts(step, row);
    work(begin, end, is_counted);
  }
}

// ---- threads ----

// The work with a thread's place in it.
HWY_INLINE RecurrenceWork work_of(RecurrenceWork work, int thread, int team) {
  if (team % work.row_groups != 0) work.row_groups = 1;  // fewer threads than there were to be
  work.members = team / work.row_groups;
  work.group = thread / work.members, work.member = thread % work.members;
  work.first_row = work.rows * work.group / work.row_groups;
  work.end_row = work.rows * (work.group + 1) / work.row_groups;
  work.first_own = work.first_block(work.member, work.members);
  work.end_own = work.first_block(work.member + 1, work.members);
  if (work.totals != nullptr) work.totals += work.group * 2 * work.biases() * work.hidden;
  return work;
}

// Those who include this have cpu/team.h.
HWY_INLINE void wait_for_all(const RecurrenceWork& w) { w.barriers[0].wait(w.members * w.row_groups); }
HWY_INLINE void wait_for_group(const RecurrenceWork& w) { w.barriers[1 + w.group].wait(w.members); }

// The groups pack `count` rows of a panel together; this is the first row of a group, a multiple of `unit`.
HWY_INLINE std::int64_t first_packed(const RecurrenceWork& w, int group, std::int64_t count, std::int64_t unit) {
  return std::min((count + unit - 1) / unit * group / w.row_groups * unit, count);
}

// for_blocks() of the blocks that a thread multiplies in a step. Every other step goes backwards, as a near cache still
// has the blocks that the step before read last; in the same order the next blocks would be those that were evicted
// first.
template <std::int64_t kMost, class Work>
HWY_INLINE void for_multiplied(const RecurrenceWork& w, std::int64_t turn, const Work& work) {
  for_blocks<kMost>(w.first_own, w.end_own, turn % 2 == 1, work);
}

// Whether a step's `result`, rows of `count` elements, is multiplied where it lies: it has the same elements, as dense,
// and those of all rows. Else it is written to `left` as well.
template <class M>
HWY_INLINE bool are_multiplied_there(const RecurrenceWork& w, const void* result, std::int64_t count) {
  if (has_tiles<M> || !std::is_same_v<typename M::Stored, typename M::Left>) return false;
  return result != nullptr && w.lengths == nullptr && RecurrenceWork::stride_of(M::kNumbers, count) == count;
}

// ---- states ----

// Where units of a row lie, from `first` on, at a step; null stays null.
template <class M>
struct Places {
  using T = typename M::Stored;

  Places(const RecurrenceWork& work, std::int64_t step, std::int64_t row_of, std::int64_t first_unit)
      : w(work), t(step), row(row_of), first(first_unit) {}

  // [T, B, gates * H], [T, B, 4H], [T, B, H]
  template <class V>
  HWY_INLINE auto* gates(V* values) const {
    return typed(values, (t * w.rows + row) * w.gates() * w.hidden + first);
  }
  template <class V>
  HWY_INLINE auto* saved(V* values) const {
    return typed(values, (t * w.rows + row) * 4 * w.hidden + first);
  }
  template <class V>
  HWY_INLINE auto* step(V* values) const {
    return typed(values, (t * w.rows + row) * w.hidden + first);
  }
  // [T + 1, B, H]: the state after the step, the state in front of it, the start.
  template <class V>
  HWY_INLINE auto* entry(V* values) const {
    return entry_at(values, w.is_reverse ? t : t + 1);
  }
  template <class V>
  HWY_INLINE auto* entry_before(V* values) const {
    return entry_at(values, w.is_reverse ? t + 1 : t);
  }
  template <class V>
  HWY_INLINE auto* start(V* values) const {
    return entry_at(values, w.is_reverse ? w.steps : 0);
  }
  // [B, H]
  HWY_INLINE float* state(float* values) const { return values + row * w.hidden + first; }
  HWY_INLINE typename M::Left* left(void* values) const {
    return static_cast<typename M::Left*>(values) + row * RecurrenceWork::stride_of(M::kNumbers, w.hidden) + first;
  }

  const RecurrenceWork& w;
  const std::int64_t t, row, first;

 private:
  template <class V>
  HWY_INLINE auto* entry_at(V* values, std::int64_t entry) const {
    return typed(values, (entry * w.rows + row) * w.hidden + first);
  }
  static HWY_INLINE T* typed(void* values, std::int64_t at) {
    return values == nullptr ? nullptr : static_cast<T*>(values) + at;
  }
  static HWY_INLINE const T* typed(const void* values, std::int64_t at) {
    return values == nullptr ? nullptr : static_cast<const T*>(values) + at;
  }
  static HWY_INLINE float* typed(float* values, std::int64_t at) { return values == nullptr ? nullptr : values + at; }
  static HWY_INLINE const float* typed(const float* values, std::int64_t at) {
    return values == nullptr ? nullptr : values + at;
  }
};

// The gates' gradients of units of a row that the step does not count for.
template <class M>
HWY_INLINE void clear_guards(const RecurrenceWork& w, std::int64_t count, typename M::Left* made,
                             std::initializer_list<typename M::Stored*> results) {
  for (std::int64_t gate = 0; gate < w.gates(); ++gate) {
    std::fill_n(made + gate * w.hidden, count, typename M::Left{});
    for (auto* result : results) {
      if (result != nullptr) std::fill_n(result + gate * w.hidden, count, typename M::Stored{});
    }
  }
}

// Adds to the sums of units of gate `gate` over the latest steps, if anybody reads them.
template <class D>
HWY_INLINE void add_up(const RecurrenceWork& w, D d, std::int64_t gate, std::int64_t unit, hn::Vec<D> value) {
  if (w.totals == nullptr) return;
  float* total = w.totals + gate * w.hidden + unit;
  store(d, hn::Add(load(d, total), value), total);
}

// Pads the rows of `left` after `count` elements.
template <class M>
HWY_INLINE void fill_rows_up(const RecurrenceWork& w, std::int64_t count) {
  const std::int64_t stride = RecurrenceWork::stride_of(M::kNumbers, count);
  for (void* left : w.left) {
    auto* to = static_cast<typename M::Left*>(left) + count;
    for (std::int64_t row = 0; row < w.rows; ++row) std::fill_n(to + row * stride, stride - count, typename M::Left{});
  }
}

// Copies columns of a group's rows of [B, H] between types and strides.
template <class From, class To>
HWY_INLINE void copy_columns(const RecurrenceWork& w, std::int64_t begin, std::int64_t end, const From* from,
                             std::int64_t stride, To* to, std::int64_t to_stride) {
  for (std::int64_t row = w.first_row; row < w.end_row; ++row) {
    const From* first = from + row * stride + begin;
    To* target = to + row * to_stride + begin;
    for_units(end - begin, [&](auto d, std::int64_t j) { store(d, load(d, first + j), target + j); });
  }
}
template <class From, class To>
HWY_INLINE void copy_columns(const RecurrenceWork& w, std::int64_t begin, std::int64_t end, const From* from, To* to) {
  copy_columns(w, begin, end, from, w.hidden, to, w.hidden);
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#endif  // per target
