// SPDX-License-Identifier: Apache-2.0
// Nest: what a Group becomes for the CPU. Loops around a tile, and for each place in the loops the instructions that
// run there: what does not change in the inner loops is computed outside them.
#pragma once

#include <cstdint>
#include <vector>

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
  bool split = false;  // each thread runs its own part of this loop
  std::vector<SlotMove> moves;
  std::vector<Instruction> enter, exit;  // before the first and after the last iteration
};

/// Sums that are complete only when all loops and threads are: a dense array of them per thread, combined at the end.
struct SharedSum {
  std::uint16_t slot = 0;
  std::int64_t arena_offset = 0;
  std::int64_t count = 1;
  bool is_float = true;
  std::uint16_t out_slot = 0;
  std::int64_t out_bytes = 4;                      // of one element
  std::vector<std::int64_t> extents, out_strides;  // of the kept axes, outermost first
  Instruction flush;                               // slot 0 from slot 1, a run along the last kept axis
};

/// The start of a slot that is not an operand: a register, a constant or sums.
struct ArenaSlot {
  std::uint16_t slot = 0;
  std::int64_t offset = 0;
};

struct Constant {
  std::int64_t offset = 0;
  std::uint64_t bits = 0;  // the first bytes are the value in its compute dtype
};

struct Nest {
  bool empty = false;    // no points: outputs that reduce are still written
  bool streams = false;  // some store bypasses the caches
  int threads = 1;
  std::int64_t split_extent = 1;  // of the axis that the threads share out, in units of split_unit
  std::int64_t split_unit = 1;
  TileShape shape;  // of a whole tile
  std::vector<NestLoop> loops;
  std::vector<Instruction> tile;
  std::vector<SharedSum> shared_sums;
  int slot_count = 0;
  std::vector<ArenaSlot> arena_slots;
  std::vector<Constant> constants;
  std::int64_t arena_bytes = 0;
};

/// Sets the tile's shape, the loops and the threads of `nest` for a canonical group (threads = 0: by bytes moved).
/// Returns the axis of the tile's rows, -1 when it has one row.
int choose_loops(const Group& group, int threads, Nest* nest);

// Axis -1 stands for one that the group does not have.
std::int64_t stride_along(const std::vector<std::int64_t>& strides, int axis);
bool has_axis(std::uint32_t axes, int axis);
/// Elements of an output: the product of the extents of the axes it does not reduce.
std::int64_t kept_elements(const Group& group, const GroupOutput& output);

Nest build_nest(const Group& group, int threads, Sharing sharing);

}  // namespace paoding
