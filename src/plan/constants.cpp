// SPDX-License-Identifier: Apache-2.0
// Constants: values that are there before the first run. They keep their memory, as an input does, and are written
// once, when the program is made.
#include <algorithm>
#include <cmath>

#include "group/lower.h"
#include "ops/views.h"
#include "plan/planner.h"

namespace paoding {
namespace {

// A generated value that must lie in memory, for a kernel or a fetch, is one too (with alias_views), where it takes
// little: a constant shares its memory with nothing.
constexpr std::int64_t kMostConstantBytes = 64 << 10;  // of a value
constexpr std::int64_t kMostTogether = 256 << 10;      // of those of a plan
constexpr std::int64_t kTimesOnGpu = 4;                // where making it costs a launch

// Nothing if kernels might compute other bits.
std::optional<Tensor> tensor_of(const Node& generated) {
  const Type& type = generated.types[0];
  std::vector<double> values(static_cast<std::size_t>(type.shape.elements()));
  const bool is_of_one_value = generated.op->is_uniform && !values.empty();
  const Type computed{type.dtype, is_of_one_value ? Shape() : type.shape};
  run_reference(lower_generated(generated, Layout::dense(computed)), {values.data()});
  if (is_of_one_value) std::ranges::fill(values, values[0]);
  const auto is_exact = [](double value) { return std::fabs(value) <= 0x1p24 && value == std::floor(value); };
  const bool is_any_value_exact = is_of_one_value && is_float(type.dtype);
  if (!is_any_value_exact && !std::ranges::all_of(values, is_exact)) return std::nullopt;
  return Tensor::from(type.dtype, type.shape, values);
}

}  // namespace

Operand Planner::constant_operand(const Node& node, Tensor value) {
  const Type type = value.type();
  const int slot = new_slot(SlotKind::input, node.title(), size_bytes(type));
  plan_.constants.emplace_back(slot, std::move(value));
  return {slot, 0, {}, Layout::dense(type)};
}

void Planner::plan_constant(Frame& frame, NodeId id) {
  const Node& node = frame.graph.node(id);
  frame.places[{id, 0}] = constant_operand(node, constant_tensor(node));
}

std::optional<Operand> Planner::made_constant(const Node& node) {
  if (!is_generated(node) || !options_.alias_views) return std::nullopt;
  const std::int64_t bytes = size_bytes(node.types[0]);
  const std::int64_t times = options_.target->is_gpu() ? kTimesOnGpu : 1;
  const bool is_little = bytes <= times * kMostConstantBytes && constant_bytes_ + bytes <= times * kMostTogether;
  if (bytes == 0 || !is_little) return std::nullopt;
  std::optional<Tensor> value = tensor_of(node);
  if (!value) return std::nullopt;
  constant_bytes_ += bytes;
  return constant_operand(node, *std::move(value));
}

bool Planner::is_constant(const Operand& operand) const {
  return std::ranges::any_of(plan_.constants, [&](const auto& constant) { return constant.first == operand.slot; });
}

}  // namespace paoding
