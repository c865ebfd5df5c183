// SPDX-License-Identifier: Apache-2.0
// Where the accumulators of each output are kept, when they start and when they are done.
#include "base/check.h"
#include "cpu/phase_builder.h"

namespace paoding {

void PhaseBuilder::place_sums() {
  sums_.resize(group_.outputs.size());
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
    const GroupOutput& output = group_.outputs[o];
    if (output.reduce_mask == 0 || (output.combine == Combine::none && !nest_.empty)) continue;
    Instruction& add = sums_[o];
    const TileKind kept = kept_kind(output);
    add.rows_reduced = !kept.rows;
    add.cols_reduced = !kept.cols;
    const DType compute = group_.expr.dtype_of(output.value);
    add.routine = find_accumulate(output.combine, compute);
    add.meaning = {.kind = Meaning::Kind::accumulate, .combine = output.combine, .compute = compute};
    // Complete after some loop, if all loops inside it reduce and none outside does.
    int first_reduced = 0;
    while (first_reduced < loop_count() && !has(output.reduce_mask, loop(first_reduced).axis)) ++first_reduced;
    bool local = !nest_.empty;
    for (int l = first_reduced; l < loop_count(); ++l) {
      local = local && has(output.reduce_mask, loop(l).axis) && loop(l).split < 0;
    }
    if (local && first_reduced == loop_count() && can_reduce_at_once(o)) continue;
    local ? place_local_sum(o, first_reduced) : place_shared_sum(o);
    sum_in_blocks(o);
  }
}

// Sums of columns, one row at a time: the rows of a block are combined in f32, which moves half the bytes of f64, and
// the error stays at a few ulp.
void PhaseBuilder::sum_in_blocks(std::size_t o) {
  constexpr std::int64_t kRows = 64;
  const GroupOutput& output = group_.outputs[o];
  const Instruction& add = sums_[o];
  if (nest_.empty || nest_.row_axis >= 0 || add.cols_reduced || loop_count() == 0) return;
  NestLoop& rows = loop(loop_count() - 1);
  const bool is_long = rows.extent / rows.step >= kRows / 4;
  if (!is_long || !has(output.reduce_mask, rows.axis) || group_.expr.dtype_of(output.value) != f32) return;
  const Prim prim = output.combine == Combine::sum   ? Prim::add
                    : output.combine == Combine::max ? Prim::maximum
                                                     : Prim::minimum;
  if (output.combine == Combine::prod) return;
  rows.block = kRows;
  Instruction start, combine, finish = add;
  start.out = combine.out = combine.a = finish.a = pool_.add(tile_elements() * 8);
  start.routine = find_spread(f32);
  start.a = add_constant({.prim = Prim::constant, .dtype = f32, .value = identity_of(output.combine, f32)});
  combine.routine = find_routine(prim, f32, 0);
  combine.meaning = {.kind = Meaning::Kind::prim, .prim = prim, .compute = f32};
  set_kind(whole(), &start);
  set_kind(whole(), &combine);
  rows.block_enter.push_back(start);
  rows.block_exit.push_back(finish);
  sums_[o] = combine;
}

std::uint16_t PhaseBuilder::add_constant(const ExprNode& node) {
  const std::uint16_t slot = pool_.add(8, Kept::forever);
  nest_.constants.push_back({pool_.offset_of_last(), constant_bits(node)});
  return slot;
}

Instruction PhaseBuilder::flush_of(const GroupOutput& output) const {
  Instruction flush;
  flush.routine = find_flush(group_.expr.dtype_of(output.value), output.dtype);
  return flush;
}

bool PhaseBuilder::can_reduce_at_once(std::size_t o) {
  const GroupOutput& output = group_.outputs[o];
  Instruction& reduce = sums_[o];
  const DType compute = group_.expr.dtype_of(output.value);
  const TileRoutine routine = find_reduce(output.combine, compute);
  if (routine == nullptr || output.dtype != compute) return false;
  set_strides(output.strides, &reduce);
  if (!reduce.cols_reduced && reduce.col_stride != 1) return false;
  reduce.routine = routine;
  reduce.meaning.kind = Meaning::Kind::reduce;
  reduce.out = output_slot(o);
  return true;
}

void PhaseBuilder::place_local_sum(std::size_t o, int level) {
  const GroupOutput& output = group_.outputs[o];
  Instruction& add = sums_[o];
  add.out = pool_.add(tile_elements() * kAccumulatorBytes);
  add.pitch = add.rows_reduced ? 0 : add.cols_reduced ? 1 : nest_.shape.cols;
  Instruction start = add;
  start.meaning = {};
  start.routine = find_start(output.combine, group_.expr.dtype_of(output.value));
  list(level).push_back(start);
  Instruction flush = flush_of(output);
  flush.rows_reduced = add.rows_reduced;
  flush.cols_reduced = add.cols_reduced;
  flush.pitch = add.pitch;
  flush.a = add.out;
  flush.out = output_slot(o);
  flush.row_stride = at(output.strides, nest_.row_axis);
  flush.col_stride = at(output.strides, inner());
  (level == loop_count() ? last_ : loop(level).exit).push_back(flush);
}

void PhaseBuilder::place_shared_sum(std::size_t o) {
  const GroupOutput& output = group_.outputs[o];
  PD_ASSERT(!is_stage_value(pass_.output_operands[o]), "a phase completes what it reduces for the next");
  Instruction& add = sums_[o];
  const DType compute = group_.expr.dtype_of(output.value);
  SharedSum sum;
  sum.count = kept_points(group_, output.reduce_mask);
  sum.identity = identity_bits(output.combine, compute);
  sum.combine = find_combine(output.combine, compute);
  sum.slot = add.out = pool_.add(sum.count * kAccumulatorBytes, Kept::run);
  sum.out_slot = output_slot(o);
  sum.out_bytes = size_bytes(output.dtype);
  sum.flush = flush_of(output);
  sum.flush.out = 0;
  sum.flush.a = 1;
  Strides strides(group_.extents.size(), 0);
  std::int64_t elements = 1;
  for (int axis = group_.rank(); axis-- > 0;) {
    if (has(output.reduce_mask, axis)) continue;
    strides[static_cast<std::size_t>(axis)] = elements;
    elements *= extent(axis);
    sum.extents.insert(sum.extents.begin(), extent(axis));
    sum.out_strides.insert(sum.out_strides.begin(), at(output.strides, axis));
  }
  if (!sum.out_strides.empty()) sum.flush.col_stride = sum.out_strides.back();
  add.pitch = at(strides, nest_.row_axis);
  move_along_all(add.out, strides, kAccumulatorBytes);
  nest_.shared_sums.push_back(std::move(sum));
}

}  // namespace paoding
