// SPDX-License-Identifier: Apache-2.0
#include "plan/step_cost.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "ops/conv/conv_shape.h"
#include "plan/step_work.h"
#include "scalar/primitive.h"

namespace paoding {

namespace {

std::int64_t bytes_of(const Layout& layout) { return size_bytes(layout.type); }
double elements_of(const Layout& layout) { return static_cast<double>(layout.type.shape.elements()); }

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

// Rows of a times k times columns.
double packed_product(const KernelCall& call) {
  const Shape& y = call.outputs[0].type.shape;
  if (y.elements() == 0) return 0;
  const double rows = static_cast<double>(y.elements()) / static_cast<double>(y[y.rank() - 1]);
  return 2 * elements_of(call.outputs[0]) * elements_of(call.inputs[0]) / rows;
}

// Kernels whose cost is known, by the whole names of the library's ops: a user's op has a name of its own, which may
// begin or end as one of these does.
enum class Known : std::uint8_t {
  other,
  matmul,
  packed_matmul,
  convolution,
  recurrence,
  recurrence_grad,
  gather,
  move,
  sort
};
Known known(std::string_view op) {
  static const std::map<std::string_view, Known> kOps = {
      {"matmul", Known::matmul},
      {"matmul_wide", Known::matmul},
      {"matmul_packed", Known::packed_matmul},
      {"conv2d", Known::convolution},
      {"conv2d_add", Known::convolution},
      {"conv2d_bias", Known::convolution},
      {"conv2d_grad_input", Known::convolution},
      {"conv2d_grad_weight", Known::convolution},
      {"conv2d_grad_weight_wide", Known::convolution},
      {"conv2d_pool", Known::convolution},
      {"conv2d_pool_grad_input", Known::convolution},
      {"conv2d_pool_grad_weight", Known::convolution},
      {"lstm_recurrence", Known::recurrence},
      {"gru_recurrence", Known::recurrence},
      {"rnn_recurrence", Known::recurrence},
      {"lstm_recurrence_grad", Known::recurrence_grad},
      {"gru_recurrence_grad", Known::recurrence_grad},
      {"rnn_recurrence_grad", Known::recurrence_grad},
      {"gather", Known::gather},
      {"gather_elements", Known::gather},
      {"pack_weights", Known::move},
      {"sort", Known::sort},
      {"topk", Known::sort},
  };
  const auto found = kOps.find(op);
  return found == kOps.end() ? Known::other : found->second;
}

bool is_product(Known op) { return Known::matmul <= op && op <= Known::recurrence_grad; }

// A product with the weights in every step, of every row.
double recurrence(const KernelCall& call, std::size_t weights_at) {
  const Layout &weights = call.inputs[weights_at], &steps = call.inputs[1 - weights_at];
  const Shape& shape = steps.type.shape;
  if (shape.elements() == 0) return 0;
  return 2 * elements_of(weights) * elements_of(steps) / static_cast<double>(shape[shape.rank() - 1]);
}

double flops_of(const KernelCall& call) {
  const Known op = known(call.op->name);
  switch (op) {
    case Known::recurrence: return recurrence(call, 1);
    case Known::recurrence_grad: return recurrence(call, 0);
    case Known::convolution: return 2 * static_cast<double>(ConvShape(call).products());
    case Known::packed_matmul: return packed_product(call);
    case Known::gather:
    case Known::move: return 0;
    default: break;
  }
  const double in = call.inputs.empty() ? 0 : elements_of(call.inputs[0]);
  if (op == Known::sort) return in * std::log2(std::max(in, 2.0));
  double all = in;  // sums, pools, scatters: about one operation per element read or written, whichever are more
  for (const Layout& output : call.outputs) all = std::max(all, elements_of(output));
  return all;
}

// Kernels other than products compute in f32 or f64, whatever dtype is stored.
Unit unit_of(const Step& step) {
  const Known op = step.kind == Step::Kind::kernel ? known(step.call.op->name) : Known::other;
  const std::size_t factor = op == Known::recurrence ? 1 : 0;
  if (step.operands.size() <= factor) return Unit::none;
  const DType dtype = step.operands[factor].layout.type.dtype;
  if (is_product(op)) return paoding::unit_of(dtype, step.call.allow_tf32);
  return dtype == DType::f64 ? Unit::f64 : Unit::f32;
}

}  // namespace

StepCost cost_of(const Step& step) {
  if (step.kind == Step::Kind::group) return {step.group.min_bytes(), flops_of(step.group), unit_of(step)};
  StepCost cost{bytes_of(step), flops_of(step)};
  if (step.kind != Step::Kind::kernel) return {cost.bytes, 0};
  if (known(step.call.op->name) == Known::gather) {
    cost.bytes = bytes_of(step.call.inputs[1]) + 2 * bytes_of(step.call.outputs[0]);
  }
  if (step.call.op->name != "matmul") cost.flops = flops_of(step.call);
  if (cost.flops > 0) cost.unit = unit_of(step);
  return cost;
}

}  // namespace paoding
