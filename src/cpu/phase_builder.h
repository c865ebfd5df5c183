// SPDX-License-Identifier: Apache-2.0
// The parts of build_phase(): accumulators in phase_sums.cpp, nodes in phase_nodes.cpp, moving operands in
// group_kernel_phase.cpp.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "cpu/group_kernel_phase.h"

namespace paoding {

class PhaseBuilder {
 public:
  PhaseBuilder(const StagePass& pass, const PhaseSetting& setting);

 private:
  using Axes = std::uint32_t;
  using Strides = std::vector<std::int64_t>;

  // Where the value of a node is found.
  struct Place {
    std::uint16_t slot = 0;
    TileKind kind;
    int level = 0;  // number of loops around its computation
  };

  int inner() const { return group_.rank() - 1; }
  std::int64_t extent(int axis) const { return axis < 0 ? 1 : group_.extents[static_cast<std::size_t>(axis)]; }
  static std::int64_t at(const Strides& strides, int axis) { return stride_along(strides, axis); }
  static bool has(Axes axes, int axis) { return has_axis(axes, axis); }

  std::uint16_t load_slot(std::size_t load) const;
  std::uint16_t output_slot(std::size_t o) const;
  bool is_stage_value(int operand) const { return operand >= static_cast<int>(setting_.operands); }

  // ---- loops: the nest's, then the phase's ----

  int loop_count() const { return outer_ + static_cast<int>(setting_.phase->loops.size()); }
  NestLoop& loop(int l);
  std::vector<Instruction>& list(int level) { return level == loop_count() ? setting_.phase->tile : loop(level).enter; }

  // ---- kinds ----

  TileKind kind_of(Axes axes) const { return tile_kind(group_, nest_, axes); }
  TileKind whole() const { return kind_of(~Axes{0}); }
  TileKind kept_kind(const GroupOutput& output) const { return kind_of(~output.reduce_mask); }
  std::int64_t tile_elements() const { return nest_.shape.rows * nest_.shape.cols; }
  bool dense(TileKind kind, const Strides& strides, int operand) const;
  static void set_kind(TileKind kind, Instruction* instruction);

  // ---- accumulators ----

  void place_sums();
  void sum_in_blocks(std::size_t o);
  std::uint16_t add_constant(const ExprNode& node);
  Instruction flush_of(const GroupOutput& output) const;
  bool can_reduce_at_once(std::size_t o);
  void place_local_sum(std::size_t o, int level);
  void place_shared_sum(std::size_t o);

  // ---- nodes ----

  void find_levels();
  Axes axes_of(const Strides& strides) const;
  int level_of_tile(TileKind kind);
  bool may_store_after(std::int32_t node, const GroupOutput& output) const;
  bool is_in_place(std::int32_t i) const;
  bool is_streamed(std::size_t o) const;
  int direct_output(std::int32_t i) const;
  void emit_nodes();
  void release(std::int32_t node);
  void place_node(std::int32_t i);
  static std::uint64_t constant_bits(const ExprNode& node);
  void emit_node(std::int32_t i);
  void set_strides(const Strides& strides, Instruction* instruction) const;
  std::uint16_t spread(std::int32_t node, TileKind kind);
  void emit_output(std::size_t o);
  void emit_prefetches();

  // ---- moves ----

  void move_along(NestLoop& loop, std::uint16_t slot, const Strides& strides, std::int64_t bytes);
  void move_along_all(std::uint16_t slot, const Strides& strides, std::int64_t bytes);
  void emit_moves();
  void drop_idle_loops();

  const PhaseSetting& setting_;
  const Group& group_;
  const StagePass& pass_;
  Nest& nest_;
  SlotPool& pool_;
  int outer_ = 0;  // loops of the nest
  std::vector<Place> places_;
  std::vector<std::int32_t> last_use_;  // -1 unused, expr.size() used by an output
  std::vector<Instruction> sums_;       // per output that reduces: its accumulate
  std::vector<Instruction> last_;       // the tile list's last instructions
  std::vector<bool> reusable_;          // nodes in registers of the tile list
  std::map<std::tuple<std::int32_t, bool, bool>, std::uint16_t> spread_;
};

}  // namespace paoding
