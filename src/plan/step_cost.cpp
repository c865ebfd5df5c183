// SPDX-License-Identifier: Apache-2.0
#include "plan/step_cost.h"

#include "plan/step_work.h"
#include "scalar/primitive.h"

namespace paoding {

namespace {

// Every operation of the formula at every point, and an addition for each reduced element.
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

// Kernels compute in f32 or f64, whatever dtype is stored; products in that of their factors.
Unit unit_of(const Step& step, const OpCost& cost) {
  if (step.operands.size() <= cost.factor) return Unit::none;
  const DType dtype = step.operands[cost.factor].layout.type.dtype;
  if (cost.is_product) return paoding::unit_of(dtype, step.call.allow_tf32);
  return dtype == DType::f64 ? Unit::f64 : Unit::f32;
}

}  // namespace

StepCost cost_of(const Step& step) {
  if (step.kind == Step::Kind::group) return {bytes_of(step), flops_of(step.group), unit_of(step, {})};
  StepCost cost{bytes_of(step), 0};
  if (step.kind != Step::Kind::kernel) return cost;
  const OpCost of_op = cost_of(step.call);
  cost.flops = of_op.flops;
  if (cost.flops > 0) cost.unit = unit_of(step, of_op);
  return cost;
}

}  // namespace paoding
