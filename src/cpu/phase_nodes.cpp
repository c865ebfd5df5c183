// SPDX-License-Identifier: Apache-2.0
// How deep in the loops each node is computed, in which slot, and by which routine.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "cpu/phase_builder.h"
#include "scalar/primitive.h"

namespace paoding {

// Which axes each node depends on, hence how deep in the loops it has to be computed; and who is needed at all.
void PhaseBuilder::find_levels() {
  const Expr& expr = group_.expr;
  const auto count = static_cast<std::size_t>(expr.size());
  std::vector<Axes> axes(count, 0);
  places_.resize(count);
  reusable_.resize(count);
  last_use_.assign(count, -1);
  for (const GroupOutput& output : group_.outputs) last_use_[static_cast<std::size_t>(output.value)] = expr.size();
  for (std::size_t i = count; i-- > 0;) {
    if (last_use_[i] < 0) continue;
    for (const std::int32_t arg : expr.nodes()[i].args) {
      if (arg < 0) continue;
      std::int32_t& last = last_use_[static_cast<std::size_t>(arg)];
      last = std::max(last, static_cast<std::int32_t>(i));
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    const ExprNode& node = expr.nodes()[i];
    Place& place = places_[i];
    for (const std::int32_t arg : node.args) {
      if (arg < 0) continue;
      axes[i] |= axes[static_cast<std::size_t>(arg)];
      place.level = std::max(place.level, places_[static_cast<std::size_t>(arg)].level);
    }
    const auto index = static_cast<std::size_t>(node.index);
    if (node.prim == Prim::input) {
      axes[i] = axes_of(group_.loads[index].strides);
      if (is_stage_value(pass_.load_operands[index])) place.level = outer_;
    }
    if (node.prim == Prim::index) axes[i] = axes_of(group_.indices[index].strides);
    place.kind = kind_of(axes[i]);
    for (int l = 0; l < loop_count(); ++l) {
      if (has(axes[i], loop(l).axis)) place.level = std::max(place.level, l + 1);
    }
    place.level = std::max(place.level, level_of_tile(place.kind));
  }
}

PhaseBuilder::Axes PhaseBuilder::axes_of(const Strides& strides) const {
  Axes axes = 0;
  for (int axis = 0; axis < group_.rank(); ++axis) {
    if (at(strides, axis) != 0) axes |= Axes{1} << axis;
  }
  return axes;
}

// Several rows of values change their pitch with the last columns: they belong inside both loops.
int PhaseBuilder::level_of_tile(TileKind kind) {
  int level = 0;
  if (!kind.rows || !kind.cols || nest_.shape.cols == extent(inner())) return level;
  for (int l = 0; l < loop_count(); ++l) {
    if (loop(l).tile_axis != TileAxis::none) level = l + 1;
  }
  return level;
}

// Stores that come before a later read of memory they may share wait until the tile is done.
bool PhaseBuilder::may_store_after(std::int32_t node, const GroupOutput& output) const {
  if (setting_.sharing == Sharing::none) return true;
  for (std::int32_t i = 0; i < group_.expr.size(); ++i) {
    const ExprNode& read = group_.expr[i];
    if (read.prim != Prim::input || last_use_[static_cast<std::size_t>(i)] < 0) continue;
    const GroupLoad& load = group_.loads[static_cast<std::size_t>(read.index)];
    if (load.dtype != output.dtype || load.strides != output.strides) continue;
    if ((is_in_place(i) ? last_use_[static_cast<std::size_t>(i)] : i) > node) return false;
  }
  return true;
}

// Whether the routines read this input where it is.
bool PhaseBuilder::is_in_place(std::int32_t i) const {
  const auto index = static_cast<std::size_t>(group_.expr[i].index);
  const GroupLoad& load = group_.loads[index];
  return load.dtype == compute_dtype(load.dtype) &&
         dense(places_[static_cast<std::size_t>(i)].kind, load.strides, pass_.load_operands[index]);
}

bool PhaseBuilder::is_streamed(std::size_t o) const {
  const GroupOutput& output = group_.outputs[o];
  const int operand = pass_.output_operands[o];
  return output.reduce_mask == 0 && !is_stage_value(operand) && !setting_.far.empty() &&
         setting_.far[static_cast<std::size_t>(operand)] && dense(whole(), output.strides, operand) &&
         compute_dtype(output.dtype) == output.dtype && tile_elements() >= 256;
}

// The output into whose memory node i is computed directly, or -1.
int PhaseBuilder::direct_output(std::int32_t i) const {
  const Place& place = places_[static_cast<std::size_t>(i)];
  const Prim prim = group_.expr[i].prim;
  if (prim == Prim::constant || (prim == Prim::input && is_in_place(i))) return -1;
  if (place.level != outer_ + static_cast<int>(setting_.phase->loops.size()) || !(place.kind == whole())) return -1;
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
    const GroupOutput& output = group_.outputs[o];
    if (output.value == i && output.reduce_mask == 0 && output.dtype == compute_dtype(output.dtype) &&
        dense(place.kind, output.strides, pass_.output_operands[o]) && !is_streamed(o) && may_store_after(i, output)) {
      return static_cast<int>(o);
    }
  }
  return -1;
}

void PhaseBuilder::emit_nodes() {
  if (nest_.empty) return;
  for (std::int32_t i = 0; i < group_.expr.size(); ++i) {
    const auto index = static_cast<std::size_t>(i);
    if (last_use_[index] < 0) continue;
    const int direct = direct_output(i);
    if (direct >= 0) {
      places_[index].slot = output_slot(static_cast<std::size_t>(direct));
      emit_node(i);
    } else {
      place_node(i);
    }
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      if (group_.outputs[o].value == i && static_cast<int>(o) != direct) emit_output(o);
    }
    for (const std::int32_t arg : group_.expr[i].args) {
      if (arg >= 0 && last_use_[static_cast<std::size_t>(arg)] == i) release(arg);
    }
  }
  std::vector<Instruction>& tile = setting_.phase->tile;
  tile.insert(tile.end(), last_.begin(), last_.end());
  emit_prefetches();
  for (std::int32_t i = 0; i < group_.expr.size(); ++i) release(i);
}

// In front, so that they are part of the first routine.
void PhaseBuilder::emit_prefetches() {
  std::vector<Instruction>& tile = setting_.phase->tile;
  if (tile.empty()) return;
  for (const Prefetch& prefetch : setting_.prefetches) {
    Instruction instruction;
    instruction.a = instruction.out = setting_.slots[prefetch.load];
    instruction.routine = find_prefetch();
    instruction.meaning = {.kind = Meaning::Kind::prefetch,
                           .compute = boolean,
                           .stored = setting_.whole->loads[prefetch.load].dtype,
                           .ahead = prefetch.ahead};
    set_kind(whole(), &instruction);
    tile.insert(tile.begin(), instruction);
  }
}

void PhaseBuilder::release(std::int32_t node) {
  const auto index = static_cast<std::size_t>(node);
  if (!reusable_[index]) return;
  reusable_[index] = false;
  pool_.give_back(places_[index].slot);
}

// Gives the node a slot and emits the instruction that fills it.
void PhaseBuilder::place_node(std::int32_t i) {
  Place& place = places_[static_cast<std::size_t>(i)];
  const ExprNode& node = group_.expr[i];
  if (node.prim == Prim::constant) {
    place.slot = add_constant(node);
    return;
  }
  if (node.prim == Prim::input && is_in_place(i)) {
    place.slot = load_slot(static_cast<std::size_t>(node.index));
    return;
  }
  if (!place.kind.rows && !place.kind.cols) {
    place.slot = pool_.add(8);
  } else if (place.level < loop_count()) {
    place.slot = pool_.add(tile_elements() * 8);  // lives across iterations
  } else {
    place.slot = pool_.take_register();
    reusable_[static_cast<std::size_t>(i)] = true;
  }
  emit_node(i);
}

std::uint64_t PhaseBuilder::constant_bits(const ExprNode& node) {
  std::uint64_t bits = 0;
  auto put = [&](auto value) { std::memcpy(&bits, &value, sizeof value); };
  switch (compute_dtype(node.dtype)) {
    case DType::f64: put(node.value); break;
    case DType::f32: put(static_cast<float>(node.value)); break;
    case DType::i64: put(node.whole); break;
    case DType::i32: put(static_cast<std::int32_t>(node.value)); break;
    default: put(static_cast<std::uint8_t>(node.value != 0)); break;
  }
  return bits;
}

void PhaseBuilder::emit_node(std::int32_t i) {
  const ExprNode& node = group_.expr[i];
  const Place& place = places_[static_cast<std::size_t>(i)];
  Instruction instruction;
  instruction.out = place.slot;
  set_kind(place.kind, &instruction);
  const auto index = static_cast<std::size_t>(node.index);
  if (node.prim == Prim::input) {
    const GroupLoad& load = group_.loads[index];
    instruction.a = load_slot(index);
    set_strides(load.strides, &instruction);
    const bool is_dense = dense(place.kind, load.strides, pass_.load_operands[index]);
    instruction.routine = find_load(load.dtype, is_dense ? Spacing::dense : Spacing::strided);
    if (is_dense) instruction.meaning = {.kind = Meaning::Kind::load, .compute = node.dtype, .stored = load.dtype};
    list(place.level).push_back(instruction);
    return;
  }
  if (node.prim == Prim::index) {
    instruction.a = pool_.add_bare();
    nest_.index_slots.push_back({instruction.a, group_.indices[index].start});
    move_along_all(instruction.a, group_.indices[index].strides, 1);
    set_strides(group_.indices[index].strides, &instruction);
    instruction.routine = find_index(node.dtype);
    instruction.meaning = {.kind = Meaning::Kind::index, .compute = node.dtype};
    list(place.level).push_back(instruction);
    return;
  }
  const int arity = primitive(node.prim).arity;
  std::uint16_t slots[3] = {};
  unsigned scalar_args = 0;
  for (int k = 0; k < arity; ++k) {
    const Place& arg = places_[static_cast<std::size_t>(node.args[k])];
    slots[k] = arg.slot;
    if (arg.kind == place.kind) continue;
    const bool is_condition = node.prim == Prim::select && k == 0;  // which is always a tile
    if (arg.kind == TileKind{} && !is_condition) {
      scalar_args |= 1u << k;
    } else {
      slots[k] = spread(node.args[k], place.kind);
    }
  }
  instruction.a = slots[0];
  instruction.b = arity > 1 ? slots[1] : slots[0];  // routines may look at every argument
  instruction.c = arity > 2 ? slots[2] : slots[0];
  const DType compute = group_.expr.dtype_of(node.args[arity - 1]);
  if (node.prim == Prim::convert) {
    instruction.routine = find_convert(compute, node.dtype);
    instruction.meaning = {.kind = Meaning::Kind::convert, .compute = compute, .stored = node.dtype};
  } else {
    instruction.routine = find_routine(node.prim, compute, scalar_args);
    instruction.meaning = {
        .kind = Meaning::Kind::prim, .prim = node.prim, .compute = compute, .scalar_args = scalar_args};
  }
  if (instruction.routine == nullptr) {
    fail(ErrorKind::unsupported, "group: no CPU routine for {} of {}", primitive(node.prim).name, to_string(compute));
  }
  list(place.level).push_back(instruction);
}

void PhaseBuilder::set_strides(const Strides& strides, Instruction* instruction) const {
  instruction->row_stride = at(strides, nest_.row_axis);
  instruction->col_stride = at(strides, inner());
}

// The value of a node in more rows or columns than it varies along, made where the value is.
std::uint16_t PhaseBuilder::spread(std::int32_t node, TileKind kind) {
  const Place& place = places_[static_cast<std::size_t>(node)];
  const auto key = std::make_tuple(node, kind.rows, kind.cols);
  if (const auto found = spread_.find(key); found != spread_.end()) return found->second;
  Instruction instruction;
  instruction.routine = find_spread(group_.expr.dtype_of(node));
  instruction.a = place.slot;
  instruction.out = pool_.add(tile_elements() * 8);
  instruction.row_stride = place.kind.rows;
  instruction.col_stride = place.kind.cols;
  set_kind(kind, &instruction);
  // A column that is the same for the whole tile may be made outside; one element per row may not.
  list(place.kind.rows ? std::max(place.level, level_of_tile(kind)) : place.level).push_back(instruction);
  return spread_[key] = instruction.out;
}

void PhaseBuilder::emit_output(std::size_t o) {
  const GroupOutput& output = group_.outputs[o];
  const Place& place = places_[static_cast<std::size_t>(output.value)];
  const bool once = output.combine == Combine::none;
  const TileKind kind = once ? kept_kind(output) : whole();
  Instruction instruction;
  instruction.a = place.kind == kind ? place.slot : spread(output.value, kind);
  if (!once) {
    const std::uint16_t value = instruction.a;
    instruction = sums_[o];
    (instruction.meaning.kind == Meaning::Kind::prim ? instruction.b : instruction.a) = value;
    setting_.phase->tile.push_back(instruction);
    return;
  }
  set_kind(kind, &instruction);
  instruction.out = output_slot(o);
  set_strides(output.strides, &instruction);
  const bool streamed = is_streamed(o);
  nest_.streams = nest_.streams || streamed;
  const bool is_dense = dense(kind, output.strides, pass_.output_operands[o]);
  instruction.routine = find_store(output.dtype, is_dense ? Spacing::dense : Spacing::strided, streamed);
  if (is_dense) {
    const DType compute = group_.expr.dtype_of(output.value);
    instruction.meaning = {
        .kind = Meaning::Kind::store, .compute = compute, .stored = output.dtype, .streams = streamed};
  }
  if (output.reduce_mask != 0) {
    list(outer_).push_back(instruction);  // its value is the same at all points that the phase's loops visit
  } else {
    (may_store_after(output.value, output) ? setting_.phase->tile : last_).push_back(instruction);
  }
}

}  // namespace paoding
