// SPDX-License-Identifier: Apache-2.0
#include "plan/step_cost.h"

#include <algorithm>
#include <cmath>

#include "ops/conv/conv_shape.h"
#include "plan/step_work.h"
#include "scalar/primitive.h"

namespace paoding {

namespace {

std::int64_t bytes_of(const Layout& layout) { return size_bytes(layout.type); }
double elements_of(const Layout& layout) { return static_cast<double>(layout.type.shape.elements()); }

// Every operation of the formula at every point, and an addition for what is reduced.
double flops_of(const Group& group) {
  double per_point = 0;
  for (const ExprNode& node : group.expr.nodes()) {
    const PrimRule rule = primitive(node.prim).rule;
    if (rule != PrimRule::leaf && rule != PrimRule::convert) per_point += 1;
  }
  per_point += static_cast<double>(group.reductions.size());
  for (const GroupOutput& output : group.outputs) per_point += output.reduce_mask != 0 ? 1 : 0;
  return per_point * static_cast<double>(group.points());
}

// Rows of a times k times columns.
double packed_product(const KernelCall& call) {
  const Shape& y = call.outputs[0].type.shape;
  if (y.elements() == 0) return 0;
  const double rows = static_cast<double>(y.elements()) / static_cast<double>(y[y.rank() - 1]);
  return 2 * elements_of(call.outputs[0]) * elements_of(call.inputs[0]) / rows;
}

bool is_gradient(std::string_view name) { return name.ends_with("_grad"); }

// A product with the weights in every step, of every row.
double recurrence(const KernelCall& call) {
  const std::size_t weights_at = is_gradient(call.op->name) ? 0 : 1;
  const Layout &weights = call.inputs[weights_at], &steps = call.inputs[1 - weights_at];
  const Shape& shape = steps.type.shape;
  if (shape.elements() == 0) return 0;
  return 2 * elements_of(weights) * elements_of(steps) / static_cast<double>(shape[shape.rank() - 1]);
}

bool is_recurrence(std::string_view name) {
  return name.ends_with("_recurrence") || name.ends_with("_recurrence_grad");
}

bool is_product(std::string_view name) {
  return name.starts_with("matmul") || name.starts_with("conv2d") || is_recurrence(name);
}

double flops_of(const KernelCall& call) {
  const std::string_view name = call.op->name;
  if (is_recurrence(name)) return recurrence(call);
  if (name.starts_with("conv2d")) return 2 * static_cast<double>(ConvShape(call).products());
  if (name == "matmul_packed") return packed_product(call);
  if (name.find("gather") != name.npos || name == "pack_weights" || name.starts_with("copy")) return 0;
  const double in = call.inputs.empty() ? 0 : elements_of(call.inputs[0]);
  if (name.find("sort") != name.npos || name == "topk") return in * std::log2(std::max(in, 2.0));
  double all = in;  // sums, pools, scatters: about one operation for what is read or written, whichever is more
  for (const Layout& output : call.outputs) all = std::max(all, elements_of(output));
  return all;
}

// What is no product is done in f32 or f64, whatever it is stored as.
Unit unit_of(const Step& step) {
  const bool multiplies = step.kind == Step::Kind::kernel && is_product(step.call.op->name);
  const std::size_t factor =
      multiplies && is_recurrence(step.call.op->name) && !is_gradient(step.call.op->name) ? 1 : 0;
  if (step.operands.size() <= factor) return Unit::none;
  const DType dtype = step.operands[factor].layout.type.dtype;
  if (multiplies) return paoding::unit_of(dtype, step.call.allow_tf32);
  return dtype == DType::f64 ? Unit::f64 : Unit::f32;
}

}  // namespace

StepCost cost_of(const Step& step) {
  if (step.kind == Step::Kind::group) return {step.group.min_bytes(), flops_of(step.group), unit_of(step)};
  StepCost cost{bytes_of(step), flops_of(step)};
  if (step.kind != Step::Kind::kernel) return {cost.bytes, 0};
  const std::string_view name = step.call.op->name;
  if (name.starts_with("gather") && step.call.inputs.size() > 1) {
    cost.bytes = bytes_of(step.call.inputs[1]) + 2 * bytes_of(step.call.outputs[0]);
  }
  if (name != "matmul") cost.flops = flops_of(step.call);
  if (cost.flops > 0) cost.unit = unit_of(step);
  return cost;
}

}  // namespace paoding
