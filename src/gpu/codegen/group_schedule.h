// SPDX-License-Identifier: Apache-2.0
// How a Group runs on a GPU: which axes become CTAs, which one loop and which the lanes of a warp. The rules are
// closed-form functions of the sizes and the target. group_text.h turns the result into CUDA source.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/target.h"
#include "group/operands.h"

namespace paoding::gpu {

/// The loop that a CTA runs.
enum class LoopForm : std::uint8_t {
  tile,   // lanes stand on a tile of the inner axis, threads loop over the serial axes
  sweep,  // rows of threads stand on one serial index each, lanes loop over the inner axes
};

/// How an output's elements come about in a CTA.
enum class SinkKind : std::uint8_t {
  store,   // every point is an element
  column,  // keeps the inner axis, reduces the serial axes: summed in registers, then across rows of threads
  row,     // reduces the inner axis, keeps the serial axes: summed across lanes
  total,   // reduces both: summed over the CTA
  spread,  // keeps both, reduces grid axes only: every point is a partial sum
  once,    // does not vary along a row of the group's own reductions: written once for each
};

/// One dimension of the grid.
struct GridDim {
  enum class Over : std::uint8_t { axis, serial, inner };
  Over over = Over::axis;
  int axis = -1;           // for Over::axis
  std::int64_t count = 1;  // CTAs along it
};

/// Whether every CTA along a dimension of the grid has a part of the output's sums.
bool reduces(const GroupOutput& output, SinkKind sink, const GridDim& dim);

/// A node of the Expr that stays in registers from the pass that computes it on, so that later passes need neither its
/// operands nor the arithmetic.
struct CarriedValue {
  std::int32_t node = -1;
  int pass = 0;
};

/// Axis roles, tile sizes and splits for one canonical group. "Vectors" are `vector` neighbouring inner elements.
struct GroupSchedule {
  LoopForm form = LoopForm::tile;
  std::vector<int> inner_axes;   // outermost first; the last axis of the space is the last of them
  std::vector<int> serial_axes;  // flattened into one index
  std::vector<int> grid_axes;
  std::vector<GridDim> grid;       // fastest first
  std::vector<SinkKind> sinks;     // per output
  std::vector<bool> is_vector;     // per operand: its vectors can be moved whole
  int vector = 1;                  // elements per lane and step
  int lanes = 32, rows = 8;        // threads of a CTA
  int unroll = 1;                  // steps whose loads are in flight together
  int block_axis = -1, block = 1;  // grid axis that a thread does `block` neighbours of at once
  int chunk_axis = -1;
  std::int64_t chunk = 1;   // grid axis that a CTA loops over, summing rows in shared memory
  int row_slots = 0;        // shared sums per output for that
  bool adds_later = false;  // a second launch adds up the CTAs' partial sums (group_later_sums.cpp)
  int sharers = 1;          // CTAs that have a part of each reduction, about a CTA an SM in all
  std::int64_t serial_count = 1, serial_chunk = 1;  // serial indices in all and per CTA
  std::int64_t inner_vectors = 1, inner_chunk = 1;  // vectors in all (flattened inner axes) and per CTA
  bool is_ragged = false;                           // the last vector of the inner axis is not whole
  bool is_transposed =
      false;             // a load lies along the serial axis: steps of a thread are neighbours, rows of a warp many
  bool is_wide = false;  // offsets need 64 bits
  std::int64_t ctas = 0;
  int resident_ctas = 4;  // per SM, for __launch_bounds__
  bool is_stage = false;  // of a vertically fused launch: its inputs may have been written in the same launch

  // A group with own reductions (staged_schedule.cpp). In a sweep a row of threads, kLanes of them, walks along each
  // row of the group's reductions; in a tile the rows of threads walk and lanes stand on neighbouring rows.
  int steps = 1;               // vectors per thread that are held, or in flight together
  bool holds_rows = false;     // loads of a whole row stay in registers from stage to stage; otherwise read again
  bool fetches_ahead = false;  // held loads of a CTA's next turn are on their way during this one
  std::vector<bool> is_held;   // per load
  std::vector<CarriedValue> carried;
  int shifted_like = -1;  // rows start anywhere, as this operand's do: vectors begin at its first aligned element of a
                          // row, and elements at both ends go one by one
  std::int64_t row_count = 1;  // of the grid and serial axes (in a tile: times inner_vectors)
  std::int64_t blocks = 1;     // rows / rows per turn of a CTA; `ctas` of them at a time

  std::string why;

  int threads() const { return lanes * rows; }
};

/// A row of a stage has at least so many lanes, where there are more rows than threads for all of them at once: they
/// read 128 bytes side by side.
inline constexpr int kPhaseLanes = 8;

/// Whether element offsets or the number of points need 64 bits.
bool needs_wide_offsets(const Group& group);
/// Whether operand i can be moved in whole vectors along the inner axis.
bool fits_vector(const Group& group, std::size_t i, std::int64_t alignment, int vector);
/// Whether operand i is moved once per point, contiguously. `used`: per load, whether an output needs it.
bool is_stream(const Group& group, std::size_t i, const std::vector<bool>& used);
/// Whether operand i is a load that all of many rows of the inner axis have the same of, as one value per channel is.
bool is_shared_row(const Group& group, std::size_t i);
/// Elements of the inner axis, at most `most`, that a lane moves at once: 16 bytes of the widest stream. Up to
/// `rows_held` shared rows do not count, which threads that go down the rows hold. `may_be_ragged`: the last vector of
/// a row need not be whole.
int vector_of_streams(const Group& group, const std::vector<bool>& used, std::span<const int> alignment,
                      std::int64_t most, bool may_be_ragged, std::size_t rows_held);
/// The same of these streams.
int vector_of_streams(const Group& group, std::span<const std::size_t> streams, std::span<const int> alignment,
                      std::int64_t most, bool may_be_ragged);
/// Bytes of an element of the widest of some operands, and of one of each.
struct ElementBytes {
  std::int64_t widest = 0, all = 0;
};
ElementBytes element_bytes(const Group& group, std::span<const std::size_t> operands);

/// The schedule of a canonical group with at least one axis and no empty one.
/// `alignment`: bytes that each operand's start is a multiple of. `stage_threads`, where it is not 0: of the one CTA
/// that has the group to itself, as a stage of a vertically fused launch (vertical_launch.h), turn by turn; its threads
/// are that many.
GroupSchedule schedule_group(const Group& group, std::span<const int> alignment, const Target& target,
                             int stage_threads = 0);

/// The same for a group with own reductions; its outputs must be among those of staged_refusal().
GroupSchedule schedule_staged(const Group& group, std::span<const int> alignment, const Target& target,
                              int stage_threads = 0);

/// A schedule in words, but for `why`, which they are for (describe_schedule.cpp).
std::string describe(const GroupSchedule& schedule, const Target& target, double in_flight_kilobytes);

}  // namespace paoding::gpu
