// SPDX-License-Identifier: Apache-2.0
// From a Group to a Nest: tile and loops, then phase by phase the instructions. Nothing is left for run() to decide.
#include "cpu/group_kernel_nest.h"

#include "base/check.h"
#include "base/rounding.h"
#include "cpu/group_kernel_phase.h"
#include "cpu/group_kernel_stages.h"

namespace paoding {
namespace {

class NestBuilder {
 public:
  NestBuilder(const Group& group, int threads, Sharing sharing, std::vector<bool> far)
      : group_(canonical(group)), operands_(group.operands()), pool_(&nest_, static_cast<int>(operands_)) {
    rewrite_outputs();
    std::vector<NestLoop> inner;
    choose_loops(group_, threads, &nest_, &inner);
    const Stages stages = nest_.empty ? whole() : split(inner);
    std::vector<std::uint16_t> slots;
    for (std::size_t i = 0; i < operands_; ++i) slots.push_back(static_cast<std::uint16_t>(i));
    for (const StageValue& value : stages.values) slots.push_back(place(value));
    move_operands();
    if (!far.empty()) far.insert(far.begin(), operands_ - group.outputs.size(), false);
    nest_.phases.resize(stages.passes.size());
    for (std::size_t p = 0; p < stages.passes.size(); ++p) {
      nest_.phases[p].loops = inner;
      PhaseSetting setting{&nest_, &nest_.phases[p], &pool_, slots, operands_, sharing, far, &group_, {}};
      if (p > 0 && p + 1 == stages.passes.size()) setting.prefetches = prefetches(operands_ - group.outputs.size());
      build_phase(stages.passes[p], setting);
    }
    nest_.slot_count = pool_.count();
    fuse();
  }

  Nest take() { return std::move(nest_); }

 private:
  // A stored output becomes a plain one of its own compute dtype.
  void rewrite_outputs() {
    for (std::size_t i = 0; i < group_.loads.size(); ++i) load_operands_.push_back(static_cast<int>(i));
    if (group_.points() == 0) return;
    Expr& expr = group_.expr;
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      GroupOutput& output = group_.outputs[o];
      if (output.combine != Combine::none) continue;
      const DType compute = compute_dtype(output.dtype);
      const ExprNode value = expr[output.value];
      if (value.prim == Prim::convert && value.dtype == output.dtype && expr.dtype_of(value.args[0]) == compute) {
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

  void fuse() {
    const bool single_row = nest_.row_axis < 0;
    const auto fuse_loops = [&](std::vector<NestLoop>& loops) {
      for (NestLoop& loop : loops) {
        for (std::vector<Instruction>* list : {&loop.enter, &loop.exit}) {
          fuse_instructions({operands_, {}}, single_row, list, &nest_.code);
        }
      }
    };
    fuse_loops(nest_.loops);
    for (Phase& phase : nest_.phases) {
      fuse_loops(phase.loops);
      fuse_instructions({operands_, pool_.registers()}, single_row, &phase.tile, &nest_.code);
    }
  }

  Stages whole() const {
    StagePass pass{group_, load_operands_, {}};
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      pass.output_operands.push_back(static_cast<int>(operands_ - group_.outputs.size() + o));
    }
    return {{std::move(pass)}, {}};
  }

  Stages split(const std::vector<NestLoop>& inner) {
    const std::uint32_t reduced = reduced_axes(group_);
    if (reduced == 0) return whole();
    StageOptions options;
    options.operands = operands_;
    options.load_operands = load_operands_;
    options.reduced_strides.assign(group_.extents.size(), 0);
    options.kept_strides = options.reduced_strides;
    std::int64_t kept = 1, all = 1;
    for (int axis = group_.rank(); axis-- > 0;) {
      const auto a = static_cast<std::size_t>(axis);
      const bool is_reduced = has_axis(reduced, axis);
      const std::int64_t in_tile = axis == group_.rank() - 1 ? nest_.shape.cols
                                   : axis == nest_.row_axis  ? nest_.shape.rows
                                                             : 1;
      const std::int64_t extent = is_reduced ? group_.extents[a] : in_tile;
      if (extent == 1 && !is_reduced) continue;  // the next part of this axis takes the place of the last
      options.kept_strides[a] = all;
      all *= extent;
      if (is_reduced) continue;
      options.reduced_strides[a] = kept;
      kept *= extent;
    }
    kept_elements_ = all;
    reduced_elements_ = kept;
    // In a tile that holds all that is reduced a value stays in its register for nothing; else keeping one costs a
    // store and a load, which must be worth it and fit into the second cache.
    constexpr std::int64_t kMostKept = 256 << 10;
    const double in_register = fused_isa() != VectorIsa::scalar ? 5 : 1;
    options.keep_from = inner.empty() ? in_register : all * 8 <= kMostKept ? 4 : 1e9;
    options.is_ready = [this](std::int32_t node) {
      const GroupLoad& load = group_.loads[static_cast<std::size_t>(group_.expr[node].index)];
      const TileKind tile = tile_kind(group_, nest_, ~std::uint32_t{0});
      return load.dtype == compute_dtype(load.dtype) && is_dense(group_, nest_, tile, load.strides);
    };
    return split_stages(group_, options);
  }

  // A group that reads its own reductions goes over a row more than once, so memory rests while it computes. Where each
  // row begins a page, the CPU's own prefetching begins anew with it too: the last phase asks for rows that come later.
  // It gains nothing where rows share pages or are long.
  std::vector<Prefetch> prefetches(std::size_t loads) const {
    constexpr std::int64_t kPage = 4 << 10, kAhead = 2 * kPage;  // bytes
    std::vector<Prefetch> found;
    if (nest_.loops.empty() || nest_.loops.back().axis == group_.rank() - 1) return found;
    const NestLoop& rows = nest_.loops.back();
    const TileKind tile = tile_kind(group_, nest_, ~std::uint32_t{0});
    for (std::size_t i = 0; i < loads; ++i) {
      const GroupLoad& load = group_.loads[i];
      const std::int64_t pitch = stride_along(load.strides, rows.axis) * rows.step * size_bytes(load.dtype);
      if (pitch < kPage || pitch > kAhead || !is_dense(group_, nest_, tile, load.strides)) continue;
      found.push_back({i, static_cast<std::int32_t>(round_up(kAhead, pitch))});
    }
    return found;
  }

  std::uint16_t place(const StageValue& value) {
    return pool_.add((value.is_reduced ? reduced_elements_ : kept_elements_) * size_bytes(value.dtype));
  }

  void move_operands() {
    const std::size_t loads = operands_ - group_.outputs.size();  // those added for accumulation are outputs
    for (NestLoop& loop : nest_.loops) {
      auto move = [&](std::size_t slot, const std::vector<std::int64_t>& strides, DType dtype) {
        const std::int64_t bytes = stride_along(strides, loop.axis) * size_bytes(dtype);
        if (bytes != 0) loop.moves.push_back({static_cast<std::uint16_t>(slot), bytes});
      };
      for (std::size_t i = 0; i < loads; ++i) move(i, group_.loads[i].strides, group_.loads[i].dtype);
      for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
        move(loads + o, group_.outputs[o].strides, group_.outputs[o].dtype);
      }
    }
  }

  Group group_;
  std::size_t operands_;
  Nest nest_;
  SlotPool pool_;
  std::vector<int> load_operands_;  // which operand each load reads
  std::int64_t kept_elements_ = 0, reduced_elements_ = 0;
};

}  // namespace

Nest build_nest(const Group& group, int threads, Sharing sharing, const std::vector<bool>& far) {
  return NestBuilder(group, threads, sharing, far).take();
}

}  // namespace paoding
