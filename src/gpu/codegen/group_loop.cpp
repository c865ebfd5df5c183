// SPDX-License-Identifier: Apache-2.0
// The loop of a group's kernel, and how its sums leave the CTA.
#include "base/check.h"
#include "base/rounding.h"
#include "gpu/codegen/group_writer.h"

namespace paoding::gpu {

// ---- Loads ----

std::vector<int> KernelText::outer_axes() const {
  std::vector<int> axes = s_.grid_axes;
  axes.insert(axes.end(), fixed_axes().begin(), fixed_axes().end());
  return axes;
}

bool KernelText::needs_offset(std::size_t k) const {
  for (std::size_t i = 0; i < group_.operands(); ++i) {
    if (offset_of_[i] == k && (i < loads() ? bool(used_.loads[i]) : is_sink(i - loads(), SinkKind::store))) return true;
  }
  return false;
}

void KernelText::emit_bases() {
  for (std::size_t k = 0; k < offsets_.size(); ++k) {
    if (!needs_offset(k)) continue;
    const std::string name = fmt::format("at{}", k);
    k_.add("const Index {}_base = 0{};  // elements into {}", name, offset_terms(name, offsets_[k], outer_axes()),
           operands_at(k));
  }
  emit_index_bases();
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
    if (!is_sink(o, SinkKind::column)) continue;
    k_.add("{} out{}_sum[{}][kVector];", sum_type(o), o, sum_count(o));
    k_.add("clear<{}>(out{}_sum);", op(o), o);
  }
}

// ---- Indices: numbers of the iteration point, kept as one per step, like offsets ----

bool draws_numbers(const Group& group) {
  for (std::int32_t node = 0; node < static_cast<std::int32_t>(group.expr.size()); ++node) {
    if (group.expr[node].prim == Prim::random_bits) return true;
  }
  return false;
}

bool is_in_fours(const GroupIndex& index, int inner) {
  bool is = index.start % 4 == 0;
  for (std::size_t axis = 0; axis < index.strides.size(); ++axis) {
    is = is && (static_cast<int>(axis) == inner ? index.strides[axis] == 1 : index.strides[axis] % 4 == 0);
  }
  return is;
}

std::string_view KernelText::index_type(std::size_t i) const {
  return index_is_wide(group_, i) ? "long long" : "Index";
}

std::string KernelText::index_step(std::size_t i, int axis) {
  const std::string name = fmt::format("idx{}_x{}", i, axis);
  const std::int64_t step = group_.indices[i].strides[static_cast<std::size_t>(axis)];
  return step == 1 ? "1" : index_is_wide(group_, i) ? sizes_.wide_number(name, step) : sizes_.number(name, step);
}

std::string KernelText::index_terms(std::size_t i, const std::vector<int>& axes) {
  std::string text;
  for (const int axis : axes) {
    if (group_.indices[i].strides[static_cast<std::size_t>(axis)] == 0) continue;
    text += fmt::format(" + ({})x{} * {}", index_type(i), axis, index_step(i, axis));
  }
  return text;
}

bool KernelText::index_varies(std::size_t i) const {
  return std::any_of(loop_axes().begin(), loop_axes().end(),
                     [&](int axis) { return group_.indices[i].strides[static_cast<std::size_t>(axis)] != 0; });
}

void KernelText::emit_index_bases() {
  for (std::size_t i = 0; i < group_.indices.size(); ++i) {
    if (!used_.indices[i]) continue;
    const std::int64_t start = group_.indices[i].start;
    const std::string name = fmt::format("idx{}_start", i);
    k_.add("const {} idx{}_base = {}{};", index_type(i), i,
           index_is_wide(group_, i) ? sizes_.wide_number(name, start) : sizes_.number(name, start),
           index_terms(i, outer_axes()));
  }
}

std::string KernelText::index_argument(std::size_t i, const std::string& at) {
  std::string text = at;
  const auto add = [&](const char* times, int axis) {
    if (group_.indices[i].strides[static_cast<std::size_t>(axis)] == 0) return;
    text += fmt::format(" + {} * {}", times, index_step(i, axis));
  };
  if (begins_at_fours(i)) {
    if (s_.block > 1) add("j", s_.block_axis);
    // A block of Philox makes four random numbers: where the compiler sees that four indices have one block, it works
    // that out once.
    return fmt::format("(({})(({}) & ~3) + (v & ~3)) | (v & 3)", computed_type(group_.indices[i].dtype), text);
  }
  if (s_.vector > 1) add("v", inner_);
  if (s_.block > 1) add("j", s_.block_axis);
  return fmt::format("({})({})", computed_type(group_.indices[i].dtype), text);
}

std::string KernelText::operands_at(std::size_t k) const {
  std::string list;
  for (std::size_t i = 0; i < group_.operands(); ++i) {
    if (offset_of_[i] != k) continue;
    list += fmt::format("{}{}{}", list.empty() ? "" : ", ", i < loads() ? "in" : "out", i < loads() ? i : i - loads());
  }
  return list;
}

std::string KernelText::pack_type(std::size_t operand, std::string_view kind) const {
  const DType dtype = operand < loads() ? group_.loads[operand].dtype : output(operand - loads()).dtype;
  return fmt::format("{}<{}, {}>", kind, stored_type(dtype), stride(operand, inner_) == 0 ? "1" : "kVector");
}

std::string KernelText::inner_step(std::size_t operand) {
  const std::int64_t step = stride(operand, inner_);
  return step == 1 ? "(Index)1" : sizes_.number(fmt::format("at{}_x{}", offset_of_[operand], inner_), step);
}

void KernelText::emit_move(std::size_t operand, bool is_store, const std::string& pack, const std::string& at,
                           const std::string& count) {
  const std::string pointer =
      fmt::format("{}{} + {}", operand < loads() ? "in" : "out", operand < loads() ? operand : operand - loads(), at);
  const bool once = operand < loads() && !may_alias_[operand] && !s_.is_stage;
  const std::string whole =
      is_store ? fmt::format("store({}, {});", pointer, pack) : fmt::format("load<{}>({}, {});", once, pack, pointer);
  const std::string each =
      is_store ? fmt::format("store_each({}, {}, {}, {});", pointer, inner_step(operand), count, pack)
               : fmt::format("load_each<{}>({}, {}, {}, {});", once, pack, pointer, inner_step(operand), count);
  if (stride(operand, inner_) == 0 || s_.vector == 1) {
    k_.raw(whole);
  } else if (!s_.is_vector[operand]) {
    k_.raw(each);
  } else if (s_.is_ragged) {
    k_.add("if ({} == kVector) {}", count, whole);
    k_.add("else {}", each);
  } else {
    k_.raw(whole);
  }
}

void KernelText::emit_block_loop(bool blocked) {
  if (blocked && s_.block > 1) k_.raw("#pragma unroll"), k_.raw("for (int j = 0; j < kBlock; ++j) {");
}

void KernelText::end_block_loop(bool blocked) {
  if (blocked && s_.block > 1) k_.raw("}");
}

std::string KernelText::block_term(std::size_t operand) {
  if (!is_blocked(operand) || s_.block == 1) return "";
  return fmt::format(" + j * {}", sizes_.number(fmt::format("at{}_x{}", offset_of_[operand], s_.block_axis),
                                                stride(operand, s_.block_axis)));
}

void KernelText::emit_hoisted_loads() {
  for (std::size_t i = 0; i < loads(); ++i) {
    if (!used_.loads[i] || !is_hoisted(i)) continue;
    k_.add("{} in{}_v[1][{}] = {{}};", pack_type(i), i, is_blocked(i) ? s_.block : 1);
    k_.add("if ({}) {{", is_tile_ ? "inner_ok" : "serial_ok");
    emit_block_loop(is_blocked(i));
    emit_move(i, false, fmt::format("in{}_v[0][{}]", i, block_index(is_blocked(i))),
              fmt::format("at{}_base{}", offset_of_[i], block_term(i)), s_.is_ragged ? "count" : "kVector");
    end_block_loop(is_blocked(i));
    k_.raw("}");
  }
}

// ---- The loop: all loads of kUnroll steps, then all arithmetic, sums and stores ----

bool KernelText::loop_needs_offset(std::size_t k) const { return needs_offset(k) && varies(offsets_[k], loop_axes()); }

std::string KernelText::offset_in_loop(std::size_t operand) {
  const std::size_t k = offset_of_[operand];
  return fmt::format("at{}{}{}", k, loop_needs_offset(k) ? "[u]" : "_base", block_term(operand));
}

void KernelText::emit_loop() {
  const bool loop_count = s_.is_ragged && !is_tile_;
  if (is_tile_) {
    k_.raw("for (Index s0 = s_begin; s0 < s_end; s0 += kRows * kUnroll) {");
  } else {
    k_.raw("for (Index q0 = q_begin; q0 < q_end; q0 += kLanes * kUnroll) {");
  }
  k_.raw("bool ok[kUnroll];");
  if (loop_count) k_.raw("int counts[kUnroll];");
  for (std::size_t k = 0; k < offsets_.size(); ++k) {
    if (loop_needs_offset(k)) k_.add("Index at{}[kUnroll];", k);
  }
  for (std::size_t i = 0; i < group_.indices.size(); ++i) {
    if (used_.indices[i] && index_varies(i)) k_.add("{} idx{}[kUnroll];", index_type(i), i);
  }
  for (std::size_t i = 0; i < loads(); ++i) {
    if (used_.loads[i] && !is_hoisted(i))
      k_.add("{} in{}_v[kUnroll][{}];", pack_type(i), i, is_blocked(i) ? s_.block : 1);
  }
  k_.raw("#pragma unroll");
  k_.raw("for (int u = 0; u < kUnroll; ++u) {");
  if (is_tile_) {
    k_.raw(s_.is_transposed ? "const Index s = s0 + row * kUnroll + u;" : "const Index s = s0 + row + u * kRows;");
    k_.raw("ok[u] = inner_ok && s < s_end;");
  } else {
    k_.raw("const Index q = q0 + lane + u * kLanes;");
    k_.raw("ok[u] = serial_ok && q < q_end;");
  }
  k_.raw("if (ok[u]) {");
  emit_loop_coordinates();
  if (loop_count) emit_count("counts[u]", "");
  for (std::size_t k = 0; k < offsets_.size(); ++k) {
    if (!loop_needs_offset(k)) continue;
    k_.add("at{0}[u] = at{0}_base{1};", k, offset_terms(fmt::format("at{}", k), offsets_[k], loop_axes()));
  }
  for (std::size_t i = 0; i < group_.indices.size(); ++i) {
    if (used_.indices[i] && index_varies(i)) k_.add("idx{0}[u] = idx{0}_base{1};", i, index_terms(i, loop_axes()));
  }
  const std::string count = loop_count ? "counts[u]" : s_.is_ragged ? "count" : "kVector";
  for (std::size_t i = 0; i < loads(); ++i) {
    if (!used_.loads[i] || is_hoisted(i)) continue;
    emit_block_loop(is_blocked(i));
    emit_move(i, false, fmt::format("in{}_v[u][{}]", i, block_index(is_blocked(i))), offset_in_loop(i), count);
    end_block_loop(is_blocked(i));
  }
  k_.raw("}");
  k_.raw("}");
  emit_arithmetic(count);
  k_.raw("}");
}

void KernelText::emit_loop_coordinates() {
  if (is_tile_) {
    if (!s_.serial_axes.empty()) emit_decode(s_.serial_axes, "s", "s");
    return;
  }
  if (s_.inner_axes.size() == 1) {
    k_.add("const Index x{} = q * kVector{};", inner_, s_.shifted_like >= 0 ? " + head" : "");
    return;
  }
  k_.raw("Index q_rest = q;");
  for (std::size_t a = s_.inner_axes.size(); a-- > 1;) {
    const int axis = s_.inner_axes[a];
    const std::int64_t steps = axis == inner_ ? (extent(axis) + s_.vector - 1) / s_.vector : extent(axis);
    k_.add("const Index x{} = next_coordinate(q_rest, {}){};", axis,
           sizes_.divisor(fmt::format("x{}_steps", axis), steps), axis == inner_ && s_.vector > 1 ? " * kVector" : "");
  }
  k_.add("const Index x{} = q_rest;", s_.inner_axes[0]);
}

void KernelText::emit_arithmetic(const std::string& count) {
  k_.raw("#pragma unroll");
  k_.raw("for (int u = 0; u < kUnroll; ++u) {");
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
    if (!is_tile_ || !is_sink(o, SinkKind::row)) continue;
    k_.add("{} out{}_row[{}];", sum_type(o), o, sum_count(o));
    k_.add("clear<{}>(out{}_row);", op(o), o);
  }
  k_.raw("if (ok[u]) {");
  emit_block_loop(true);
  std::string declared, arguments;
  for (std::size_t i = 0; i < loads(); ++i) {
    if (!used_.loads[i]) continue;
    arguments += fmt::format("{}in{}_v[{}][{}].get({})", arguments.empty() ? "" : ", ", i, is_hoisted(i) ? "0" : "u",
                             block_index(is_blocked(i)), stride(i, inner_) == 0 ? "0" : "v");
  }
  for (std::size_t i = 0; i < group_.indices.size(); ++i) {
    if (!used_.indices[i]) continue;
    arguments += fmt::format("{}{}", arguments.empty() ? "" : ", ",
                             index_argument(i, fmt::format("idx{}{}", i, index_varies(i) ? "[u]" : "_base")));
  }
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
    if (!is_live_[o]) continue;
    declared += fmt::format("{} out{}_value; ", computed_type(group_.expr.dtype_of(output(o).value)), o);
    arguments += fmt::format("{}out{}_value", arguments.empty() ? "" : ", ", o);
    if (s_.sinks[o] == SinkKind::store) k_.add("{} out{}_new;", pack_type(loads() + o, "Draft"), o);
  }
  k_.raw("#pragma unroll");
  k_.add("for (int v = 0; v < kVector; ++v) {{");
  if (s_.is_ragged) k_.add("if (v >= {}) continue;", count);
  if (!declared.empty()) k_.raw(declared.substr(0, declared.size() - 1));
  k_.add("formula({});", arguments);
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
    if (is_live_[o]) emit_sink(o);
  }
  k_.raw("}");
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
    if (!is_sink(o, SinkKind::store)) continue;
    emit_move(loads() + o, true, fmt::format("out{}_new", o), offset_in_loop(loads() + o), count);
  }
  end_block_loop(true);
  k_.raw("}");
  bool has_row = false;
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) has_row = has_row || (is_tile_ && is_sink(o, SinkKind::row));
  if (has_row) k_.raw("const Index s = s0 + row + u * kRows;");
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
    if (is_tile_ && is_sink(o, SinkKind::row)) emit_row(o);
  }
  k_.raw("}");
}

void KernelText::emit_sink(std::size_t o) {
  const std::string_view j = block_index(keeps_block(o));
  switch (s_.sinks[o]) {
    case SinkKind::store:
      k_.add("out{0}_new.put({1}, out{0}_value);", o, stride(loads() + o, inner_) == 0 ? "0" : "v");
      break;
    case SinkKind::column: emit_combine(o, fmt::format("out{}_sum[{}][v]", o, j)); break;
    case SinkKind::total: emit_combine(o, fmt::format("out{}_sum[{}]", o, j)); break;
    case SinkKind::row: emit_combine(o, fmt::format("out{}_{}[{}]", o, is_tile_ ? "row" : "sum", j)); break;
    case SinkKind::spread:
      k_.add("out{0}_part[(s0 + row + u * kRows - s_begin) * (kLanes * kVector) + lane * kVector + v] = out{0}_value;",
             o);
      break;
    case SinkKind::once: break;  // only in groups with own reductions
  }
}

void KernelText::emit_combine(std::size_t o, const std::string& sum) {
  k_.add("{0} = {1}::of({0}, ({2})out{3}_value);", sum, op(o), sum_type(o), o);
}

void KernelText::emit_row(std::size_t o) {
  const bool blocked = keeps_block(o);
  const std::string_view j = block_index(blocked);
  emit_block_loop(blocked);
  k_.add("out{0}_row[{1}] = combine_lanes<{2}, kLanes>(out{0}_row[{1}]);", o, j, op(o));
  k_.raw("if (lane == 0 && s < s_end) {");
  const std::string slot = blocked && s_.block > 1
                               ? fmt::format("j * {} + s - s_begin", sizes_.number("serial_chunk", s_.serial_chunk))
                               : std::string("s - s_begin");
  if (s_.chunk_axis >= 0) {
    k_.add("{0}& sum = out{1}_rows[{2}];", sum_type(o), o, slot);
    k_.add("sum = x{0} == x{0}_begin ? out{1}_row[{2}] : {3}::of(sum, out{1}_row[{2}]);", s_.chunk_axis, o, j, op(o));
  } else if (part_group_[o] >= 0) {
    k_.add("out{0}_part[{1}] = out{0}_row[{2}];", o, slot, j);
  } else {
    if (!s_.serial_axes.empty()) emit_decode(s_.serial_axes, "s", "s");
    emit_final_store(o, s_.serial_axes, fmt::format("out{}_row[{}]", o, j), "j");
  }
  k_.raw("}");
  end_block_loop(blocked);
}

void KernelText::emit_final_store(std::size_t o, const std::vector<int>& axes, const std::string& value,
                                  const std::string& block) {
  std::vector<int> all = s_.grid_axes;
  all.insert(all.end(), axes.begin(), axes.end());
  const std::string name = fmt::format("out{}", o);
  std::string at = offset_terms(name, loads() + o, all);
  if (keeps_block(o) && s_.block > 1) {
    at += fmt::format(" + {} * {}", block,
                      sizes_.number(fmt::format("{}_x{}", name, s_.block_axis), stride(loads() + o, s_.block_axis)));
  }
  k_.add("store_one({}{}, {});", name, at, value);
}

// ---- After the loop ----

void KernelText::emit_columns() {
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
    if (!is_sink(o, SinkKind::column)) continue;
    const bool blocked = keeps_block(o);
    emit_block_loop(blocked);
    k_.add("gather_columns<{}, kLanes, kRows>(out{}_sum[{}], shared);", op(o), o, block_index(blocked));
    k_.raw("for (int c = threadIdx.x; c < kLanes * kVector; c += kThreads) {");
    k_.add("const {0} sum = column_of<{1}, kLanes, kRows, kVector>((const {0}*)shared, c);", sum_type(o), op(o));
    if (part_group_[o] >= 0) {
      k_.add("out{}_part[{}c] = sum;", o, blocked && s_.block > 1 ? "j * (kLanes * kVector) + " : "");
    } else {
      emit_column_store(o, "sum", "c", "j");
    }
    k_.raw("}");
    end_block_loop(blocked);
  }
}

void KernelText::emit_column_store(std::size_t o, const std::string& value, const std::string& column,
                                   const std::string& block) {
  k_.add("const Index x{} = first_column + {};", inner_, column);
  k_.add("if (x{} < {}) {{", inner_, inner_extent());
  emit_final_store(o, {inner_}, value, block);
  k_.raw("}");
}

void KernelText::emit_totals_and_rows() {
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
    const bool blocked = keeps_block(o);
    const std::string_view j = block_index(blocked);
    const bool is_total = is_sink(o, SinkKind::total), is_row = is_sink(o, SinkKind::row);
    if (s_.adds_later && part_group_[o] >= 0) {
      emit_leaving(o);
      continue;
    }
    if (is_total || (is_row && !is_tile_)) {
      emit_block_loop(blocked);
      k_.add("out{0}_sum[{1}] = combine_threads<{2}, {3}>(out{0}_sum[{1}], shared);", o, j, op(o),
             is_total ? "kThreads" : "kLanes");
      k_.add("if ({}) {{", is_total ? "threadIdx.x == 0" : "lane == 0 && serial_ok");
      const std::string value = fmt::format("out{}_sum[{}]", o, j);
      if (part_group_[o] >= 0) {
        k_.add("out{}_part[{}] = {};", o, is_row ? "row" : j, value);
      } else {
        emit_final_store(o, is_row ? s_.serial_axes : std::vector<int>{}, value, "j");
      }
      k_.raw("}");
      end_block_loop(blocked);
    }
    if (is_row && s_.chunk_axis >= 0) {
      k_.raw("__syncthreads();");
      k_.add("for (int e = threadIdx.x; e < {}; e += kThreads) {{", tile_elements_text(o));
      if (part_group_[o] >= 0) {
        k_.add("out{0}_part[e] = out{0}_rows[e];", o);
      } else {
        k_.add("if ({}) {{", emit_element_place(o));
        emit_element_store(o, fmt::format("out{}_rows[e]", o));
        k_.raw("}");
      }
      k_.raw("}");
    }
  }
}

/// Where element `e` of a tile of partial sums is, and under which condition it is: a tile at an edge has more of them
/// than anything has been written to.
std::string KernelText::emit_element_place(std::size_t o) {
  const bool blocked = keeps_block(o) && s_.block > 1;
  const std::string column = fmt::format("x{} < {}", inner_, inner_extent());
  switch (s_.sinks[o]) {
    case SinkKind::column:
      if (blocked) k_.raw("const int j = (int)(e / (kLanes * kVector));");
      k_.add("const Index x{} = first_column + (Index){};", inner_, blocked ? "(e % (kLanes * kVector))" : "e");
      return column;
    case SinkKind::row: {
      const std::string chunk = is_tile_ ? sizes_.number("serial_chunk", s_.serial_chunk) : std::string("(Index)kRows");
      if (blocked) k_.add("const int j = (int)(e / {});", chunk);
      k_.add("const Index s = s_begin + (Index)e{};", blocked ? fmt::format(" - j * {}", chunk) : "");
      return "s < s_end";
    }
    case SinkKind::spread:
      k_.raw("const Index s = s_begin + (Index)(e / (kLanes * kVector));");
      k_.add("const Index x{} = first_column + (Index)(e % (kLanes * kVector));", inner_);
      return "s < s_end && " + column;
    default:
      if (blocked) k_.raw("const int j = (int)e;");
      return "true";
  }
}

void KernelText::emit_element_store(std::size_t o, const std::string& value) {
  std::vector<int> axes;
  if (s_.sinks[o] == SinkKind::row || s_.sinks[o] == SinkKind::spread) axes = s_.serial_axes;
  if (!axes.empty()) emit_decode(axes, "s", "s");
  if (s_.sinks[o] == SinkKind::column || s_.sinks[o] == SinkKind::spread) axes.push_back(inner_);
  emit_final_store(o, axes, value, "j");
}

/// Each of a CTA's first warps adds up 32 of the elements that the CTAs share. Each warp has its own ticket, so that
/// its CTA need not synchronize, and its lanes combine their few parts.
void KernelText::emit_last_sharers(std::size_t p) {
  std::int64_t most = 1;
  for (const std::size_t o : parts_[p].outputs) most = std::max(most, tile_elements(o));
  const std::int64_t warps = ceil_div(most, 32);
  PD_ASSERT(warps * 32 <= s_.threads(), "a thread has one element");
  k_.add("if (threadIdx.x < {} && is_last_warp(scratch.tickets + {} + tile{} * {} + threadIdx.x / 32, kSharers)) {{",
         warps * 32, sizes_.wide_number(fmt::format("tickets{}", p), ticket_count_), p, warps);
  ticket_count_ += parts_[p].tiles * warps;
  k_.raw("const int e = threadIdx.x;");
  for (const std::size_t o : parts_[p].outputs) {
    k_.raw("{");
    const std::string condition = emit_element_place(o);
    k_.add("if (e < {} && {}) {{", tile_elements_text(o), condition);
    k_.add("const {} sum = fold_parts<{}>(out{}_tile + e, kSharers, {});", sum_type(o), op(o), o,
           tile_elements_text(o));
    emit_element_store(o, "sum");
    k_.raw("}");
    k_.raw("}");
  }
  k_.raw("}");
}

void KernelText::emit_last_arrivers() {
  for (std::size_t p = 0; p < parts_.size() && !s_.adds_later; ++p) {
    if (s_.sharers > 1) {
      emit_last_sharers(p);
      continue;
    }
    k_.add("if (is_last_arriver(scratch.tickets + {} + tile{}, (unsigned)parts{})) {{",
           sizes_.wide_number(fmt::format("tickets{}", p), ticket_count_), p, p);
    ticket_count_ += parts_[p].tiles;
    for (const std::size_t o : parts_[p].outputs) {
      k_.raw("{");
      k_.add("const int width = part_width<kThreads>({});", tile_elements_text(o));
      k_.add("for (long long first = 0; first < {}; first += width) {{", tile_elements_text(o));
      k_.raw("const long long e = first + (threadIdx.x & (width - 1));");
      const std::string condition = emit_element_place(o);
      k_.add("const bool is_there = e < {} && {};", tile_elements_text(o), condition);
      k_.add("const {} sum = combine_parts<{}, kThreads>(out{}_tile + e, (int)parts{}, {}, is_there, width, shared);",
             sum_type(o), op(o), o, p, tile_elements_text(o));
      k_.raw("if ((int)threadIdx.x < width && is_there) {");
      emit_element_store(o, "sum");
      k_.raw("}");
      k_.raw("}");
      k_.raw("}");
    }
    k_.raw("}");
  }
}

}  // namespace paoding::gpu
