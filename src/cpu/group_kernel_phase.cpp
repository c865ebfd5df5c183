// SPDX-License-Identifier: Apache-2.0
#include "cpu/group_kernel_phase.h"

#include "base/check.h"
#include "base/rounding.h"
#include "cpu/phase_builder.h"

namespace paoding {

std::uint16_t SlotPool::add(std::int64_t bytes, Kept kept) {
  // Slots of whole pages would all begin at the same place in one: a load then waits for the stores before it that have
  // the same low twelve bits.
  constexpr std::int64_t kLine = 64, kApart = 11 * kLine, kLarge = 1024;
  std::int64_t& end = nest_.bytes[static_cast<std::size_t>(kept)];
  nest_.arena_slots.push_back({add_bare(), end, kept});
  end += round_up(bytes, kLine) + (bytes >= kLarge ? kApart : 0);
  return nest_.arena_slots.back().slot;
}

std::uint16_t SlotPool::add_bare() {
  PD_ASSERT(next_ < 65535, "a group has fewer nodes than there are slots");
  return static_cast<std::uint16_t>(next_++);
}

std::uint16_t SlotPool::take_register() {
  if (free_.empty()) {
    const std::uint16_t slot = add(nest_.shape.rows * nest_.shape.cols * 8);
    registers_.resize(slot + std::size_t{1});
    registers_[slot] = true;
    return slot;
  }
  const std::uint16_t slot = free_.back();
  free_.pop_back();
  return slot;
}

TileKind tile_kind(const Group& group, const Nest& nest, std::uint32_t axes) {
  return {has_axis(axes, nest.row_axis), nest.shape.cols > 1 && has_axis(axes, group.rank() - 1)};
}

bool is_dense(const Group& group, const Nest& nest, TileKind kind, const std::vector<std::int64_t>& strides) {
  if (kind.cols && stride_along(strides, group.rank() - 1) != 1) return false;
  return !kind.rows || stride_along(strides, nest.row_axis) == (kind.cols ? nest.shape.cols : 1);
}

PhaseBuilder::PhaseBuilder(const StagePass& pass, const PhaseSetting& setting)
    : setting_(setting), group_(pass.group), pass_(pass), nest_(*setting.nest), pool_(*setting.pool) {
  outer_ = static_cast<int>(nest_.loops.size());
  find_levels();
  place_sums();
  emit_nodes();
  emit_moves();
  drop_idle_loops();
}

std::uint16_t PhaseBuilder::load_slot(std::size_t load) const {
  return setting_.slots[static_cast<std::size_t>(pass_.load_operands[load])];
}

std::uint16_t PhaseBuilder::output_slot(std::size_t o) const {
  return setting_.slots[static_cast<std::size_t>(pass_.output_operands[o])];
}

NestLoop& PhaseBuilder::loop(int l) {
  return l < outer_ ? nest_.loops[static_cast<std::size_t>(l)]
                    : setting_.phase->loops[static_cast<std::size_t>(l - outer_)];
}

bool PhaseBuilder::dense(TileKind kind, const Strides& strides, int operand) const {
  // A tile of fewer columns than usual is denser than memory; values handed from phase to phase go along with it.
  if (kind.rows && kind.cols && nest_.shape.cols < extent(inner()) && !is_stage_value(operand)) return false;
  return is_dense(group_, nest_, kind, strides);
}

void PhaseBuilder::set_kind(TileKind kind, Instruction* instruction) {
  instruction->one_row = !kind.rows;
  instruction->one_col = !kind.cols;
}

void PhaseBuilder::move_along(NestLoop& loop, std::uint16_t slot, const Strides& strides, std::int64_t bytes) {
  if (at(strides, loop.axis) != 0) loop.moves.push_back({slot, at(strides, loop.axis) * bytes});
}

void PhaseBuilder::move_along_all(std::uint16_t slot, const Strides& strides, std::int64_t bytes) {
  for (int l = 0; l < loop_count(); ++l) move_along(loop(l), slot, strides, bytes);
}

// Operands move with the phase's loops here and with the nest's for all phases at once.
void PhaseBuilder::emit_moves() {
  std::map<std::uint16_t, std::pair<const Strides*, std::int64_t>> moving;  // an output may be read too
  for (std::size_t i = 0; i < group_.loads.size(); ++i) {
    moving[load_slot(i)] = {&group_.loads[i].strides, size_bytes(group_.loads[i].dtype)};
  }
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
    moving[output_slot(o)] = {&group_.outputs[o].strides, size_bytes(group_.outputs[o].dtype)};
  }
  for (const Prefetch& prefetch : setting_.prefetches) {
    const GroupLoad& load = setting_.whole->loads[prefetch.load];
    moving[setting_.slots[prefetch.load]] = {&load.strides, size_bytes(load.dtype)};
  }
  for (NestLoop& loop : setting_.phase->loops) {
    for (const auto& [slot, by] : moving) move_along(loop, slot, *by.first, by.second);
  }
}

// A phase whose values are the same at all its points computes them once.
void PhaseBuilder::drop_idle_loops() {
  Phase& phase = *setting_.phase;
  if (phase.loops.empty() || !phase.tile.empty()) return;
  for (std::size_t l = 0; l < phase.loops.size(); ++l) {
    if (!phase.loops[l].exit.empty() || (l > 0 && !phase.loops[l].enter.empty())) return;
  }
  phase.tile = std::move(phase.loops[0].enter);
  phase.loops.clear();
}

void build_phase(const StagePass& pass, const PhaseSetting& setting) { PhaseBuilder(pass, setting); }

}  // namespace paoding
