// SPDX-License-Identifier: Apache-2.0
#include "findings/own_work.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "findings/hlo_work.h"
#include "findings/kernel_work.h"
#include "paoding/op.h"

namespace paoding::findings {

using namespace profile;

namespace {

using enum KernelKind;

struct OwnOp {
  std::string_view name;
  KernelKind kind;
};

// Ops with kernels of their own, and steps that the planner adds. Formulas, reductions and views say so themselves.
constexpr auto kOwnOps = std::to_array<OwnOp>({
    {"matmul", product},
    {"matmul_wide", product},
    {"matmul_packed", product},
    {"conv2d", convolution},
    {"conv2d_add", convolution},
    {"conv2d_bias", convolution},
    {"conv2d_grad_input", convolution},
    {"conv2d_grad_weight", convolution},
    {"conv2d_grad_weight_wide", convolution},
    {"conv2d_pool", convolution},
    {"conv2d_pool_grad_input", convolution},
    {"conv2d_pool_grad_weight", convolution},
    {"attention", attention},
    {"attention_grad", attention},
    {"lstm_recurrence", recurrence},
    {"gru_recurrence", recurrence},
    {"rnn_recurrence", recurrence},
    {"lstm_recurrence_grad", recurrence},
    {"gru_recurrence_grad", recurrence},
    {"rnn_recurrence_grad", recurrence},
    {"gather", gather},
    {"gather_elements", gather},
    {"scatter_add", gather},
    {"scatter_add_elements", gather},
    {"scatter_add_sorted", gather},
    {"max_pool2d", pooling},
    {"max_pool2d_grad", pooling},
    {"max_pool2d_pick", pooling},
    {"avg_pool2d", pooling},
    {"avg_pool2d_grad", pooling},
    {"sort", sort},
    {"topk", sort},
    {"cumsum", sort},
    {"pack_weights", layout},
    {"copy_transposed", layout},
    {"fill", fill},
    {"full", fill},
    {"iota", fill},
    {"cast", cast},
    {"store_as", cast},
});

// "matmul" of "lstm_cell_grad/matmul".
std::string_view op_of_label(std::string_view label) { return label.substr(label.rfind('/') + 1); }

KernelKind kind_of_label(std::string_view label) {
  const std::string_view op = op_of_label(label);
  const auto known = std::ranges::find(kOwnOps, op, &OwnOp::name);
  if (known != kOwnOps.end()) return known->kind;
  if (op.starts_with("copy_") || op.starts_with("scan_")) return layout;
  const OpDef* const found = find_op(op);
  if (found == nullptr) return other;
  switch (found->kind) {
    case OpKind::formula: return pointwise;
    case OpKind::reduction: return reduction;
    case OpKind::view: return layout;
    default: return other;
  }
}

// How many groups run together, by the label "4 groups"; 1 of others.
std::size_t groups_together(std::string_view label) {
  std::size_t count = 1;
  const auto [end, problem] = std::from_chars(label.data(), label.data() + label.size(), count);
  const bool is_batch = problem == std::errc{} && std::string_view(end, label.data() + label.size()) == " groups";
  return is_batch ? count : 1;
}

// Formulas and reductions of one operation on each element: their operations are their elements.
bool is_one_operation(std::string_view label) {
  static constexpr auto kNames = std::to_array<std::string_view>(
      {"add",     "sub", "mul", "div",     "maximum", "minimum", "exp",    "log", "sqrt", "rsqrt", "tanh",
       "sigmoid", "neg", "abs", "greater", "less",    "equal",   "select", "sum", "max",  "min"});
  return std::ranges::find(kNames, op_of_label(label)) != kNames.end();
}

std::size_t member_count(const Site& site) { return site.members_end - site.members_begin; }

}  // namespace

// A group that reduces is one of a reduction, whatever else it does; one that computes nothing moves.
KernelKind own_kind(const Trace& trace, const Site& site) {
  if (member_count(site) == 0) return kind_of_label(trace.text(site.op));
  std::array<std::size_t, kKernelKinds> count{};
  for (auto m = site.members_begin; m < site.members_end; ++m) {
    ++count[static_cast<std::size_t>(kind_of_label(trace.text(trace.members()[m].op)))];
  }
  for (const KernelKind kind :
       {convolution, product, attention, recurrence, reduction, pointwise, cast, layout, fill}) {
    if (count[static_cast<std::size_t>(kind)] > 0) return kind;
  }
  return other;
}

OpWork own_work(const Trace& trace, const Site& site) {
  const double flops = sound_flops(site.flops);
  const KernelKind kind = own_kind(trace, site);
  const std::string_view shapes = trace.text(site.shapes), label = trace.text(site.op);
  if (shapes.empty()) {
    OpWork work;
    work.flops = flops;
    work.unit = site.unit;
    if ((kind == pointwise || kind == reduction) && member_count(site) <= 1 && is_one_operation(label)) {
      work.elements = static_cast<std::int64_t>(std::min(flops, 1e15));
    }
    return work;
  }
  OpWork work = work_of_hlo(shapes, kind, flops);
  work.unit = site.unit;
  if (!work.product) return work;
  const HloShapes all = operands_of_hlo(shapes);
  if (all.inputs.size() < 2) return work;
  // A factor that all of the batch have in common is there once: they are the rows of one product.
  ProductShape& shape = *work.product;
  if (shape.batch > 1 && all.inputs[1].elements() == shape.k * shape.n) shape.m *= std::exchange(shape.batch, 1);
  const auto is_aligned = [](const OperandShape& one) { return one.row_apart() * one.element_bytes % 16 == 0; };
  work.has_aligned_rows = is_aligned(all.inputs[0]) && is_aligned(all.inputs[1]) && is_aligned(all.results.front());
  return work;
}

void find_sizes_of_casts(const Trace& trace, std::vector<KernelWork>* kernels) {
  constexpr std::int64_t kMoved = 6;
  const auto follow = [&](const KernelWork& known, KernelWork* one) {
    const bool is_beside = known.step == one->step && trace.track_id(known.span) == trace.track_id(one->span);
    if (!is_beside || one->kind != cast || one->elements > 0 || known.elements <= 0) return;
    if (one->bytes == kMoved * known.elements) one->elements = known.elements, one->element_bytes = 2;
  };
  for (std::size_t i = 1; i < kernels->size(); ++i) follow((*kernels)[i - 1], &(*kernels)[i]);
  for (std::size_t i = kernels->size(); i-- > 1;) follow((*kernels)[i], &(*kernels)[i - 1]);
}

Arithmetic own_arithmetic(Unit unit) {
  switch (unit) {
    case Unit::f64:
    case Unit::f32: return {Arithmetic::By::ordinary_lanes, unit};
    case Unit::tf32:
    case Unit::half: return {Arithmetic::By::tensor_cores, unit};
    case Unit::none: break;
  }
  return {};
}

bool is_fused(const Trace& trace, const Site& site) {
  return member_count(site) > groups_together(trace.text(site.op));
}

bool is_copied_view(const Trace& trace, const Site& site) {
  const auto is_view = [&](StringId label) {
    const OpDef* const found = find_op(op_of_label(trace.text(label)));
    if (found == nullptr || found->kind != OpKind::view) return false;
    // A step without shapes does not tell padding of products from other padding.
    return found->role != OpRole::concatenate || (site.shapes != 0 && !is_alignment(trace, site));
  };
  if (member_count(site) == 0) return is_view(site.op);
  for (auto m = site.members_begin; m < site.members_end; ++m) {
    if (!is_view(trace.members()[m].op)) return false;
  }
  return true;
}

bool is_of_simple_operations(const Trace& trace, const Site& site) {
  static constexpr auto kNames = std::to_array<std::string_view>(
      {"add",     "add_n",         "sub",  "mul",        "maximum", "minimum",   "neg",     "abs",
       "greater", "greater_equal", "less", "less_equal", "equal",   "not_equal", "select",  "relu",
       "clamp",   "square",        "sum",  "max",        "min",     "cast",      "store_as"});
  const auto is_simple = [&](std::string_view label) {
    const KernelKind kind = kind_of_label(label);
    return kind == layout || kind == fill || kind == gather ||
           std::ranges::find(kNames, op_of_label(label)) != kNames.end();
  };
  if (member_count(site) == 0) return is_simple(trace.text(site.op));
  for (auto m = site.members_begin; m < site.members_end; ++m) {
    if (!is_simple(trace.text(trace.members()[m].op))) return false;
  }
  return true;
}

bool is_alignment(const Trace& trace, const Site& site) {
  const OpDef* const found = find_op(op_of_label(trace.text(site.op)));
  if (found == nullptr || found->role != OpRole::concatenate) return false;
  const HloShapes all = operands_of_hlo(trace.text(site.shapes));
  if (all.inputs.size() != 1 || all.results.size() != 1) return false;
  const OperandShape &from = all.inputs.front(), &to = all.results.front();
  if (from.element_bytes <= 0 || from.element_bytes != to.element_bytes) return false;
  const std::int64_t step = std::max(1, 16 / from.element_bytes);
  const auto rounded = [&](std::int64_t extent) { return (extent + step - 1) / step * step; };
  // Its step copies the factor alone, between rows of zeros.
  return from.row() % step != 0 && to.row() == from.row() && to.row_apart() == rounded(from.row());
}

}  // namespace paoding::findings
