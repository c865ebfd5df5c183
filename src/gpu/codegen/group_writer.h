// SPDX-License-Identifier: Apache-2.0
// Writes one group's kernel: group_text.cpp the parts around the loop, group_loop.cpp the loop and the code after it.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "gpu/codegen/group_formula.h"
#include "gpu/codegen/group_text.h"

namespace paoding::gpu {

/// Outputs whose partial sums have the same tiles: the same grid dimensions reduced.
struct PartGroup {
  std::vector<bool> is_reduced;  // per grid dimension
  std::vector<std::size_t> outputs;
  std::int64_t parts = 1, tiles = 1;
};

/// Whether a group's formula draws random numbers.
bool draws_numbers(const Group& group);
/// Whether an index goes on by one along `inner`, from a multiple of four on wherever all other coordinates are.
bool is_in_fours(const GroupIndex& index, int inner);

/// A kernel of one pass over the points.
class KernelText {
 public:
  KernelText(const Group& group, const GroupSchedule& schedule, const std::vector<bool>& is_live);
  TextLaunch run();
  /// The launch after it, of a schedule that adds up later (group_later_sums.cpp).
  TextLaunch add_later();

 protected:
  std::size_t loads() const { return group_.loads.size(); }
  const GroupOutput& output(std::size_t o) const { return group_.outputs[o]; }
  std::int64_t stride(std::size_t operand, int axis) const;
  std::int64_t extent(int axis) const { return group_.extents[static_cast<std::size_t>(axis)]; }
  bool varies(std::size_t operand, const std::vector<int>& axes) const;
  const std::vector<int>& loop_axes() const { return is_tile_ ? s_.serial_axes : s_.inner_axes; }
  const std::vector<int>& fixed_axes() const { return is_tile_ ? s_.inner_axes : s_.serial_axes; }
  bool is_sink(std::size_t o, SinkKind kind) const { return is_live_[o] && s_.sinks[o] == kind; }
  std::string_view sum_type(std::size_t o) const;
  std::string_view op(std::size_t o) const { return combine_text(output(o).combine); }
  int sum_bytes(std::size_t o) const { return sum_type(o) == "double" || sum_type(o) == "long long" ? 8 : 4; }
  bool is_blocked(std::size_t operand) const { return s_.block_axis >= 0 && stride(operand, s_.block_axis) != 0; }
  bool keeps_block(std::size_t o) const {
    return s_.block_axis >= 0 && !((output(o).reduce_mask >> s_.block_axis) & 1u);
  }
  /// Sums that a thread holds per column or row of this output.
  int sum_count(std::size_t o) const { return keeps_block(o) ? s_.block : 1; }
  std::string_view block_index(bool blocked) const { return blocked && s_.block > 1 ? "j" : "0"; }

  // ---- Names of sizes ----

  /// " + x0 * (Index)size.in0_x0 ..." over those of `axes` along which the operand moves.
  std::string offset_terms(const std::string& name, std::size_t operand, const std::vector<int>& axes);
  std::string inner_extent() { return sizes_.number("inner", extent(inner_)); }

  // ---- Operands that share offsets, and outputs that share parts ----

  void find_aliases();
  void find_parts();

  /// Partial sums per CTA of an output: a number in the source where the tile size is one, else a parameter.
  std::int64_t tile_elements(std::size_t o) const;
  std::string tile_elements_text(std::size_t o);
  const PartGroup& parts_of(std::size_t o) const { return parts_[static_cast<std::size_t>(part_group_[o])]; }
  /// Source for the address at which they begin.
  std::string parts_text(std::size_t o);

  // ---- Source before the kernel ----

  std::string comment() const;
  /// `bounds`: of the launch.
  std::string signature(const std::string& bounds);

  // ---- Where this CTA and this thread stand ----

  void emit_decode(const std::vector<int>& axes, const std::string& index, const std::string& name);
  bool has_sums() const;
  void emit_coordinates();
  void emit_count(const std::string& target, const std::string& suffix);
  std::int64_t scratch_bytes() const;
  void emit_sums();

  // ---- Loads ----

  std::vector<int> outer_axes() const;
  bool needs_offset(std::size_t k) const;
  void emit_bases();
  std::string_view index_type(std::size_t i) const;
  std::string index_step(std::size_t i, int axis);
  std::string index_terms(std::size_t i, const std::vector<int>& axes);
  bool index_varies(std::size_t i) const;  // in the loop
  void emit_index_bases();
  /// Index i of an element: `at` holds that of the vector.
  std::string index_argument(std::size_t i, const std::string& at);
  /// Whether the group draws random numbers and the vectors of every step begin at a multiple of four of index i.
  bool begins_at_fours(std::size_t i) const {
    return s_.vector % 4 == 0 && s_.shifted_like < 0 && draws_numbers(group_) && is_in_fours(group_.indices[i], inner_);
  }
  TextLaunch finish(const std::string& formulas);
  TextLaunch finish(const std::string& functions, const std::string& head, std::int64_t ctas, int threads);

  std::string operands_at(std::size_t k) const;
  std::string pack_type(std::size_t operand, std::string_view kind = "Pack") const;
  std::string inner_step(std::size_t operand);

  /// Moves one pack between `pack` and the operand's element `at`.
  void emit_move(std::size_t operand, bool is_store, const std::string& pack, const std::string& at,
                 const std::string& count);
  void emit_block_loop(bool blocked);
  void end_block_loop(bool blocked);
  std::string block_term(std::size_t operand);
  bool is_hoisted(std::size_t load) const { return !varies(load, loop_axes()); }

  void emit_hoisted_loads();

  // ---- The loop: all loads of kUnroll steps, then all arithmetic, sums and stores ----

  bool loop_needs_offset(std::size_t k) const;
  std::string offset_in_loop(std::size_t operand);
  void emit_loop();

  void emit_loop_coordinates();
  void emit_arithmetic(const std::string& count);
  void emit_sink(std::size_t o);
  void emit_combine(std::size_t o, const std::string& sum);

  /// The sum of one row of a tile, in the loop: every lane takes part.
  void emit_row(std::size_t o);

  /// Stores a finished sum: `axes` besides the grid's have coordinates in scope.
  void emit_final_store(std::size_t o, const std::vector<int>& axes, const std::string& value,
                        const std::string& block);

  // ---- After the loop ----

  void emit_columns();
  void emit_column_store(std::size_t o, const std::string& value, const std::string& column, const std::string& block);
  void emit_totals_and_rows();

  /// Stores element e of an output's tile, in the order the partial sums have.
  std::string emit_element_place(std::size_t o);
  void emit_element_store(std::size_t o, const std::string& value);
  void emit_last_arrivers();
  void emit_last_sharers(std::size_t p);

  // ---- A second launch that adds up (group_later_sums.cpp) ----

  /// How many sums of the output one of its CTAs leaves: a part of each of its rows' sums, beside the parts of the same
  /// sum that other CTAs leave.
  std::int64_t left_sums(std::size_t o) const { return parts_of(o).tiles * tile_elements(o); }
  void emit_leaving(std::size_t o);
  void emit_later_sum(std::size_t o);

  const Group& group_;
  const GroupSchedule& s_;
  const std::vector<bool>& is_live_;
  FormulaUse used_;
  int inner_;
  bool is_tile_;
  std::vector<std::size_t> offsets_;    // one operand per distinct stride vector
  std::vector<std::size_t> offset_of_;  // per operand: which of them
  std::vector<bool> may_alias_;         // per operand: may share memory with another
  std::vector<PartGroup> parts_;
  std::vector<int> part_group_;         // per output: index into parts_, or -1
  std::vector<std::int64_t> parts_at_;  // per output: bytes into the workspace
  SizeFields sizes_;
  Lines k_;
  std::int64_t workspace_bytes_ = 0, ticket_count_ = 0;
  bool leaves_sums_ = false;  // an earlier sum has used the shared memory of the threads
};

}  // namespace paoding::gpu
