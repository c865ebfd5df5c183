// SPDX-License-Identifier: Apache-2.0
// From a Group to a Nest: within the loops that choose_loops() found, where each node of the Expr is computed, in which
// register, and where the sums of each output are kept. Nothing is left for run() to decide.
#include "cpu/group_kernel_nest.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "scalar/primitive.h"

namespace paoding {
namespace {

std::int64_t round_up(std::int64_t a, std::int64_t unit) { return (a + unit - 1) / unit * unit; }

std::int64_t last_level_cache_bytes() {
  const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? bytes : 32 << 20;
}

// Where the value of a node is found.
struct Place {
  std::uint16_t slot = 0;
  bool scalar = false;  // one element for the whole tile
  int level = 0;        // number of loops around its computation
};

class Builder {
 public:
  Builder(const Group& group, int threads, Sharing sharing)
      : group_(canonical(group)), operands_(group.operands()), sharing_(sharing) {
    rewrite_outputs();
    row_axis_ = choose_loops(group_, threads, &nest_);
    if (nest_.shape.cols > 1) tile_axes_ |= 1u << inner();
    if (row_axis_ >= 0) tile_axes_ |= 1u << row_axis_;
    find_levels();
    place_sums();
    emit_nodes();
    emit_moves();
    nest_.slot_count = next_slot_;
  }

  Nest take() { return std::move(nest_); }

 private:
  using Axes = std::uint32_t;

  int inner() const { return group_.rank() - 1; }
  std::int64_t extent(int axis) const { return axis < 0 ? 1 : group_.extents[static_cast<std::size_t>(axis)]; }
  static std::int64_t at(const std::vector<std::int64_t>& strides, int axis) { return stride_along(strides, axis); }
  static bool has(Axes axes, int axis) { return has_axis(axes, axis); }

  // ---- the group, simplified ---------------------------------------------------

  // A stored output becomes a plain one of its own compute dtype: accumulation is one more load and an addition.
  void rewrite_outputs() {
    for (std::size_t i = 0; i < group_.loads.size(); ++i) load_slots_.push_back(static_cast<std::uint16_t>(i));
    Expr& expr = group_.expr;
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      GroupOutput& output = group_.outputs[o];
      PD_ASSERT((output.combine == Combine::none) == (output.reduce_mask == 0), "a mask comes with a combination");
      if (output.reduce_mask != 0) continue;
      const DType compute = compute_dtype(output.dtype);
      const ExprNode value = expr[output.value];
      if (output.accumulate) {
        PD_ASSERT(compute != boolean, "bools do not add up");
        const auto load = static_cast<std::int32_t>(group_.loads.size());
        group_.loads.push_back({output.dtype, output.strides});
        load_slots_.push_back(output_slot(o));
        const std::int32_t more = converted(output.value, compute);
        const std::int32_t there = expr.add({.prim = Prim::input, .dtype = compute, .index = load});
        output.value = expr.add({.prim = Prim::add, .dtype = compute, .args = {there, more, -1}});
        output.accumulate = false;
      } else if (value.prim == Prim::convert && value.dtype == output.dtype &&
                 expr.dtype_of(value.args[0]) == compute) {
        output.value = value.args[0];  // the store rounds
      } else {
        output.value = converted(output.value, compute);
      }
    }
  }

  std::int32_t converted(std::int32_t node, DType compute) {
    if (group_.expr.dtype_of(node) == compute) return node;
    return group_.expr.add({.prim = Prim::convert, .dtype = compute, .args = {node, -1, -1}});
  }

  std::uint16_t output_slot(std::size_t o) const {
    return static_cast<std::uint16_t>(operands_ - group_.outputs.size() + o);
  }

  int loop_count() const { return static_cast<int>(nest_.loops.size()); }

  std::vector<Instruction>& list(int level) {
    return level == loop_count() ? nest_.tile : nest_.loops[static_cast<std::size_t>(level)].enter;
  }

  // ---- slots ---------------------------------------------------------------------

  std::int64_t tile_elements() const { return nest_.shape.rows * nest_.shape.cols; }

  std::int64_t take_bytes(std::int64_t bytes) {
    const std::int64_t offset = nest_.arena_bytes;
    nest_.arena_bytes += round_up(bytes, 64);
    return offset;
  }

  std::uint16_t new_slot(std::int64_t bytes) {
    PD_ASSERT(next_slot_ < 65535, "a group has fewer nodes than there are slots");
    nest_.arena_slots.push_back({static_cast<std::uint16_t>(next_slot_), take_bytes(bytes)});
    return static_cast<std::uint16_t>(next_slot_++);
  }

  std::uint16_t take_register() {
    if (free_registers_.empty()) return new_slot(tile_elements() * 8);
    const std::uint16_t slot = free_registers_.back();
    free_registers_.pop_back();
    return slot;
  }

  // ---- sums ----------------------------------------------------------------------

  void place_sums() {
    next_slot_ = static_cast<int>(operands_);
    sums_.resize(group_.outputs.size());
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      const GroupOutput& output = group_.outputs[o];
      if (output.reduce_mask == 0) continue;
      Instruction& add = sums_[o];
      add.rows_reduced = row_axis_ < 0 || has(output.reduce_mask, row_axis_);
      add.cols_reduced = nest_.shape.cols == 1 || has(output.reduce_mask, inner());
      add.routine = find_accumulate(group_.expr.dtype_of(output.value));
      // Complete after some loop, if all loops inside it sum and none outside does.
      int first_summed = 0;
      while (first_summed < loop_count() && !has(output.reduce_mask, axis_of(first_summed))) ++first_summed;
      bool local = !nest_.empty;
      for (int l = first_summed; l < loop_count(); ++l) {
        local = local && has(output.reduce_mask, axis_of(l)) && !nest_.loops[static_cast<std::size_t>(l)].split;
      }
      local ? place_local_sum(o, first_summed) : place_shared_sum(o);
    }
  }

  int axis_of(int loop) const { return nest_.loops[static_cast<std::size_t>(loop)].axis; }

  Instruction flush_of(const GroupOutput& output) const {
    Instruction flush;
    flush.routine = find_flush(group_.expr.dtype_of(output.value), output.dtype);
    flush.accumulate = output.accumulate;
    return flush;
  }

  void place_local_sum(std::size_t o, int level) {
    const GroupOutput& output = group_.outputs[o];
    Instruction& add = sums_[o];
    add.out = new_slot(tile_elements() * kSumBytes);
    add.pitch = add.rows_reduced ? 0 : add.cols_reduced ? 1 : nest_.shape.cols;
    Instruction zero = add;
    zero.routine = find_zero();
    list(level).push_back(zero);
    Instruction flush = flush_of(output);
    flush.rows_reduced = add.rows_reduced;
    flush.cols_reduced = add.cols_reduced;
    flush.pitch = add.pitch;
    flush.a = add.out;
    flush.out = output_slot(o);
    flush.row_stride = at(output.strides, row_axis_);
    flush.col_stride = at(output.strides, inner());
    (level == loop_count() ? last_ : nest_.loops[static_cast<std::size_t>(level)].exit).push_back(flush);
  }

  void place_shared_sum(std::size_t o) {
    const GroupOutput& output = group_.outputs[o];
    Instruction& add = sums_[o];
    SharedSum sum;
    sum.count = kept_elements(group_, output);
    sum.is_float = is_float(group_.expr.dtype_of(output.value));
    sum.slot = add.out = new_slot(sum.count * kSumBytes);
    sum.out_slot = output_slot(o);
    sum.out_bytes = size_bytes(output.dtype);
    sum.flush = flush_of(output);
    sum.flush.out = 0;
    sum.flush.a = 1;
    std::vector<std::int64_t> strides(group_.extents.size(), 0);
    std::int64_t elements = 1;
    for (int axis = group_.rank(); axis-- > 0;) {
      if (has(output.reduce_mask, axis)) continue;
      strides[static_cast<std::size_t>(axis)] = elements;
      elements *= extent(axis);
      sum.extents.insert(sum.extents.begin(), extent(axis));
      sum.out_strides.insert(sum.out_strides.begin(), at(output.strides, axis));
    }
    if (!sum.out_strides.empty()) sum.flush.col_stride = sum.out_strides.back();
    add.pitch = at(strides, row_axis_);
    shared_moves_.push_back({add.out, std::move(strides)});
    nest_.shared_sums.push_back(std::move(sum));
  }

  // ---- nodes ---------------------------------------------------------------------

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
      for (const std::int32_t arg : node.args) {
        if (arg >= 0) axes[i] |= axes[static_cast<std::size_t>(arg)];
      }
      if (node.prim == Prim::input) {
        const std::vector<std::int64_t>& strides = group_.loads[static_cast<std::size_t>(node.index)].strides;
        for (int axis = 0; axis < group_.rank(); ++axis) {
          if (at(strides, axis) != 0) axes[i] |= 1u << axis;
        }
      }
      places_[i].scalar = (axes[i] & tile_axes_) == 0;
      // A part of both axes changes its pitch with the last columns: a tile must be computed inside both loops.
      if (!places_[i].scalar && row_axis_ >= 0 && nest_.shape.cols < extent(inner())) axes[i] |= tile_axes_;
      for (int l = 0; l < loop_count(); ++l) {
        if (has(axes[i], axis_of(l))) places_[i].level = l + 1;
      }
    }
  }

  bool is_dense(const std::vector<std::int64_t>& strides) const {
    return (nest_.shape.cols == 1 || at(strides, inner()) == 1) &&
           (row_axis_ < 0 || at(strides, row_axis_) == nest_.shape.cols);
  }

  // Stores that come before a later read of memory they may share wait until the tile is done.
  bool may_store_after(std::int32_t node, const GroupOutput& output) const {
    if (sharing_ == Sharing::none) return true;
    for (std::int32_t i = 0; i < group_.expr.size(); ++i) {
      const ExprNode& read = group_.expr[i];
      if (read.prim != Prim::input || last_use_[static_cast<std::size_t>(i)] < 0) continue;
      const GroupLoad& load = group_.loads[static_cast<std::size_t>(read.index)];
      if (load.dtype != output.dtype || load.strides != output.strides) continue;
      const bool in_place = load.dtype == compute_dtype(load.dtype) && is_dense(load.strides);
      if ((in_place ? last_use_[static_cast<std::size_t>(i)] : i) > node) return false;
    }
    return true;
  }

  bool is_streamed(const GroupOutput& output) const {
    return is_dense(output.strides) && compute_dtype(output.dtype) == output.dtype && tile_elements() >= 256 &&
           group_.min_bytes() > streaming_bytes_;
  }

  // The output into whose memory node i is computed directly, or -1.
  int direct_output(std::int32_t i) const {
    const Place& place = places_[static_cast<std::size_t>(i)];
    const Prim prim = group_.expr[i].prim;
    if (prim == Prim::input || prim == Prim::constant || place.level != loop_count()) return -1;
    if (place.scalar && tile_elements() > 1) return -1;
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      const GroupOutput& output = group_.outputs[o];
      if (output.value == i && output.reduce_mask == 0 && output.dtype == compute_dtype(output.dtype) &&
          is_dense(output.strides) && !is_streamed(output) && may_store_after(i, output)) {
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
    nest_.tile.insert(nest_.tile.end(), last_.begin(), last_.end());
  }

  void release(std::int32_t node) {
    const auto index = static_cast<std::size_t>(node);
    if (!reusable_[index]) return;
    reusable_[index] = false;
    free_registers_.push_back(places_[index].slot);
  }

  // Gives the node a slot and emits what fills it.
  void place_node(std::int32_t i) {
    Place& place = places_[static_cast<std::size_t>(i)];
    const ExprNode& node = group_.expr[i];
    if (node.prim == Prim::constant) {
      place.slot = new_slot(8);
      nest_.constants.push_back({nest_.arena_slots.back().offset, constant_bits(node)});
      return;
    }
    if (node.prim == Prim::input) {
      const GroupLoad& load = group_.loads[static_cast<std::size_t>(node.index)];
      if (load.dtype == compute_dtype(load.dtype) && (place.scalar || is_dense(load.strides))) {
        place.slot = load_slots_[static_cast<std::size_t>(node.index)];
        return;
      }
    }
    if (place.scalar) {
      place.slot = new_slot(8);
    } else if (place.level < loop_count()) {
      place.slot = new_slot(tile_elements() * 8);  // lives across iterations
    } else {
      place.slot = take_register();
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
      case DType::i64: put(static_cast<std::int64_t>(node.value)); break;
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
    instruction.scalar = place.scalar;
    if (node.prim == Prim::input) {
      const GroupLoad& load = group_.loads[static_cast<std::size_t>(node.index)];
      instruction.a = load_slots_[static_cast<std::size_t>(node.index)];
      instruction.row_stride = at(load.strides, row_axis_);
      instruction.col_stride = at(load.strides, inner());
      const bool dense = place.scalar || is_dense(load.strides);
      instruction.routine = find_load(load.dtype, dense ? Layout::dense : Layout::strided);
      list(place.level).push_back(instruction);
      return;
    }
    std::uint16_t slots[3] = {};
    unsigned scalar_args = 0;
    for (int k = 0; k < primitive(node.prim).arity; ++k) {
      const Place& arg = places_[static_cast<std::size_t>(node.args[k])];
      slots[k] = arg.slot;
      if (!arg.scalar) continue;
      if (node.prim == Prim::select && k == 0 && !place.scalar) {  // the condition is always a whole tile
        slots[k] = filled(node.args[k]);
      } else {
        scalar_args |= 1u << k;
      }
    }
    instruction.a = slots[0];
    instruction.b = primitive(node.prim).arity > 1 ? slots[1] : slots[0];  // routines may look at every argument
    instruction.c = primitive(node.prim).arity > 2 ? slots[2] : slots[0];
    const DType compute = group_.expr.dtype_of(node.args[primitive(node.prim).arity - 1]);
    instruction.routine = node.prim == Prim::convert ? find_convert(compute, node.dtype)
                                                     : find_routine(node.prim, compute, place.scalar ? 0 : scalar_args);
    if (instruction.routine == nullptr) {
      fail(ErrorKind::unsupported, "group: no CPU routine for {} of {}", primitive(node.prim).name, to_string(compute));
    }
    list(place.level).push_back(instruction);
  }

  // A tile of a value that is one element for the whole tile, made where the value is.
  std::uint16_t filled(std::int32_t node) {
    const Place& place = places_[static_cast<std::size_t>(node)];
    Instruction fill;
    fill.routine = find_fill(group_.expr.dtype_of(node));
    fill.a = place.slot;
    fill.out = new_slot(tile_elements() * 8);
    list(place.level).push_back(fill);
    return fill.out;
  }

  void emit_output(std::size_t o) {
    const GroupOutput& output = group_.outputs[o];
    const Place& place = places_[static_cast<std::size_t>(output.value)];
    Instruction instruction;
    instruction.a = place.scalar && tile_elements() > 1 ? filled(output.value) : place.slot;
    if (output.reduce_mask != 0) {
      instruction.routine = sums_[o].routine;
      instruction.out = sums_[o].out;
      instruction.rows_reduced = sums_[o].rows_reduced;
      instruction.cols_reduced = sums_[o].cols_reduced;
      instruction.pitch = sums_[o].pitch;
      nest_.tile.push_back(instruction);
      return;
    }
    instruction.out = output_slot(o);
    instruction.row_stride = at(output.strides, row_axis_);
    instruction.col_stride = at(output.strides, inner());
    const bool streamed = is_streamed(output);
    nest_.streams = nest_.streams || streamed;
    const Layout layout = is_dense(output.strides) ? Layout::dense : Layout::strided;
    instruction.routine = find_store(output.dtype, layout, streamed);
    (may_store_after(output.value, output) ? nest_.tile : last_).push_back(instruction);
  }

  // ---- moves -----------------------------------------------------------------------

  void emit_moves() {
    for (NestLoop& loop : nest_.loops) {
      auto move = [&](std::uint16_t slot, const std::vector<std::int64_t>& strides, std::int64_t bytes) {
        if (at(strides, loop.axis) != 0) loop.moves.push_back({slot, at(strides, loop.axis) * bytes});
      };
      const std::size_t loads = operands_ - group_.outputs.size();  // those added for accumulation share a slot
      for (std::size_t i = 0; i < loads; ++i) {
        move(static_cast<std::uint16_t>(i), group_.loads[i].strides, size_bytes(group_.loads[i].dtype));
      }
      for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
        move(output_slot(o), group_.outputs[o].strides, size_bytes(group_.outputs[o].dtype));
      }
      for (const auto& [slot, strides] : shared_moves_) move(slot, strides, kSumBytes);
    }
  }

  Group group_;
  std::size_t operands_;
  Sharing sharing_;
  std::vector<std::uint16_t> load_slots_;  // which operand each load reads
  int row_axis_ = -1;                      // the axis of the tile's rows, when it has several
  Axes tile_axes_ = 0;
  std::int64_t streaming_bytes_ = last_level_cache_bytes();
  std::vector<Place> places_;
  std::vector<std::int32_t> last_use_;  // -1 unused, expr.size() used by an output
  std::vector<Instruction> sums_;       // per output that reduces: its accumulate
  std::vector<std::pair<std::uint16_t, std::vector<std::int64_t>>> shared_moves_;
  std::vector<Instruction> last_;  // what the tile list ends with
  std::vector<std::uint16_t> free_registers_;
  std::vector<bool> reusable_;  // nodes in registers of the tile list
  int next_slot_ = 0;
  Nest nest_;
};

}  // namespace

Nest build_nest(const Group& group, int threads, Sharing sharing) { return Builder(group, threads, sharing).take(); }

}  // namespace paoding
