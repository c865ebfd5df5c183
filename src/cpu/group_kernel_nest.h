// SPDX-License-Identifier: Apache-2.0
// Nest: the CPU's form of a Group. Loops around a tile, and for each place in the loops the instructions that run
// there: values that do not change in the inner loops are computed outside them. A group with own reductions runs in
// phases: inside the loops over kept axes, every phase has its own loops over reduced ones.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cpu/fused_routine.h"
#include "cpu/group_kernel.h"
#include "cpu/tile.h"
#include "group/group.h"

namespace paoding {

/// How far a slot moves per unit of a loop's axis.
struct SlotMove {
  std::uint16_t slot = 0;
  std::int64_t bytes = 0;
};

enum class TileAxis : std::uint8_t { none, rows, cols };

struct NestLoop {
  int axis = 0;
  std::int64_t extent = 1;
  std::int64_t step = 1;  // of the axis; more than 1 where the tile covers part of it
  TileAxis tile_axis = TileAxis::none;
  int split = -1;  // which of Nest::splits: each thread runs its own part of this loop
  std::vector<SlotMove> moves;
  std::vector<Instruction> enter, exit;  // before the first and after the last iteration
  std::int64_t block = 0;                // iterations that block_enter and block_exit enclose; 0: no blocks
  std::vector<Instruction> block_enter, block_exit;
};

/// Loops inside the nest's loops, run one phase after the other.
struct Phase {
  std::vector<NestLoop> loops;
  std::vector<Instruction> tile;
};

/// An axis that the threads share out, in `parts` of whole units.
struct NestSplit {
  std::int64_t extent = 1, unit = 1;
  int parts = 1;
};

/// Accumulators that are complete only when all loops and threads are: a dense array per thread, combined at the end.
struct SharedSum {
  std::uint16_t slot = 0;
  std::int64_t count = 1;
  std::uint64_t identity = 0;
  CombineRoutine combine = nullptr;
  std::uint16_t out_slot = 0;
  std::int64_t out_bytes = 4;                      // of one element
  std::vector<std::int64_t> extents, out_strides;  // of the kept axes, outermost first
  Instruction flush;                               // slot 0 from slot 1, a run along the last kept axis
};

/// How long the contents of a slot that is no operand are needed.
enum class Kept : std::uint8_t {
  walk,     // while a thread walks its part: registers, accumulators of its own, values handed from phase to phase
  run,      // until all threads are done: accumulators that are combined then
  forever,  // constants
};
inline constexpr std::size_t kKeptCount = 3;

/// The start of a slot that is no operand, in the memory of its kind.
struct ArenaSlot {
  std::uint16_t slot = 0;
  std::int64_t offset = 0;
  Kept kept = Kept::walk;
};

struct Constant {
  std::int64_t offset = 0;
  std::uint64_t bits = 0;  // the first bytes are the value in its compute dtype
};

/// A slot that holds a number that follows from the iteration point, which moves like a pointer to bytes.
struct IndexSlot {
  std::uint16_t slot = 0;
  std::int64_t start = 0;
};

struct Nest {
  bool empty = false;    // no points: outputs that reduce are still written
  bool streams = false;  // some store bypasses the caches
  int threads = 1;       // the product of the splits' parts
  std::vector<NestSplit> splits;
  TileShape shape;     // of a whole tile
  int row_axis = -1;   // the axis of the tile's rows, -1 when it has one row
  bool waits = false;  // the kept axes are too few for the threads: phases are better run as groups of their own
  std::vector<NestLoop> loops;
  std::vector<Phase> phases;
  std::vector<SharedSum> shared_sums;
  int slot_count = 0;
  std::vector<ArenaSlot> arena_slots;
  std::vector<Constant> constants;
  std::vector<IndexSlot> index_slots;
  std::array<std::int64_t, kKeptCount> bytes = {};  // of each kind of memory, by Kept
  std::int64_t bytes_of(Kept kept) const { return bytes[static_cast<std::size_t>(kept)]; }
  std::vector<std::shared_ptr<const FusedCode>> code;  // of the fused routines in the lists
};

/// Sets the tile, the loops and the threads of `nest` for a canonical group (threads = 0: by its cost). The loops of
/// the axes that the group's own reductions reduce go to *inner: every phase has them.
void choose_loops(const Group& group, int threads, Nest* nest, std::vector<NestLoop>* inner);

/// Nanoseconds that one thread needs, roughly.
double group_cost(const Group& group);
/// The cost of the node per element, in units of an addition.
double node_cost(const Group& group, const ExprNode& node);

// Axis -1 stands for one that the group does not have.
std::int64_t stride_along(const std::vector<std::int64_t>& strides, int axis);
bool has_axis(std::uint32_t axes, int axis);
/// Points of the space with the axes in `mask` left out.
std::int64_t kept_points(const Group& group, std::uint32_t mask);
/// The axes of the group's own reductions; 0 without any.
std::uint32_t reduced_axes(const Group& group);

/// `far`: of outputs, as CpuGroupKernel has it.
Nest build_nest(const Group& group, int threads, Sharing sharing, const std::vector<bool>& far);

}  // namespace paoding
