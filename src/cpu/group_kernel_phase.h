// SPDX-License-Identifier: Apache-2.0
// One phase of a Nest: within loops that are chosen, where each node of an Expr is computed, in which register, and
// where the accumulators of each output are kept.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/group_kernel_nest.h"
#include "cpu/group_kernel_stages.h"

namespace paoding {

/// Slots of a nest that are not operands.
class SlotPool {
 public:
  SlotPool(Nest* nest, int operands) : nest_(*nest), next_(operands) {}

  std::uint16_t add(std::int64_t bytes, Kept kept = Kept::walk);
  /// A slot without memory: its start is set otherwise.
  std::uint16_t add_bare();
  /// A tile's worth of memory, for use within the tile list.
  std::uint16_t take_register();
  void give_back(std::uint16_t slot) { free_.push_back(slot); }
  std::int64_t offset_of_last() const { return nest_.arena_slots.back().offset; }
  int count() const { return next_; }
  /// Per slot, whether it is a register.
  const std::vector<bool>& registers() const { return registers_; }

 private:
  Nest& nest_;
  int next_;
  std::vector<std::uint16_t> free_;
  std::vector<bool> registers_;
};

/// A prefetch while a phase runs: a load's elements that the nest's loops come to later.
struct Prefetch {
  std::size_t load = 0;    // an operand
  std::int32_t ahead = 0;  // bytes
};

struct PhaseSetting {
  Nest* nest = nullptr;  // loops, tile and threads are chosen
  Phase* phase = nullptr;
  SlotPool* pool = nullptr;
  std::vector<std::uint16_t> slots;  // of every operand, then of every stage value
  std::size_t operands = 0;          // that is, without stage values
  Sharing sharing = Sharing::possible;
  std::vector<bool> far;         // of every operand, or empty: nobody touches it again while a cache would have it
  const Group* whole = nullptr;  // all phases' group
  std::vector<Prefetch> prefetches;
};

/// Fills setting.phase, and adds instructions that are hoisted out of it to the nest's loops.
void build_phase(const StagePass& pass, const PhaseSetting& setting);

/// Which axes of the tile a value varies along.
struct TileKind {
  bool rows = false, cols = false;
  friend bool operator==(const TileKind&, const TileKind&) = default;
};

/// Whether an operand with these strides, seen as values of this kind, lies as a tile of the nest does.
bool is_dense(const Group& group, const Nest& nest, TileKind kind, const std::vector<std::int64_t>& strides);
/// The tile axes among `axes`.
TileKind tile_kind(const Group& group, const Nest& nest, std::uint32_t axes);

}  // namespace paoding
