// SPDX-License-Identifier: Apache-2.0
#include "cpu/group_kernel_phase.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/check.h"
#include "scalar/primitive.h"

namespace paoding {
namespace {

using Axes = std::uint32_t;
using Strides = std::vector<std::int64_t>;

std::int64_t round_up(std::int64_t a, std::int64_t unit) { return (a + unit - 1) / unit * unit; }

// Where the value of a node is found.
struct Place {
  std::uint16_t slot = 0;
  TileKind kind;
  int level = 0;  // number of loops around its computation
};

class PhaseBuilder {
 public:
  PhaseBuilder(const StagePass& pass, const PhaseSetting& setting)
      : setting_(setting), group_(pass.group), pass_(pass), nest_(*setting.nest), pool_(*setting.pool) {
    outer_ = static_cast<int>(nest_.loops.size());
    find_levels();
    place_sums();
    emit_nodes();
    emit_moves();
    drop_idle_loops();
  }

 private:
  int inner() const { return group_.rank() - 1; }
  std::int64_t extent(int axis) const { return axis < 0 ? 1 : group_.extents[static_cast<std::size_t>(axis)]; }
  static std::int64_t at(const Strides& strides, int axis) { return stride_along(strides, axis); }
  static bool has(Axes axes, int axis) { return has_axis(axes, axis); }

  std::uint16_t load_slot(std::size_t load) const {
    return setting_.slots[static_cast<std::size_t>(pass_.load_operands[load])];
  }
  std::uint16_t output_slot(std::size_t o) const {
    return setting_.slots[static_cast<std::size_t>(pass_.output_operands[o])];
  }
  bool is_stage_value(int operand) const { return operand >= static_cast<int>(setting_.operands); }

  // ---- loops: the nest's, then the phase's -------------------------------------------

  int loop_count() const { return outer_ + static_cast<int>(setting_.phase->loops.size()); }
  NestLoop& loop(int l) {
    return l < outer_ ? nest_.loops[static_cast<std::size_t>(l)]
                      : setting_.phase->loops[static_cast<std::size_t>(l - outer_)];
  }
  std::vector<Instruction>& list(int level) { return level == loop_count() ? setting_.phase->tile : loop(level).enter; }

  // ---- kinds ---------------------------------------------------------------------------

  TileKind kind_of(Axes axes) const { return tile_kind(group_, nest_, axes); }
  TileKind whole() const { return kind_of(~Axes{0}); }
  TileKind kept_kind(const GroupOutput& output) const { return kind_of(~output.reduce_mask); }
  std::int64_t tile_elements() const { return nest_.shape.rows * nest_.shape.cols; }
  bool dense(TileKind kind, const Strides& strides, int operand) const {
    // A tile of fewer columns than usual is denser than memory; what phases hand on goes along with it.
    if (kind.rows && kind.cols && nest_.shape.cols < extent(inner()) && !is_stage_value(operand)) return false;
    return is_dense(group_, nest_, kind, strides);
  }
  static void set_kind(TileKind kind, Instruction* instruction) {
    instruction->one_row = !kind.rows;
    instruction->one_col = !kind.cols;
  }

  // ---- accumulators --------------------------------------------------------------------

  void place_sums() {
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

  // Sums of columns, one row at a time: the rows of a block are combined in f32, which is half of what f64 moves, and
  // the error stays at a few ulp.
  void sum_in_blocks(std::size_t o) {
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

  std::uint16_t add_constant(const ExprNode& node) {
    const std::uint16_t slot = pool_.add(8, Kept::forever);
    nest_.constants.push_back({pool_.offset_of_last(), constant_bits(node)});
    return slot;
  }

  Instruction flush_of(const GroupOutput& output) const {
    Instruction flush;
    flush.routine = find_flush(group_.expr.dtype_of(output.value), output.dtype);
    flush.accumulate = output.accumulate;
    return flush;
  }

  bool can_reduce_at_once(std::size_t o) {
    const GroupOutput& output = group_.outputs[o];
    Instruction& reduce = sums_[o];
    const DType compute = group_.expr.dtype_of(output.value);
    const TileRoutine routine = find_reduce(output.combine, compute);
    if (routine == nullptr || output.dtype != compute || output.accumulate) return false;
    set_strides(output.strides, &reduce);
    if (!reduce.cols_reduced && reduce.col_stride != 1) return false;
    reduce.routine = routine;
    reduce.meaning.kind = Meaning::Kind::reduce;
    reduce.out = output_slot(o);
    return true;
  }

  void place_local_sum(std::size_t o, int level) {
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

  void place_shared_sum(std::size_t o) {
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

  // ---- nodes ---------------------------------------------------------------------------

  // Which axes each node depends on, hence how deep in the loops it has to be computed; and who is needed at all.
  void find_levels() {
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

  Axes axes_of(const Strides& strides) const {
    Axes axes = 0;
    for (int axis = 0; axis < group_.rank(); ++axis) {
      if (at(strides, axis) != 0) axes |= Axes{1} << axis;
    }
    return axes;
  }

  // Several rows of values change their pitch with the last columns: they belong inside both loops.
  int level_of_tile(TileKind kind) {
    int level = 0;
    if (!kind.rows || !kind.cols || nest_.shape.cols == extent(inner())) return level;
    for (int l = 0; l < loop_count(); ++l) {
      if (loop(l).tile_axis != TileAxis::none) level = l + 1;
    }
    return level;
  }

  // Stores that come before a later read of memory they may share wait until the tile is done.
  bool may_store_after(std::int32_t node, const GroupOutput& output) const {
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
  bool is_in_place(std::int32_t i) const {
    const auto index = static_cast<std::size_t>(group_.expr[i].index);
    const GroupLoad& load = group_.loads[index];
    return load.dtype == compute_dtype(load.dtype) &&
           dense(places_[static_cast<std::size_t>(i)].kind, load.strides, pass_.load_operands[index]);
  }

  bool is_streamed(std::size_t o) const {
    const GroupOutput& output = group_.outputs[o];
    return output.reduce_mask == 0 && !is_stage_value(pass_.output_operands[o]) &&
           dense(whole(), output.strides, pass_.output_operands[o]) && compute_dtype(output.dtype) == output.dtype &&
           tile_elements() >= 256 && group_.min_bytes() > setting_.streaming_bytes;
  }

  // The output into whose memory node i is computed directly, or -1.
  int direct_output(std::int32_t i) const {
    const Place& place = places_[static_cast<std::size_t>(i)];
    const Prim prim = group_.expr[i].prim;
    if (prim == Prim::constant || (prim == Prim::input && is_in_place(i))) return -1;
    if (place.level != outer_ + static_cast<int>(setting_.phase->loops.size()) || !(place.kind == whole())) return -1;
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      const GroupOutput& output = group_.outputs[o];
      if (output.value == i && output.reduce_mask == 0 && output.dtype == compute_dtype(output.dtype) &&
          dense(place.kind, output.strides, pass_.output_operands[o]) && !is_streamed(o) &&
          may_store_after(i, output)) {
        return static_cast<int>(o);
      }
    }
    return -1;
  }

  void emit_nodes() {
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
    for (std::int32_t i = 0; i < group_.expr.size(); ++i) release(i);
  }

  void release(std::int32_t node) {
    const auto index = static_cast<std::size_t>(node);
    if (!reusable_[index]) return;
    reusable_[index] = false;
    pool_.give_back(places_[index].slot);
  }

  // Gives the node a slot and emits what fills it.
  void place_node(std::int32_t i) {
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

  static std::uint64_t constant_bits(const ExprNode& node) {
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

  void emit_node(std::int32_t i) {
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
      instruction.routine = find_load(load.dtype, is_dense ? Layout::dense : Layout::strided);
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

  void set_strides(const Strides& strides, Instruction* instruction) const {
    instruction->row_stride = at(strides, nest_.row_axis);
    instruction->col_stride = at(strides, inner());
  }

  // The value of a node in more rows or columns than it varies along, made where the value is.
  std::uint16_t spread(std::int32_t node, TileKind kind) {
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

  void emit_output(std::size_t o) {
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
    instruction.routine = find_store(output.dtype, is_dense ? Layout::dense : Layout::strided, streamed);
    if (is_dense && !streamed) {
      const DType compute = group_.expr.dtype_of(output.value);
      instruction.meaning = {.kind = Meaning::Kind::store, .compute = compute, .stored = output.dtype};
    }
    if (output.reduce_mask != 0) {
      list(outer_).push_back(instruction);  // its value is the same at all points that the phase's loops visit
    } else {
      (may_store_after(output.value, output) ? setting_.phase->tile : last_).push_back(instruction);
    }
  }

  // ---- moves ---------------------------------------------------------------------------

  void move_along(NestLoop& loop, std::uint16_t slot, const Strides& strides, std::int64_t bytes) {
    if (at(strides, loop.axis) != 0) loop.moves.push_back({slot, at(strides, loop.axis) * bytes});
  }
  void move_along_all(std::uint16_t slot, const Strides& strides, std::int64_t bytes) {
    for (int l = 0; l < loop_count(); ++l) move_along(loop(l), slot, strides, bytes);
  }

  // Operands move with the phase's loops here and with the nest's for all phases at once.
  void emit_moves() {
    std::map<std::uint16_t, std::pair<const Strides*, std::int64_t>> moving;  // an output may be read too
    for (std::size_t i = 0; i < group_.loads.size(); ++i) {
      moving[load_slot(i)] = {&group_.loads[i].strides, size_bytes(group_.loads[i].dtype)};
    }
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      moving[output_slot(o)] = {&group_.outputs[o].strides, size_bytes(group_.outputs[o].dtype)};
    }
    for (NestLoop& loop : setting_.phase->loops) {
      for (const auto& [slot, by] : moving) move_along(loop, slot, *by.first, by.second);
    }
  }

  // A phase that only computes what is the same at all its points does so once.
  void drop_idle_loops() {
    Phase& phase = *setting_.phase;
    if (phase.loops.empty() || !phase.tile.empty()) return;
    for (std::size_t l = 0; l < phase.loops.size(); ++l) {
      if (!phase.loops[l].exit.empty() || (l > 0 && !phase.loops[l].enter.empty())) return;
    }
    phase.tile = std::move(phase.loops[0].enter);
    phase.loops.clear();
  }

  const PhaseSetting& setting_;
  const Group& group_;
  const StagePass& pass_;
  Nest& nest_;
  SlotPool& pool_;
  int outer_ = 0;  // loops of the nest
  std::vector<Place> places_;
  std::vector<std::int32_t> last_use_;  // -1 unused, expr.size() used by an output
  std::vector<Instruction> sums_;       // per output that reduces: its accumulate
  std::vector<Instruction> last_;       // what the tile list ends with
  std::vector<bool> reusable_;          // nodes in registers of the tile list
  std::map<std::tuple<std::int32_t, bool, bool>, std::uint16_t> spread_;
};

}  // namespace

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

void build_phase(const StagePass& pass, const PhaseSetting& setting) { PhaseBuilder(pass, setting); }

}  // namespace paoding
