// SPDX-License-Identifier: Apache-2.0
// The instruction set of the CPU tile interpreter. A tile is a small dense block of values, one row after the other,
// that stays in L1; an instruction is one prebuilt SIMD routine over it. Values have a compute dtype (f64, f32, i64,
// i32, bool as a byte of 0 or 1); only loads and stores know the others.
#pragma once

#include <cstdint>

#include "group/group.h"
#include "paoding/scalar.h"

namespace paoding {

/// How much of the tile is filled at the moment.
struct TileShape {
  std::int64_t rows = 1;
  std::int64_t cols = 1;
};

/// The operation of an instruction, for those who can make several at once (fused_routine.h).
struct Meaning {
  enum class Kind : std::uint8_t {
    other,
    prim,        // find_routine's, with its scalar_args
    load,        // a dense operand of `stored`
    store,       // to a dense operand of `stored`
    convert,     // to `stored`, rounded and widened back
    accumulate,  // find_accumulate's
    reduce,      // find_reduce's
    index,       // find_index's
    prefetch,    // find_prefetch's
  };
  Kind kind = Kind::other;
  Prim prim = Prim::constant;
  Combine combine = Combine::none;
  DType compute = DType::f32;  // of the arguments, for a prim of its last one
  DType stored = DType::f32;
  unsigned scalar_args = 0;
  bool streams = false;    // a store that bypasses the caches
  std::int32_t ahead = 0;  // bytes; of a prefetch

  friend bool operator==(const Meaning&, const Meaning&) = default;
};

struct Instruction;
/// `slots`: the pointers of the running thread, to registers, constants, sums and the current place in each operand.
using TileRoutine = void (*)(const Instruction& self, char* const* slots, const TileShape& shape);

struct Instruction {
  TileRoutine routine = nullptr;
  std::uint16_t out = 0, a = 0, b = 0, c = 0;  // slots
  bool one_row = false;                        // the values are the same in every row of the tile: one is kept
  bool one_col = false;                        // or in every column; with both they are a single element
  bool rows_reduced = false;                   // start, accumulate, flush: which tile axes are combined
  bool cols_reduced = false;
  std::int64_t row_stride = 0, col_stride = 0;  // load, store, flush, index: of the operand, in elements
  std::int64_t pitch = 0;                       // start, accumulate, flush: from one row of accumulators to the next
  Meaning meaning;
};

/// The part of the tile that an instruction's values fill.
inline TileShape value_shape(const Instruction& self, const TileShape& shape) {
  return {self.one_row ? 1 : shape.rows, self.one_col ? 1 : shape.cols};
}

inline std::int64_t element_count(const Instruction& self, const TileShape& shape) {
  const TileShape values = value_shape(self, shape);
  return values.rows * values.cols;
}

/// out = prim(a, b, c) for the nodes of an Expr other than input, constant and convert. `scalar_args`: bit k says that
/// argument k is one element for the whole tile; the condition of select never is unless all are.
/// Null when the primitive does not take the dtype (of its last argument).
TileRoutine find_routine(Prim prim, DType compute, unsigned scalar_args);

/// out = a converted: `from` a compute dtype, `to` any dtype; f16, bf16 and u8 are rounded to and widened back.
TileRoutine find_convert(DType from, DType to);

enum class Spacing : std::uint8_t { dense, strided };

/// out (compute dtype) = a (operand of `stored` dtype).
TileRoutine find_load(DType stored, Spacing spacing);
/// out (operand of `stored` dtype) = a (compute dtype); `streaming` bypasses the caches where the spacing allows.
TileRoutine find_store(DType stored, Spacing spacing, bool streaming);
/// Prefetches the elements `ahead` bytes after a tile of `stored` elements at a.
TileRoutine find_prefetch();
/// out = a, which is one row (row_stride 0, col_stride 1), one column (1, 0) or one element (0, 0) of a compute dtype,
/// in every row, column or element of `out`.
TileRoutine find_spread(DType compute);
/// out = the number that slot a holds in place of a pointer, plus row * row_stride + col * col_stride.
TileRoutine find_index(DType compute);

/// Accumulators are f64 for floats and i64 for integers and bools, whatever the dtype of the output.
inline constexpr std::int64_t kAccumulatorBytes = 8;
/// The accumulator that stands for no element.
std::uint64_t identity_bits(Combine combine, DType compute);
/// Sets the accumulators at out to that.
TileRoutine find_start(Combine combine, DType compute);
/// Combines the tile at a into the accumulators at out.
TileRoutine find_accumulate(Combine combine, DType compute);
/// Writes the accumulators at a (of values of dtype `compute`) to the operand at out.
TileRoutine find_flush(DType compute, DType stored);
/// Writes the reduced tile at a to an operand of its own dtype, dense along the columns where they stay: start,
/// accumulate and flush at once. Null where there is no such routine.
TileRoutine find_reduce(Combine combine, DType compute);
/// to[i] = to[i] combined with from[i], of accumulators.
using CombineRoutine = void (*)(char* to, const char* from, std::int64_t count);
CombineRoutine find_combine(Combine combine, DType compute);
/// Ends the effect of streaming stores: other threads may read after it.
void finish_streaming();

// The parts that find_routine is made of, one translation unit each.
TileRoutine find_float_routine(Prim prim, DType compute, unsigned scalar_args);
TileRoutine find_math_routine(Prim prim, DType compute);
TileRoutine find_sleef_routine(Prim prim, DType compute, unsigned scalar_args);
TileRoutine find_plain_routine(Prim prim, DType compute, unsigned scalar_args);
TileRoutine find_random_routine(unsigned scalar_args);

}  // namespace paoding
