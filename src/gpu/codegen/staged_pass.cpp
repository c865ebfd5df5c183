// SPDX-License-Identifier: Apache-2.0
// Emits a pass along the row: its loads, its points, and the sums that its threads combine.
#include <algorithm>

#include "gpu/codegen/staged_text.h"

namespace paoding::gpu {

// ---- A pass along the row ----

void StagedText::emit_loads_of(const Pass& pass, const std::string& index) {
  for (std::size_t i = 0; i < loads(); ++i) {
    if (!pass.use.loads[i] || is_kept(i) || !moves_in_row(i)) continue;
    if (index.empty()) k_.add("{} in{}_v;", pack_type(i), i);
    emit_load(i, fmt::format("in{}_v{}", i, index), vector_count());
  }
}

void StagedText::emit_same(const Pass& pass) {
  if (pass.same.empty()) return;
  std::string call = arguments(pass, pass.same_use, false), shares;
  for (const std::int32_t node : pass.same) {
    const bool is_divisor = is_row_divisor(group_, node, in_row_);
    const std::string name = fmt::format("{}_same{}", pass.formula, node);
    k_.add("{} {}{};", is_divisor ? "FloatDivisor" : computed_type(group_.expr.dtype_of(node)), name,
           is_tile_ ? "[kVector]" : "");
    call += fmt::format("{}{}{}{}", call.empty() ? "" : ", ", name, element(), is_divisor ? ".number" : "");
    if (is_divisor) shares += fmt::format(" {}{}.find_share();", name, element());
  }
  if (is_tile_) {
    k_.raw("#pragma unroll");
    k_.raw("for (int v = 0; v < kVector; ++v) {");
    if (s_.is_ragged) k_.raw("if (v >= count) continue;");
  }
  k_.add("{}_same({});{}", pass.formula, call, shares);
  if (is_tile_) k_.raw("}");
}

void StagedText::emit_pass(const Pass& pass) {
  emit_same(pass);
  std::vector<Combined> combined;
  for (const std::size_t r : pass.reductions) {
    k_.add("{} red{}{};", reduction_type(r), r, is_tile_ ? "[kVector]" : "");
    k_.add("clear<{}>(red{});", reduction_op(r), r);
    combined.push_back({fmt::format("red{}", r), reduction_op(r), reduction_type(r)});
  }
  for (const std::size_t o : pass.outputs) {
    if (s_.sinks[o] != SinkKind::row) continue;
    k_.add("{} out{}_row{};", sum_type(o), o, is_tile_ ? "[kVector]" : "");
    k_.add("clear<{}>(out{}_row);", op(o), o);
    combined.push_back({fmt::format("out{}_row", o), op(o), sum_type(o)});
  }
  if (s_.holds_rows) {
    emit_steps(true, "", &pass);
    emit_loads_of(pass, "");
    emit_points(pass);
    k_.raw("}");
    k_.raw("}");
  } else {
    const bool is_loaded_ahead = std::any_of(pass.use.loads.begin(), pass.use.loads.end(), [](bool is) { return is; });
    k_.add("for (Index first = 0; first < {}; first += kSteps * {}) {{", row_end(), is_tile_ ? "kRows" : "kLanes");
    if (is_loaded_ahead) {
      for (std::size_t i = 0; i < loads(); ++i) {
        if (pass.use.loads[i] && moves_in_row(i)) k_.add("{} in{}_v[kSteps];", pack_type(i), i);
      }
      emit_steps(true, "first + ");
      emit_loads_of(pass, "[u]");
      k_.raw("}");
      k_.raw("}");
    }
    emit_steps(true, "first + ");
    emit_points(pass);
    k_.raw("}");
    k_.raw("}");
    k_.raw("}");
  }
  if (is_shifted()) {
    begin_edge();
    emit_loads_of(pass, "");
    emit_points(pass);
    end_edge();
  }
  if (!combined.empty()) emit_team(combined);
}

/// Arguments of a pass's formula for element v of step u, or, once per row, for element v of a tile.
std::string StagedText::arguments(const Pass& pass, const FormulaUse& use, bool is_point) {
  std::string list;
  const auto add = [&](const std::string& argument) { list += (list.empty() ? "" : ", ") + argument; };
  for (std::size_t i = 0; i < loads(); ++i) {
    if (!use.loads[i]) continue;
    const char* element = stride(i, inner_) == 0 ? "0" : "v";
    const char* pack = !moves_in_row(i)               ? "row"
                       : in_edge_                     ? (is_kept(i) ? "edge" : "v")
                       : is_kept(i) || !s_.holds_rows ? "v[u]"
                                                      : "v";
    add(fmt::format("in{}_{}.get({})", i, pack, element));
  }
  for (std::size_t i = 0; i < group_.indices.size(); ++i) {
    if (!use.indices[i]) continue;
    std::string at = fmt::format("idx{}_base", i);
    if (is_point) at += index_terms(i, loop_axes());
    // Without a point the row's first element stands for all: such an index does not move along the row.
    add(is_point || is_tile_ ? index_argument(i, at)
                             : fmt::format("({})({})", computed_type(group_.indices[i].dtype), at));
  }
  for (std::size_t r = 0; r < group_.reductions.size(); ++r) {
    if (use.reductions[r]) add(fmt::format("red{}{}", r, element()));
  }
  for (std::size_t i = 0; is_point && i < pass.known.size(); ++i) {
    if (!use.nodes[i] || !pass.known[i]) continue;
    add(in_row_[i] ? carried_value(static_cast<std::int32_t>(i))
                   : fmt::format("{}_same{}{}", pass.formula, i, element()));
  }
  return list;
}

void StagedText::emit_points(const Pass& pass) {
  for (const std::size_t o : pass.outputs) {
    if (s_.sinks[o] != SinkKind::store) continue;
    k_.add("{} out{}_new;", pack_type(loads() + o, "Draft"), o);
  }
  if (!has_label(pass)) {
    emit_points_that("", pass);
  } else if (in_edge_ || s_.vector == 1) {
    emit_points_that("true", pass);
  } else {
    k_.add("if ((unsigned long long)({} - {}) < kVector) {{", label_text(pass), label_place());
    emit_points_that("true", pass);
    k_.raw("} else {");
    emit_points_that("false", pass);
    k_.raw("}");
  }
  for (const std::size_t o : pass.outputs) {
    if (s_.sinks[o] != SinkKind::store) continue;
    emit_move(loads() + o, true, fmt::format("out{}_new", o), step_offset(loads() + o), vector_count());
  }
}

bool StagedText::has_label(const Pass& pass) const {
  const auto at = static_cast<std::size_t>(std::max(label_.node, 0));
  return label_.node >= 0 && pass.use.nodes[at] && !pass.known[at];
}

bool StagedText::is_of_label(std::size_t reduction) const {
  const GroupReduction& sum = group_.reductions[reduction];
  const ExprNode& value = group_.expr[sum.value];
  if (sum.combine != Combine::sum || value.prim != Prim::select || value.args[0] != label_.node) return false;
  const ExprNode& elsewhere = group_.expr[value.args[2]];
  return elsewhere.prim == Prim::constant && elsewhere.value == 0;
}

/// The row's label, as the pass knows it, and the place in the row that the vector begins at.
std::string StagedText::label_text(const Pass& pass) const {
  const ExprNode& node = group_.expr[label_.label];
  return node.prim == Prim::input ? fmt::format("in{}_row.get(0)", node.index)
                                  : fmt::format("{}_same{}", pass.formula, label_.label);
}
std::string StagedText::label_place() {
  const auto i = static_cast<std::size_t>(label_.index);
  return fmt::format("(idx{}_base{})", i, index_terms(i, loop_axes()));
}

namespace {

// Place of this CTA's partial results when they are too many for registers; each belongs to one thread.
std::string column_partial(std::size_t o) {
  return fmt::format("out{0}_partial[blockIdx.x * out{0}_tile + q * kVector + v]", o);
}

}  // namespace

void StagedText::emit_points_that(const std::string& may_have_label, const Pass& pass) {
  k_.raw("#pragma unroll");
  k_.raw("for (int v = 0; v < kVector; ++v) {");
  if (s_.is_ragged) {
    k_.raw("if (v >= count) {");
    for (const std::size_t o : pass.outputs) {  // read with those beside them
      if (is_sink(o, SinkKind::column) && !s_.holds_rows) k_.add("clear<{}>({});", op(o), column_partial(o));
    }
    k_.raw("continue;");
    k_.raw("}");
  }
  std::string call = arguments(pass, pass.use, true);
  for (const FormulaResult& result : pass.results) {
    const std::string_view type = computed_type(group_.expr.dtype_of(result.value));
    k_.add("{} {}_value;", type, result.name);
    call += fmt::format("{}{}_value", call.empty() ? "" : ", ", result.name);
  }
  k_.add("{}{}({});", pass.formula, may_have_label.empty() ? "" : "<" + may_have_label + ">", call);
  for (const std::int32_t node : pass.carried) k_.add("{} = carried{}_value;", carried_value(node), node);
  for (const std::size_t r : pass.reductions) {
    if (may_have_label == "false" && is_of_label(r)) continue;
    k_.add("red{0}{1} = {2}::of(red{0}{1}, ({3})red{0}_new_value);", r, element(), reduction_op(r), reduction_type(r));
  }
  for (const std::size_t o : pass.outputs) emit_point_sink(o);
  k_.raw("}");
}

void StagedText::emit_point_sink(std::size_t o) {
  switch (s_.sinks[o]) {
    case SinkKind::store:
      return k_.add("out{0}_new.put({1}, out{0}_value);", o, stride(loads() + o, inner_) == 0 ? "0" : "v");
    case SinkKind::row: emit_combine(o, fmt::format("out{}_row{}", o, element())); return;
    case SinkKind::total: emit_combine(o, fmt::format("out{}_sum", o)); return;
    case SinkKind::column:
      if (s_.holds_rows) return emit_combine(o, fmt::format("out{}_sum[u][v]", o));
      k_.add("{}& column{} = {};", sum_type(o), o, column_partial(o));
      k_.add("column{0} = turn == (Index)blockIdx.x ? ({1})out{0}_value : {2}::of(column{0}, ({1})out{0}_value);", o,
             sum_type(o), op(o));
      return;
    default: return;
  }
}

// ---- Across the threads of a row ----

void StagedText::emit_team(const std::vector<Combined>& values) {
  if (is_tile_) {
    if (s_.rows == 1) return;
    for (const Combined& value : values) {
      k_.add("combine_columns<{}, kLanes, kRows>({}, shared);", value.op, value.name);
      k_.raw("#pragma unroll");
      k_.add("for (int v = 0; v < kVector; ++v) {0}[v] = (({1}*)shared)[lane * kVector + v];", value.name, value.type);
    }
    return;
  }
  for (const Combined& value : values) {
    k_.add("{0} = combine_lanes<{1}, {2}>({0});", value.name, value.op, std::min(s_.lanes, 32));
  }
  if (s_.lanes <= 32) return;
  // Every exchange of a turn has its own memory, so one barrier is enough between writing and reading.
  const int exchange = exchange_++;
  for (std::size_t i = 0; i < values.size(); ++i) {
    k_.add("__shared__ {} warps{}_{}[kThreads / 32];", values[i].type, exchange, i);
    k_.add("if (threadIdx.x % 32 == 0) warps{}_{}[threadIdx.x / 32] = {};", exchange, i, values[i].name);
  }
  k_.raw("__syncthreads();");
  for (std::size_t i = 0; i < values.size(); ++i) {
    k_.add("{} = combine_warps<{}, kLanes / 32>(warps{}_{} + threadIdx.x / kLanes * (kLanes / 32));", values[i].name,
           values[i].op, exchange, i);
  }
}

}  // namespace paoding::gpu
