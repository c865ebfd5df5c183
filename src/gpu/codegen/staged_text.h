// SPDX-License-Identifier: Apache-2.0
// Writes the kernel of a group with own reductions: every turn of a CTA takes some rows and walks along them once per
// stage.
#pragma once

#include <string>
#include <vector>

#include "gpu/codegen/group_writer.h"

namespace paoding::gpu {

class StagedText : public KernelText {
 public:
  StagedText(const Group& group, const GroupSchedule& schedule, const std::vector<bool>& is_live);
  TextLaunch run();

 private:
  /// A pass along the rows: the values that it computes at every point, and the operands that these need.
  struct Pass {
    std::string formula;  // the name of its function
    std::vector<FormulaResult> results;
    std::vector<std::size_t> reductions;  // combined in it
    std::vector<std::size_t> outputs;     // stored or combined in it
    std::vector<std::int32_t> carried;    // nodes that later passes get from it
    std::vector<std::int32_t> same;       // nodes that are the same along a row, worked out in front of it
    FormulaUse same_use;
    std::vector<bool> known;  // per node: carried to it, or the same along the row
    FormulaUse use;
  };

  std::string_view reduction_type(std::size_t r) const;
  std::string_view reduction_op(std::size_t r) const { return combine_text(group_.reductions[r].combine); }
  /// A tile combines one row per element of a vector.
  std::string element() const { return is_tile_ ? "[v]" : ""; }
  bool moves_in_row(std::size_t operand) const { return varies(operand, loop_axes()); }
  bool is_kept(std::size_t load) const { return s_.holds_rows && s_.is_held[load]; }
  bool is_across_rows(std::size_t o) const { return is_sink(o, SinkKind::column) || is_sink(o, SinkKind::total); }
  bool is_shifted() const { return s_.shifted_like >= 0; }

  void find_passes();
  void find_same(Pass* pass);
  void emit_start();
  void emit_turn();
  void emit_row_start();
  void emit_row();
  void emit_row_bases();
  void emit_row_loads();
  void emit_shift();
  void emit_row_load(std::size_t load, const std::string& suffix);
  /// Loads into packs of these names after their operand's, in a shifted row those around its vectors too.
  void emit_held_loads(const std::string& suffix, const std::string& edge);
  void emit_fetch();
  void emit_steps(bool needs_count, const std::string& first, const Pass* pass = nullptr);
  void emit_carried_start(const Pass& pass);
  void emit_load(std::size_t load, const std::string& pack, const std::string& count);
  /// Brackets the code for the elements before and after the vectors of a shifted row, one a thread.
  void begin_edge();
  void end_edge();
  void emit_pass(const Pass& pass);
  void emit_same(const Pass& pass);
  void emit_loads_of(const Pass& pass, const std::string& index);
  void emit_points(const Pass& pass);
  /// `may_have_label`: "", or whether the vector may have the row's label, "true" or "false".
  void emit_points_that(const std::string& may_have_label, const Pass& pass);
  bool has_label(const Pass& pass) const;
  std::string label_text(const Pass& pass) const;
  std::string label_place();
  /// Whether all that a reduction adds up where the label is not is nothing.
  bool is_of_label(std::size_t reduction) const;
  void emit_point_sink(std::size_t o);
  /// Combines partial results of the threads that walk one row; afterwards each of them has the result.
  struct Combined {
    std::string name;
    std::string_view op, type;
  };
  void emit_team(const std::vector<Combined>& values);
  void emit_rows(const Pass& pass);
  void emit_across_rows();
  void emit_partials();
  std::int64_t partial_elements(std::size_t o) const;
  int partial_vector(std::size_t o) const;
  /// Partial results that one CTA combines at a time: about the root of how many there are.
  std::int64_t bundle() const;
  std::string step_offset(std::size_t operand);
  std::string arguments(const Pass& pass, const FormulaUse& use, bool is_point);
  std::string row_end();
  /// A node's place among those that are carried.
  std::string carried_value(std::int32_t node) const {
    return fmt::format("kept{}{}", node, in_edge_ ? "_edge" : "[u][v]");
  }
  std::string vector_count() const { return s_.is_ragged ? "count" : "kVector"; }

  std::vector<Pass> passes_;
  Pass once_;                 // computes values that are written once per row
  std::vector<bool> in_row_;  // per node: whether it varies along a row
  RowLabel label_;
  int exchanges_ = 0;  // through shared memory, per turn
  int exchange_ = 0;
  bool in_edge_ = false;
};

}  // namespace paoding::gpu
