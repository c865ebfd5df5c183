// SPDX-License-Identifier: Apache-2.0
#include "gpu/codegen/group_text.h"

#include <algorithm>

#include "base/check.h"
#include "base/hash.h"
#include "base/rounding.h"
#include "cuda_text.h"
#include "gpu/codegen/group_writer.h"
#include "gpu/codegen/staged_text.h"
#include "gpu/codegen/text_kernel.h"
#include "gpu/kernels/kernel_prelude.h"
#include "group/staged.h"

namespace paoding::gpu {

KernelText::KernelText(const Group& group, const GroupSchedule& schedule, const std::vector<bool>& is_live)
    : group_(group),
      s_(schedule),
      is_live_(is_live),
      used_(used_by(group, live_values(group, is_live))),
      inner_(group.rank() - 1),
      is_tile_(schedule.form == LoopForm::tile) {
  find_aliases();
  find_parts();
}

TextLaunch KernelText::run() {
  std::vector<FormulaResult> results;
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
    if (is_live_[o]) results.push_back({fmt::format("out{}", o), output(o).value});
  }
  const std::string formula = formula_text(group_, "formula", results);
  emit_coordinates();
  emit_sums();
  if (s_.chunk_axis >= 0) {
    k_.add("for (Index x{0} = x{0}_begin; x{0} < x{0}_begin + {1}; ++x{0}) {{", s_.chunk_axis,
           sizes_.number("chunk", s_.chunk));
  }
  emit_bases();
  emit_hoisted_loads();
  emit_loop();
  emit_columns();
  if (s_.chunk_axis >= 0) k_.raw("}");
  emit_totals_and_rows();
  emit_last_arrivers();

  return finish(formula);
}

TextLaunch KernelText::finish(const std::string& formulas) {
  const std::string bounds = fmt::format("{}, {}", std::max(256, s_.threads()), s_.resident_ctas);
  return finish((s_.adds_later ? k_later_sums_cu : std::string()) + formulas, signature(bounds), s_.ctas, s_.threads());
}

TextLaunch KernelText::finish(const std::string& functions, const std::string& head, std::int64_t ctas, int threads) {
  TextLaunch plan;
  std::string kernel = head + k_.text() + "}\n";
  const std::string before = comment(), sizes = sizes_.text();
  std::string source;
  source.reserve(before.size() + kernel_prelude().size() + sizes.size() + functions.size() + kernel.size() + 100);
  source.append(before).append(kernel_prelude()).append("\n// ---- This group ----\n\nusing Index = ");
  source.append(s_.is_wide ? "long long" : "int").append(";\n\n").append(sizes).append("\n");
  source.append(functions).append("\n");
  plan.entry = fmt::format("group_{:016x}", hash_of_text(kernel, hash_of_source(source)));
  kernel.replace(kernel.find("$entry"), 6, plan.entry);
  source += kernel;
  plan.source = std::move(source);
  plan.grid[0] = static_cast<unsigned>(ctas);
  plan.block = static_cast<unsigned>(threads);
  plan.sizes = sizes_.words();
  plan.workspace_bytes = workspace_bytes_;
  plan.ticket_count = ticket_count_;
  return plan;
}

std::int64_t KernelText::stride(std::size_t operand, int axis) const {
  return operand_strides(group_, operand)[static_cast<std::size_t>(axis)];
}

bool KernelText::varies(std::size_t operand, const std::vector<int>& axes) const {
  return std::any_of(axes.begin(), axes.end(), [&](int axis) { return stride(operand, axis) != 0; });
}

std::string_view KernelText::sum_type(std::size_t o) const {
  const DType dtype = group_.expr.dtype_of(output(o).value);
  return dtype == DType::boolean ? "int" : computed_type(dtype);
}

// ---- Names of sizes ----

std::string KernelText::offset_terms(const std::string& name, std::size_t operand, const std::vector<int>& axes) {
  std::string text;
  for (const int axis : axes) {
    const std::int64_t step = stride(operand, axis);
    if (step == 0) continue;
    text += fmt::format(" + x{}", axis);
    if (axis != inner_ || step != 1) text += " * " + sizes_.number(fmt::format("{}_x{}", name, axis), step);
  }
  return text;
}

// ---- Operands that share offsets, and outputs that share parts ----

void KernelText::find_aliases() {
  for (std::size_t i = 0; i < group_.operands(); ++i) {
    const std::vector<std::int64_t>& strides = operand_strides(group_, i);
    std::size_t k = 0;
    while (k < offsets_.size() && operand_strides(group_, offsets_[k]) != strides) ++k;
    if (k == offsets_.size()) offsets_.push_back(i);
    offset_of_.push_back(k);
  }
  may_alias_.assign(group_.operands(), false);
  for (std::size_t i = 0; i < loads(); ++i) {
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      if (output(o).reduce_mask != 0 || output(o).dtype != group_.loads[i].dtype) continue;
      if (output(o).strides == group_.loads[i].strides) may_alias_[i] = may_alias_[loads() + o] = true;
    }
  }
}

void KernelText::find_parts() {
  part_group_.assign(group_.outputs.size(), -1);
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
    if (!is_live_[o] || s_.sinks[o] == SinkKind::store) continue;
    PartGroup made;
    for (const GridDim& dim : s_.grid) {
      made.is_reduced.push_back(reduces(output(o), s_.sinks[o], dim));
      (made.is_reduced.back() ? made.parts : made.tiles) *= dim.count;
    }
    if (std::find(made.is_reduced.begin(), made.is_reduced.end(), true) == made.is_reduced.end()) continue;
    std::size_t p = 0;
    while (p < parts_.size() && parts_[p].is_reduced != made.is_reduced) ++p;
    if (p == parts_.size()) parts_.push_back(made);
    parts_[p].outputs.push_back(o);
    part_group_[o] = static_cast<int>(p);
  }
  parts_at_.assign(group_.outputs.size(), 0);
  for (const PartGroup& parts : parts_) {
    for (const std::size_t o : parts.outputs) {
      parts_at_[o] = (workspace_bytes_ + 255) / 256 * 256;
      workspace_bytes_ = parts_at_[o] + parts.parts * parts.tiles * tile_elements(o) * sum_bytes(o);
    }
  }
}

std::int64_t KernelText::tile_elements(std::size_t o) const {
  const std::int64_t columns = std::int64_t{s_.lanes} * s_.vector;
  switch (s_.sinks[o]) {
    case SinkKind::column: return columns * sum_count(o);
    case SinkKind::row: return s_.serial_chunk * sum_count(o);
    case SinkKind::spread: return s_.serial_chunk * columns;
    default: return sum_count(o);
  }
}

std::string KernelText::tile_elements_text(std::size_t o) {
  if (s_.sharers > 1) return std::to_string(tile_elements(o));  // of the tile's shape, whatever the group's is
  return sizes_.wide_number(fmt::format("out{}_tile", o), tile_elements(o));
}

std::string KernelText::parts_text(std::size_t o) {
  return fmt::format("({}*)((char*)scratch.workspace + {})", sum_type(o),
                     sizes_.wide_number(fmt::format("out{}_workspace", o), parts_at_[o]));
}

// ---- Source before the kernel ----

std::string KernelText::comment() const {
  std::string text = "// A fused loop nest.\n";
  auto roles = [&](const char* name, const std::vector<int>& axes) {
    std::string list;
    for (const int axis : axes) list += fmt::format("{}{}", list.empty() ? "" : ", ", axis);
    return list.empty() ? std::string() : fmt::format("; {} axes {}", name, list);
  };
  text += fmt::format("// Rank {}{}{}{}. Form: {}.\n", group_.rank(), roles("grid", s_.grid_axes),
                      roles("serial", s_.serial_axes), roles("inner", s_.inner_axes),
                      is_tile_ ? "tile (lanes stay on inner elements, threads walk the serial axes)"
                               : "sweep (lanes walk the inner axes, a row of threads per serial index)");
  auto classes = [&](std::size_t operand) {
    std::string list;
    for (int axis = 0; axis < group_.rank(); ++axis) {
      const std::int64_t step = stride(operand, axis);
      list += axis ? ", " : "";
      list += step == 0 ? "0" : step == 1 && axis == inner_ ? "1" : "s";
    }
    return list;
  };
  for (std::size_t i = 0; i < loads(); ++i) {
    text += fmt::format("//   in{}: {}, strides ({}){}\n", i, to_string(group_.loads[i].dtype), classes(i),
                        used_.loads[i] ? "" : ", not read");
  }
  for (std::size_t i = 0; i < group_.indices.size(); ++i) {
    if (used_.indices[i]) text += fmt::format("//   idx{}: {} of the point\n", i, to_string(group_.indices[i].dtype));
  }
  for (std::size_t r = 0; r < group_.reductions.size(); ++r) {
    text += fmt::format("//   red{}: {} of v{} along a row\n", r, combine_text(group_.reductions[r].combine),
                        group_.reductions[r].value);
  }
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
    std::string sum;
    for (int axis = 0; axis < group_.rank(); ++axis) {
      if ((output(o).reduce_mask >> axis) & 1u) sum += fmt::format("{}{}", sum.empty() ? "" : ", ", axis);
    }
    if (!sum.empty()) sum = fmt::format("{} over {{{}}} of ", op(o), sum);
    text += fmt::format("//   out{}: {}, strides ({}), = {}v{}\n", o, to_string(output(o).dtype), classes(loads() + o),
                        sum, output(o).value);
  }
  return text;
}

std::string KernelText::signature(const std::string& bounds) {
  std::string params;
  for (std::size_t i = 0; i < group_.operands(); ++i) {
    const bool is_load = i < loads();
    params += fmt::format("    {}{}* {}{}{},\n", is_load ? "const " : "",
                          stored_type(is_load ? group_.loads[i].dtype : output(i - loads()).dtype),
                          may_alias_[i] ? "" : "__restrict__ ", is_load ? "in" : "out", is_load ? i : i - loads());
  }
  return fmt::format(
      "extern \"C\" __global__ void __launch_bounds__({}) $entry(\n{}    const LaunchScratch scratch, "
      "const Sizes size) {{\n  grid_dependency_wait();\n{}",
      bounds, params, kBegin);
}

// ---- Where this CTA and this thread stand ----

void KernelText::emit_decode(const std::vector<int>& axes, const std::string& index, const std::string& name) {
  if (axes.size() == 1) {
    k_.add("const Index x{} = {};", axes[0], index);
    return;
  }
  k_.add("Index {}_rest = {};", name, index);
  for (std::size_t a = axes.size(); a-- > 1;) {
    k_.add("const Index x{} = next_coordinate({}_rest, {});", axes[a], name,
           sizes_.divisor(fmt::format("x{}_extent", axes[a]), extent(axes[a])));
  }
  k_.add("const Index x{} = {}_rest;", axes[0], name);
}

bool KernelText::has_sums() const {
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
    const bool is_row = is_tile_ && s_.sinks[o] == SinkKind::row && part_group_[o] < 0 && s_.chunk_axis < 0;
    if (is_live_[o] && s_.sinks[o] != SinkKind::store && !is_row) return true;
  }
  return false;
}

void KernelText::emit_coordinates() {
  k_.indent();
  k_.add("constexpr int kVector = {}, kLanes = {}, kRows = {}, kUnroll = {};", s_.vector, s_.lanes, s_.rows, s_.unroll);
  if (has_sums()) k_.raw("constexpr int kThreads = kLanes * kRows;");
  if (s_.block > 1) k_.add("constexpr int kBlock = {};", s_.block);
  if (s_.sharers > 1) k_.add("constexpr int kSharers = {};", s_.sharers);
  k_.raw("const int lane = threadIdx.x % kLanes, row = threadIdx.x / kLanes;");
  std::string serial_part = "0", inner_part = "0";
  if (!s_.grid.empty()) k_.raw("Index rest = blockIdx.x;");
  for (std::size_t d = 0; d < s_.grid.size(); ++d) {
    const GridDim& dim = s_.grid[d];
    if (d + 1 == s_.grid.size()) {
      k_.add("const Index g{} = rest;", d);
    } else {
      k_.add("const Index g{} = next_coordinate(rest, {});", d, sizes_.divisor(fmt::format("grid{}", d), dim.count));
    }
    if (dim.over == GridDim::Over::serial) serial_part = fmt::format("g{}", d);
    if (dim.over == GridDim::Over::inner) inner_part = fmt::format("g{}", d);
    if (dim.over != GridDim::Over::axis) continue;
    if (dim.axis == s_.chunk_axis) {
      k_.add("const Index x{}_begin = g{} * {};", dim.axis, d, sizes_.number("chunk", s_.chunk));
    } else {
      k_.add("const Index x{} = g{}{};", dim.axis, d, dim.axis == s_.block_axis ? " * kBlock" : "");
    }
  }
  const std::string serial = sizes_.number("serial", s_.serial_count);
  if (is_tile_) {
    k_.add("const Index s_begin = {} * {};", serial_part, sizes_.number("serial_chunk", s_.serial_chunk));
    k_.add("const Index s_end = s_begin + {} < {} ? s_begin + {} : {};", sizes_.named("serial_chunk"), serial,
           sizes_.named("serial_chunk"), serial);
    k_.add("const Index first_column = {} * (kLanes * kVector);", inner_part);
    k_.add("const Index x{} = first_column + lane * kVector;", inner_);
    k_.add("const bool inner_ok = x{} < {};", inner_, inner_extent());
    if (s_.is_ragged) emit_count("const int count", "");
  } else {
    k_.add("const Index s_begin = {} * kRows, s = s_begin + row, s_end = {};", serial_part, serial);
    k_.raw("const bool serial_ok = s < s_end;");
    if (!s_.serial_axes.empty()) emit_decode(s_.serial_axes, "s", "s");
    const std::string chunk = sizes_.number("inner_chunk", s_.inner_chunk);
    const std::string vectors = sizes_.number("inner_vectors", s_.inner_vectors);
    k_.add("const Index q_begin = {} * {};  // in vectors", inner_part, chunk);
    k_.add("const Index q_end = q_begin + {0} < {1} ? q_begin + {0} : {1};", chunk, vectors);
  }
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    std::string part = "0", tile = "0";
    for (std::size_t d = s_.grid.size(); d-- > 0;) {
      std::string& index = parts_[p].is_reduced[d] ? part : tile;
      index = index == "0" ? fmt::format("(long long)g{}", d)
                           : fmt::format("({}) * {} + g{}", index,
                                         sizes_.wide_number(fmt::format("grid{}_count", d), s_.grid[d].count), d);
    }
    k_.add("const long long tile{0} = {1}, part{0} = {2}, parts{0} = {3};  // of the partial sums", p, tile, part,
           s_.sharers > 1 ? "kSharers" : sizes_.wide_number(fmt::format("parts{}_count", p), parts_[p].parts));
    for (const std::size_t o : parts_[p].outputs) {
      k_.add("{0}* const out{1}_tile = {2} + tile{3} * parts{3} * {4};", sum_type(o), o, parts_text(o), p,
             tile_elements_text(o));
      if (s_.adds_later) continue;
      k_.add("{0}* const out{1}_part = out{1}_tile + part{2} * {3};", sum_type(o), o, p, tile_elements_text(o));
    }
  }
}

void KernelText::emit_count(const std::string& target, const std::string& suffix) {
  k_.add("{0}{1} = {2} - x{3} < kVector ? (int)({2} - x{3}) : kVector;", target, suffix, inner_extent(), inner_);
}

/// Bytes of shared memory for sums across the CTA's threads.
std::int64_t KernelText::scratch_bytes() const {
  std::int64_t bytes = 0;
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
    if (!is_live_[o] || s_.sinks[o] == SinkKind::store) continue;
    const std::int64_t columns =
        is_tile_ && s_.sinks[o] == SinkKind::column ? std::int64_t{s_.threads()} * s_.vector : 0;
    bytes = std::max(bytes, std::max<std::int64_t>(columns, s_.threads()) * sum_bytes(o));
  }
  return bytes;
}

void KernelText::emit_sums() {
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
    if (is_sink(o, SinkKind::total) || (!is_tile_ && is_sink(o, SinkKind::row))) {
      k_.add("{} out{}_sum[{}];", sum_type(o), o, sum_count(o));
      k_.add("clear<{}>(out{}_sum);", op(o), o);
    }
    if (s_.chunk_axis >= 0 && is_sink(o, SinkKind::row)) {
      k_.add("__shared__ {} out{}_rows[{}];  // row sums of the whole chunk", sum_type(o), o, s_.row_slots);
    }
  }
  if (scratch_bytes() > 0) k_.add("__shared__ double shared[{}];", ceil_div(scratch_bytes(), std::int64_t{8}));
}

namespace {

// An empty space as one of extents 1: reductions of nothing are constants, outputs without elements are left alone.
void replace_empty(Group* group, std::vector<bool>* is_live) {
  const auto constant = [](Expr* expr, Combine combine, DType dtype) {
    return make_constant(expr, identity_of(combine, dtype), dtype).id();
  };
  Expr expr;
  std::vector<std::int32_t> placed;
  for (const ExprNode& node : group->expr.nodes()) {
    if (node.prim == Prim::reduced) {
      const GroupReduction& reduction = group->reductions[static_cast<std::size_t>(node.index)];
      placed.push_back(constant(&expr, reduction.combine, group->expr.dtype_of(reduction.value)));
      continue;
    }
    ExprNode copy = node;
    for (std::int32_t& arg : copy.args) arg = arg < 0 ? arg : placed[static_cast<std::size_t>(arg)];
    placed.push_back(expr.add(copy));
  }
  for (std::size_t o = 0; o < group->outputs.size(); ++o) {
    GroupOutput& output = group->outputs[o];
    for (int axis = 0; axis < group->rank(); ++axis) {
      const bool reduced = (output.reduce_mask >> axis) & 1u;
      if (!reduced && group->extents[static_cast<std::size_t>(axis)] == 0) (*is_live)[o] = false;
    }
    const DType dtype = group->expr.dtype_of(output.value);
    if (output.combine == Combine::none && output.reduce_mask != 0) {  // written once, of reductions of nothing
      output.value = placed[static_cast<std::size_t>(output.value)];
      output.reduce_mask = 0;
    } else {
      output.value = constant(&expr, output.combine, dtype);
    }
  }
  group->expr = std::move(expr);
  group->reductions.clear();
  for (std::int64_t& extent : group->extents) extent = std::max<std::int64_t>(extent, 1);
}

// Results over all rows come from threads that keep their places in the row, so a row's axis stands innermost, even
// where another is contiguous.
void put_row_inside(Group* group) {
  const std::uint32_t row = row_mask(*group), rows = rows_mask(*group);
  const int rank = group->rank();
  bool has_columns = false;
  for (const GroupOutput& output : group->outputs) has_columns |= rows != 0 && output.reduce_mask == rows;
  if (!has_columns || ((row >> (rank - 1)) & 1u)) return;
  int axis = rank - 1;
  while (!((row >> axis) & 1u)) --axis;
  const auto rotate = [&](auto& values) {
    std::rotate(values.begin() + axis, values.begin() + axis + 1, values.end());
  };
  const auto rotate_mask = [&](std::uint32_t mask) {
    const std::uint32_t below = mask & ((1u << axis) - 1), above = mask >> (axis + 1) << axis;
    return below | above | ((mask >> axis) & 1u) << (rank - 1);
  };
  rotate(group->extents);
  for (GroupLoad& load : group->loads) rotate(load.strides);
  for (GroupIndex& index : group->indices) rotate(index.strides);
  for (GroupOutput& output : group->outputs) {
    rotate(output.strides);
    output.reduce_mask = rotate_mask(output.reduce_mask);
  }
  for (GroupReduction& reduction : group->reductions) reduction.reduce_mask = rotate_mask(reduction.reduce_mask);
}

}  // namespace

TextPlan plan_group(const Group& canonical, std::span<const int> alignment, const Target& target, int stage_threads) {
  Group group = canonical;
  std::vector<bool> is_live(group.outputs.size(), true);
  if (group.points() == 0) replace_empty(&group, &is_live);
  if (group.extents.empty()) {
    group.extents = {1};
    for (GroupLoad& load : group.loads) load.strides = {0};
    for (GroupOutput& output : group.outputs) output.strides = {0};
    for (GroupIndex& index : group.indices) index.strides = {0};
  }

  TextPlan plan;
  if (std::find(is_live.begin(), is_live.end(), true) == is_live.end()) return plan;
  const bool is_staged = !group.reductions.empty();
  if (is_staged) {
    if (const std::string why = staged_refusal(group); !why.empty()) {
      fail(ErrorKind::unsupported, "fused loop with reductions of its own: {}", why);
    }
    put_row_inside(&group);
  }
  const GroupSchedule schedule = is_staged ? schedule_staged(group, alignment, target, stage_threads)
                                           : schedule_group(group, alignment, target, stage_threads);
  if (schedule.ctas >= (std::int64_t{1} << 31)) {
    fail(ErrorKind::unsupported, "fused loop: {} CTAs for {} points, at most 2^31 - 1 fit a grid", schedule.ctas,
         group.points());
  }
  TextLaunch launch =
      is_staged ? StagedText(group, schedule, is_live).run() : KernelText(group, schedule, is_live).run();
  launch.floor_us = target.stream_us(double(canonical.min_read_bytes()), double(canonical.min_written_bytes()));
  launch.leaves_stamp = true;
  launch.why = schedule.why;
  if (launch.workspace_bytes > 0) {
    launch.why +=
        fmt::format("; partial sums {:.1f} KB, {} tickets", double(launch.workspace_bytes) / 1024, launch.ticket_count);
  }
  plan.workspace_bytes = launch.workspace_bytes, plan.ticket_count = launch.ticket_count;
  plan.launches.push_back(std::move(launch));
  if (schedule.adds_later) plan.launches.push_back(KernelText(group, schedule, is_live).add_later());
  return plan;
}

}  // namespace paoding::gpu
