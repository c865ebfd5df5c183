// SPDX-License-Identifier: Apache-2.0
// Chooses the passes and emits the code around them; staged_pass.cpp emits a pass, staged_results.cpp the results.
#include "gpu/codegen/staged_text.h"

#include "group/staged.h"
#include "scalar/primitive.h"

namespace paoding::gpu {

StagedText::StagedText(const Group& group, const GroupSchedule& schedule, const std::vector<bool>& is_live)
    : KernelText(group, schedule, is_live) {
  std::vector<std::int32_t> values = live_values(group, is_live);
  for (const GroupReduction& reduction : group.reductions) values.push_back(reduction.value);
  used_ = used_by(group, values);
  in_row_ = varies_along(group, row_mask(group));
  if (!is_tile_) label_ = find_row_label(group, in_row_);
  find_passes();
}

std::string_view StagedText::reduction_type(std::size_t r) const {
  const DType dtype = group_.expr.dtype_of(group_.reductions[r].value);
  return dtype == DType::boolean ? "int" : computed_type(dtype);
}

// One pass per stage of the reductions, and the last for all that is written.
void StagedText::find_passes() {
  const std::vector<int> stage = stages(group_);
  for (std::size_t r = 0; r < group_.reductions.size(); ++r) {
    const auto at = static_cast<std::size_t>(stage[static_cast<std::size_t>(group_.reductions[r].value)]);
    if (passes_.size() <= at) passes_.resize(at + 1);
    passes_[at].reductions.push_back(r);
    passes_[at].results.push_back({fmt::format("red{}_new", r), group_.reductions[r].value});
  }
  Pass last;
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
    if (!is_live_[o]) continue;
    Pass& pass = s_.sinks[o] == SinkKind::once ? once_ : last;
    pass.outputs.push_back(o);
    pass.results.push_back({fmt::format("out{}", o), output(o).value});
  }
  if (!last.outputs.empty()) passes_.push_back(std::move(last));
  for (std::size_t p = 0; p < passes_.size(); ++p) passes_[p].formula = fmt::format("stage{}", p);
  once_.formula = "once_per_row";
  const auto find_use = [&](Pass& pass) {
    std::vector<std::int32_t> values;
    for (const FormulaResult& result : pass.results) values.push_back(result.value);
    pass.use = used_by(group_, values, pass.known);
  };
  for (std::size_t p = 0; p < passes_.size(); ++p) {
    Pass& pass = passes_[p];
    pass.known.assign(static_cast<std::size_t>(group_.expr.size()), false);
    for (const CarriedValue& value : s_.carried) {
      if (static_cast<std::size_t>(value.pass) < p) pass.known[static_cast<std::size_t>(value.node)] = true;
      if (static_cast<std::size_t>(value.pass) != p) continue;
      pass.carried.push_back(value.node);
      pass.results.push_back({fmt::format("carried{}", value.node), value.node});
    }
    find_use(pass);
    find_same(&pass);
    find_use(pass);
  }
  find_use(once_);
  for (const Pass& pass : passes_) {
    bool combines = !pass.reductions.empty();
    for (const std::size_t o : pass.outputs) combines = combines || s_.sinks[o] == SinkKind::row;
    exchanges_ += combines;
  }
}

// The compiler would compute values that are the same along a row anew for every vector, since only some threads have
// that vector.
void StagedText::find_same(Pass* pass) {
  const FormulaUse use = pass->use;
  const auto note = [&](std::int32_t node) {
    const auto at = static_cast<std::size_t>(node);
    if (in_row_[at] || pass->known[at]) return;
    if (primitive(group_.expr[node].prim).rule == PrimRule::leaf && !is_row_divisor(group_, node, in_row_)) return;
    pass->same.push_back(node);
    pass->known[at] = true;
  };
  for (const FormulaResult& result : pass->results) note(result.value);
  for (std::int32_t i = 0; i < group_.expr.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (!use.nodes[at] || !in_row_[at] || pass->known[at]) continue;
    for (const std::int32_t arg : group_.expr[i].args) {
      if (arg >= 0) note(arg);
    }
  }
  pass->same_use = used_by(group_, pass->same);
}

TextLaunch StagedText::run() {
  std::string formulas;
  for (const Pass& pass : passes_) {
    std::vector<FormulaResult> same;
    for (const std::int32_t node : pass.same) same.push_back({fmt::format("same{}", node), node});
    if (!same.empty()) formulas += formula_text(group_, pass.formula + "_same", same) + "\n";
    formulas += formula_text(group_, pass.formula, pass.results, pass.known, label_) + "\n";
  }
  if (!once_.outputs.empty()) formulas += formula_text(group_, once_.formula, once_.results) + "\n";
  emit_start();
  emit_turn();
  emit_across_rows();
  emit_partials();
  return finish(formulas);
}

// ---- Before the turns ----

void StagedText::emit_start() {
  k_.indent();
  k_.add("constexpr int kVector = {}, kLanes = {}, kRows = {}, kSteps = {}, kThreads = kLanes * kRows;", s_.vector,
         s_.lanes, s_.rows, s_.steps);
  k_.raw("const int lane = threadIdx.x % kLanes, row = threadIdx.x / kLanes;");
  // Where columns of a row stand in memory is known before the rows are.
  std::int64_t shared = 0;
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
    if (!is_across_rows(o)) continue;
    const std::int64_t per_thread = s_.sinks[o] == SinkKind::column && s_.holds_rows ? s_.vector : 1;
    shared = std::max(shared, std::int64_t{s_.threads()} * per_thread * sum_bytes(o));
    if (s_.sinks[o] == SinkKind::total) {
      k_.add("{} out{}_sum;", sum_type(o), o);
    } else if (s_.holds_rows) {
      k_.add("{} out{}_sum[kSteps][kVector];", sum_type(o), o);
    } else {
      continue;
    }
    k_.add("clear<{}>(out{}_sum);", op(o), o);
  }
  if (is_tile_ && s_.rows > 1) shared = std::max<std::int64_t>(shared, std::int64_t{s_.threads()} * s_.vector * 8);
  if (shared > 0) k_.add("__shared__ double shared[{}];", (shared + 7) / 8);
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
    if (!is_across_rows(o)) continue;
    // A partial result per CTA, then one per bundle of them.
    const std::int64_t elements = partial_elements(o);
    workspace_bytes_ = (workspace_bytes_ + 255) / 256 * 256;
    k_.add("{0}* const out{1}_partial = ({0}*)((char*)scratch.workspace + {2});", sum_type(o), o,
           sizes_.wide_number(fmt::format("out{}_workspace", o), workspace_bytes_));
    k_.add("const long long out{}_tile = {};", o, sizes_.wide_number(fmt::format("out{}_elements", o), elements));
    workspace_bytes_ += (s_.ctas + (s_.ctas + bundle() - 1) / bundle()) * elements * sum_bytes(o);
  }
}

// ---- A turn: the rows that this CTA takes, or neighbouring vectors of rows ----

void StagedText::emit_turn() {
  const std::string inner = sizes_.number("inner_vectors", s_.inner_vectors);
  if (s_.fetches_ahead) emit_fetch();
  k_.add("for (Index turn = blockIdx.x; turn < {}; turn += {}) {{", sizes_.number("turns", s_.blocks),
         sizes_.number("ctas", s_.ctas));
  if (is_tile_) {
    k_.raw("Index tile_rest = turn;");
    k_.add("const Index first_lane = next_coordinate(tile_rest, {}) * kLanes;",
           sizes_.divisor("tiles", (s_.inner_vectors + s_.lanes - 1) / s_.lanes));
    k_.raw("const Index r = tile_rest;");
    if (!s_.grid_axes.empty()) emit_decode(s_.grid_axes, "r", "r");
    k_.add("const Index x{} = (first_lane + lane) * kVector;", inner_);
    k_.add("const bool row_ok = first_lane + lane < {};", inner);
    if (s_.is_ragged) emit_count("const int count", "");
  } else {
    emit_row();
  }
  emit_row_start();
  for (const Pass& pass : passes_) emit_pass(pass);
  emit_rows(passes_.back());
  if (exchanges_ == 1 && s_.lanes > 32 && !is_tile_)
    k_.raw("__syncthreads();  // the next turn exchanges through the same memory");
  k_.raw("}");
}

void StagedText::emit_row() {
  k_.add("const bool row_ok = turn * kRows + row < {};", sizes_.number("rows", s_.row_count));
  k_.raw("const Index r = row_ok ? turn * kRows + row : 0;");
  if (!s_.serial_axes.empty()) emit_decode(s_.serial_axes, "r", "r");
}

/// A function that has the loads of a turn's rows on their way; it is called a turn ahead.
void StagedText::emit_fetch() {
  for (std::size_t i = 0; i < loads(); ++i) {
    if (!used_.loads[i]) continue;
    if (!moves_in_row(i)) k_.add("{} in{}_row_next = {{}};", pack_type(i), i);
    if (!is_kept(i)) continue;
    k_.add("{} in{}_next[kSteps];", pack_type(i), i);
    if (is_shifted()) k_.add("Pack<{}, 1> in{}_edge_next;", stored_type(group_.loads[i].dtype), i);
  }
  k_.raw("const auto fetch = [&](Index turn) {");
  emit_row();
  emit_row_bases();
  emit_shift();
  for (std::size_t i = 0; i < loads(); ++i) {
    if (used_.loads[i] && !moves_in_row(i)) emit_row_load(i, "_next");
  }
  emit_held_loads("next[u]", "edge_next");
  k_.raw("};");
  k_.raw("fetch(blockIdx.x);");
}

void StagedText::emit_row_start() {
  emit_row_bases();
  emit_index_bases();
  emit_shift();
  emit_row_loads();
}

void StagedText::emit_shift() {
  if (!is_shifted()) return;
  const std::string inner = inner_extent();
  k_.add("const int head = (int)(-at{}_base & (kVector - 1));  // elements before the first aligned one",
         offset_of_[static_cast<std::size_t>(s_.shifted_like)]);
  k_.add("const Index vectors = ({} - head) / kVector, edges = {} - vectors * kVector;", inner, inner);
  k_.raw("const bool edge_ok = row_ok && lane < edges;");
}

void StagedText::emit_row_bases() {
  for (std::size_t k = 0; k < offsets_.size(); ++k) {
    bool is_used = false;
    for (std::size_t i = 0; i < group_.operands(); ++i) {
      if (offset_of_[i] == k) is_used |= i < loads() ? bool(used_.loads[i]) : is_sink(i - loads(), SinkKind::store);
    }
    if (!is_used) continue;
    k_.add("const Index at{}_base = 0{};  // elements into {}", k,
           offset_terms(fmt::format("at{}", k), offsets_[k], outer_axes()), operands_at(k));
  }
}

// Loads that do not move along the row are read once; held loads are read all at once.
void StagedText::emit_row_loads() {
  bool has_held = false;
  for (std::size_t i = 0; i < loads(); ++i) {
    if (!used_.loads[i]) continue;
    if (is_kept(i)) {
      k_.add("{} in{}_v[kSteps];", pack_type(i), i);
      if (is_shifted()) k_.add("Pack<{}, 1> in{}_edge;", stored_type(group_.loads[i].dtype), i);
      has_held = true;
    }
    if (moves_in_row(i)) continue;
    if (s_.fetches_ahead) {
      k_.add("{0} in{1}_row = in{1}_row_next;", pack_type(i), i);
    } else {
      k_.add("{} in{}_row = {{}};", pack_type(i), i);
      emit_row_load(i, "");
    }
  }
  for (const CarriedValue& value : s_.carried) {
    const std::string_view type = computed_type(group_.expr.dtype_of(value.node));
    k_.add("{} kept{}[kSteps][kVector];", type, value.node);
    if (is_shifted()) k_.add("{} kept{}_edge;", type, value.node);
  }
  if (!has_held) return;
  if (s_.fetches_ahead) {
    for (std::size_t i = 0; i < loads(); ++i) {
      if (!used_.loads[i] || !is_kept(i)) continue;
      k_.raw("#pragma unroll");
      k_.add("for (int u = 0; u < kSteps; ++u) in{0}_v[u] = in{0}_next[u];", i);
      if (is_shifted()) k_.add("in{0}_edge = in{0}_edge_next;", i);
    }
    k_.add("fetch(turn + {});", sizes_.named("ctas"));
  } else {
    emit_held_loads("v[u]", "edge");
  }
}

void StagedText::emit_row_load(std::size_t load, const std::string& suffix) {
  k_.raw("if (row_ok) {");
  emit_load(load, fmt::format("in{}_row{}", load, suffix), is_tile_ ? vector_count() : "kVector");
  k_.raw("}");
}

void StagedText::emit_held_loads(const std::string& suffix, const std::string& edge) {
  emit_steps(true, "");
  for (std::size_t i = 0; i < loads(); ++i) {
    if (used_.loads[i] && is_kept(i)) emit_load(i, fmt::format("in{}_{}", i, suffix), vector_count());
  }
  k_.raw("}");
  k_.raw("}");
  if (!is_shifted()) return;
  begin_edge();
  for (std::size_t i = 0; i < loads(); ++i) {
    if (used_.loads[i] && is_kept(i)) emit_load(i, fmt::format("in{}_{}", i, edge), vector_count());
  }
  end_edge();
}

// In here a vector is one element.
void StagedText::begin_edge() {
  k_.raw("if (edge_ok) {");
  k_.raw("constexpr int kVector = 1;");
  k_.add("const Index x{} = lane < head ? lane : {} - edges + lane;", inner_, inner_extent());
  in_edge_ = true;
}

void StagedText::end_edge() {
  in_edge_ = false;
  k_.raw("}");
}

std::string StagedText::row_end() {
  return is_tile_ ? sizes_.number("length", s_.serial_count) : is_shifted() ? "vectors" : sizes_.named("inner_vectors");
}

/// Opens the loop over a thread's steps along the row, and the condition that a step is in the row.
void StagedText::emit_steps(bool needs_count, const std::string& first, const Pass* pass) {
  k_.raw("#pragma unroll");
  k_.raw("for (int u = 0; u < kSteps; ++u) {");
  const char* walker = is_tile_ ? "row + u * kRows" : "lane + u * kLanes";
  k_.add("const Index {} = {}{};", is_tile_ ? "s" : "q", first, walker);
  if (pass != nullptr) emit_carried_start(*pass);
  k_.add("if (row_ok && {} < {}) {{", is_tile_ ? "s" : "q", row_end());
  emit_loop_coordinates();
  if (needs_count && s_.is_ragged && !is_tile_) emit_count("const int count", "");
}

/// A carried value has one from this step on whether or not the step is in the row: the compiler would otherwise keep a
/// register for it from the kernel's start. It takes that of a load that no later pass reads.
void StagedText::emit_carried_start(const Pass& pass) {
  for (const std::int32_t node : pass.carried) {
    std::string start = "0";
    for (std::size_t i = 0; i < loads(); ++i) {
      const bool fits = is_kept(i) && stride(i, inner_) != 0 && group_.loads[i].dtype == group_.expr.dtype_of(node);
      bool is_read = false;
      for (const Pass* later = &pass + 1; later <= &passes_.back(); ++later) is_read = is_read || later->use.loads[i];
      if (fits && !is_read) start = fmt::format("in{}_v[u].get(v)", i);
    }
    k_.raw("#pragma unroll");
    k_.add("for (int v = 0; v < kVector; ++v) kept{}[u][v] = {};", node, start);
  }
}

std::string StagedText::step_offset(std::size_t operand) {
  const std::size_t k = offset_of_[operand];
  return fmt::format("at{}_base{}", k, offset_terms(fmt::format("at{}", k), offsets_[k], loop_axes()));
}

void StagedText::emit_load(std::size_t load, const std::string& pack, const std::string& count) {
  emit_move(load, false, pack, moves_in_row(load) ? step_offset(load) : fmt::format("at{}_base", offset_of_[load]),
            count);
}

}  // namespace paoding::gpu
