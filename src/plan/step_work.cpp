// SPDX-License-Identifier: Apache-2.0
#include "plan/step_work.h"

#include <algorithm>

namespace paoding {

OpCost cost_of(const KernelCall& call) {
  std::vector<Type> inputs, outputs;
  for (const Layout& layout : call.inputs) inputs.push_back(layout.type);
  for (const Layout& layout : call.outputs) outputs.push_back(layout.type);
  if (call.op->cost) return call.op->cost({inputs, outputs, call.attrs});
  // Pools, scatters: about one operation for each element that is read or written, whichever are more.
  const auto elements = [](const Type& type) { return static_cast<double>(type.shape.elements()); };
  OpCost cost{.flops = inputs.empty() ? 0 : elements(inputs[0])};
  for (const Type& type : outputs) cost.flops = std::max(cost.flops, elements(type));
  return cost;
}

std::int64_t bytes_of(const Step& step) {
  if (step.kind == Step::Kind::group) return step.group.min_bytes();
  if (step.kind == Step::Kind::kernel) {
    if (const std::int64_t bytes = cost_of(step.call).bytes; bytes >= 0) return bytes;
  }
  std::int64_t bytes = 0;
  for (const Operand& operand : step.operands) bytes += size_bytes(operand.layout.type);
  return bytes;
}

// Groups stream. Of a kernel the time follows from its cost only where its op says so: it may be a sort.
double expected_us(const Step& step, const Target& target) {
  constexpr double kLeastUs =
      5;  // of a launch, with the wait for the one in front, or of a step that waits for another
  constexpr double kFlopsPerUs = 1e8, kSlow = 2, kUnknown = 50;
  double inside_us = 0;
  for (const std::vector<Step>* body : step.bodies()) {
    for (const Step& inner : *body) inside_us += expected_us(inner, target);
  }
  if (step.kind == Step::Kind::loop) return inside_us * static_cast<double>(step.length);
  if (step.kind != Step::Kind::group && step.kind != Step::Kind::kernel) return kLeastUs + inside_us;
  const double streamed_us = target.stream_us(static_cast<double>(bytes_of(step)), 0);
  if (step.kind == Step::Kind::group) return std::max(kLeastUs, kSlow * streamed_us);
  const OpCost cost = cost_of(step.call);
  if (!cost.bounds_time) return std::max(kLeastUs, kUnknown * streamed_us);
  return std::max({kLeastUs * static_cast<double>(cost.serial_steps), cost.flops / kFlopsPerUs, kSlow * streamed_us});
}

bool is_long_run(const std::vector<Step>& steps, const Target& target) {
  double us = 0;
  for (const Step& step : steps) us += expected_us(step, target);
  return us > kLongRunUs || count_launches(steps) > kManyLaunches;
}

}  // namespace paoding
