// SPDX-License-Identifier: Apache-2.0
// Emits the results that are written once per row, and those that are combined over all rows.
#include "gpu/codegen/staged_text.h"

namespace paoding::gpu {

/// Emits the outputs that have one element per row.
void StagedText::emit_rows(const Pass& pass) {
  std::vector<std::size_t> combined;
  for (const std::size_t o : pass.outputs) {
    if (s_.sinks[o] == SinkKind::row) combined.push_back(o);
  }
  if (combined.empty() && once_.outputs.empty()) return;
  k_.add("if (row_ok && {} == 0) {{", is_tile_ ? "row" : "lane");
  std::vector<int> axes = is_tile_ ? std::vector<int>{} : s_.serial_axes;
  std::string at;
  if (is_tile_) {
    k_.raw("const Index first_x = x" + std::to_string(inner_) + ";");
    k_.raw("#pragma unroll");
    k_.raw("for (int v = 0; v < kVector; ++v) {");
    if (s_.is_ragged) k_.raw("if (v >= count) continue;");
  }
  std::string call = arguments(once_, once_.use, false);
  for (const FormulaResult& result : once_.results) {
    k_.add("{} {}_value;", computed_type(group_.expr.dtype_of(result.value)), result.name);
    call += fmt::format("{}{}_value", call.empty() ? "" : ", ", result.name);
  }
  if (!once_.outputs.empty()) k_.add("{}({});", once_.formula, call);
  if (is_tile_) {
    k_.add("const Index x{} = first_x + v;", inner_);
    axes = {inner_};
  }
  for (const std::size_t o : once_.outputs) emit_final_store(o, axes, fmt::format("out{}_value", o), "0");
  for (const std::size_t o : combined) emit_final_store(o, axes, fmt::format("out{}_row{}", o, element()), "0");
  if (is_tile_) k_.raw("}");
  k_.raw("}");
}

// ---- After the turns: results over all rows ----

void StagedText::emit_across_rows() {
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
    if (is_sink(o, SinkKind::total)) {
      k_.add("out{0}_sum = combine_threads<{1}, kThreads>(out{0}_sum, shared);", o, op(o));
      k_.add("if (threadIdx.x == 0) out{0}_partial[blockIdx.x] = out{0}_sum;", o);
    }
    if (!is_sink(o, SinkKind::column) || !s_.holds_rows) continue;
    k_.raw("#pragma unroll");
    k_.raw("for (int u = 0; u < kSteps; ++u) {");
    k_.add("combine_columns<{}, kLanes, kRows>(out{}_sum[u], shared);", op(o), o);
    k_.raw("for (int c = threadIdx.x; c < kLanes * kVector; c += kThreads) {");
    k_.add("out{0}_partial[blockIdx.x * out{0}_tile + u * (kLanes * kVector) + c] = (({1}*)shared)[c];", o,
           sum_type(o));
    k_.raw("}");
    k_.raw("}");
  }
}

// The last CTA of a bundle combines the bundle's partial results, the last of those CTAs the bundles'.
void StagedText::emit_partials() {
  std::vector<std::size_t> across;
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
    if (is_across_rows(o)) across.push_back(o);
  }
  if (across.empty()) return;
  const std::int64_t bundles = (s_.ctas + bundle() - 1) / bundle();
  const std::string ctas = sizes_.wide_number("ctas", s_.ctas), count = sizes_.wide_number("bundles", bundles);
  ticket_count_ = bundles + 1;
  const std::string each = sizes_.number("bundle", bundle());
  k_.add("const long long bundle = blockIdx.x / {};", each);
  k_.add("const int members = {0} - bundle * {1} < {1} ? (int)({0} - bundle * {1}) : (int){1};", ctas, each);
  k_.raw("if (!is_last_arriver(scratch.tickets + 1 + bundle, (unsigned)members)) return;");
  const auto for_each_vector = [&](std::size_t o) {
    k_.add("for (long long e = threadIdx.x * {0}; e < out{1}_tile; e += kThreads * {0}) {{", partial_vector(o), o);
    k_.add("{} sum[{}];", sum_type(o), partial_vector(o));
  };
  const auto for_each_of_it = [&](std::size_t o) {
    k_.raw("#pragma unroll");
    k_.add("for (int i = 0; i < {}; ++i) {{", partial_vector(o));
  };
  for (const std::size_t o : across) {
    k_.add("{}* const out{}_bundles = out{}_partial + {} * out{}_tile;", sum_type(o), o, o, ctas, o);
    for_each_vector(o);
    k_.add("fold_parts<{}>(sum, out{}_partial + bundle * {} * out{}_tile + e, members, out{}_tile);", op(o), o, each, o,
           o);
    for_each_of_it(o);
    k_.add("out{0}_bundles[bundle * out{0}_tile + e + i] = sum[i];", o);
    k_.raw("}");
    k_.raw("}");
  }
  k_.add("if (!is_last_arriver(scratch.tickets, (unsigned){})) return;", count);
  for (const std::size_t o : across) {
    for_each_vector(o);
    k_.add("fold_parts<{}>(sum, out{}_bundles + e, (int){}, out{}_tile);", op(o), o, count, o);
    for_each_of_it(o);
    if (is_sink(o, SinkKind::total)) {
      emit_final_store(o, {}, "sum[i]", "0");
    } else {
      k_.raw("const Index q = (Index)((e + i) / kVector);");
      k_.add("if (q < {}) {{", sizes_.named("inner_vectors"));
      emit_loop_coordinates();
      k_.add("const Index column = x{} + (Index)((e + i) % kVector);", inner_);
      k_.add("if (column < {}) {{", inner_extent());
      k_.add("const Index x{} = column;", inner_);
      emit_final_store(o, s_.inner_axes, "sum[i]", "0");
      k_.raw("}");
      k_.raw("}");
    }
    k_.raw("}");
    k_.raw("}");
  }
}

std::int64_t StagedText::partial_elements(std::size_t o) const {
  return s_.sinks[o] == SinkKind::total ? 1
         : s_.holds_rows                ? std::int64_t{s_.steps} * s_.lanes * s_.vector
                                        : s_.inner_vectors * s_.vector;
}

/// Elements of a partial result that are read at once, 16 bytes at most. It depends on the shape class alone.
int StagedText::partial_vector(std::size_t o) const {
  const std::int64_t unit = s_.sinks[o] == SinkKind::total ? 1
                            : s_.holds_rows                ? std::int64_t{s_.steps} * s_.lanes * s_.vector
                                                           : s_.vector;
  int vector = static_cast<int>(16 / sum_bytes(o));
  while (unit % vector != 0) vector /= 2;
  return vector;
}

std::int64_t StagedText::bundle() const {
  std::int64_t root = 1;
  while (root * root < s_.ctas) ++root;
  return root;
}

}  // namespace paoding::gpu
