// SPDX-License-Identifier: Apache-2.0
#include "plan/step_work.h"

#include <algorithm>

#include "ops/matmul/matmul_shape.h"

namespace paoding {

std::int64_t bytes_of(const Step& step) {
  if (step.kind == Step::Kind::group) return step.group.min_bytes();
  std::int64_t bytes = 0;
  for (const Operand& operand : step.operands) bytes += size_bytes(operand.layout.type);
  return bytes;
}

double flops_of(const Step& step) {
  if (step.kind != Step::Kind::kernel || step.call.op->name != "matmul") return 0;
  const MatmulShape shape(step.call);
  double batches = 1;
  for (std::int64_t extent : shape.batch) batches *= static_cast<double>(extent);
  return 2 * batches * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
}

// Groups stream, products are bound by their multiplications; the work of other kernels is not known, and may be a
// sort.
double expected_us(const Step& step, const Target& target) {
  constexpr double kLeastUs = 5;  // of a launch, with the wait for the one in front
  constexpr double kFlopsPerUs = 1e8, kSlow = 2, kUnknown = 50;
  double inside_us = 0;
  for (const std::vector<Step>* body : step.bodies()) {
    for (const Step& inner : *body) inside_us += expected_us(inner, target);
  }
  if (step.kind == Step::Kind::loop) return inside_us * static_cast<double>(step.length);
  if (step.kind != Step::Kind::group && step.kind != Step::Kind::kernel) return kLeastUs + inside_us;
  const double streamed_us = target.stream_us(static_cast<double>(bytes_of(step)), 0), flops = flops_of(step);
  const bool is_known = step.kind == Step::Kind::group || flops != 0;
  return std::max({kLeastUs, flops / kFlopsPerUs, (is_known ? kSlow : kUnknown) * streamed_us});
}

bool is_long_run(const std::vector<Step>& steps, const Target& target) {
  double us = 0;
  for (const Step& step : steps) us += expected_us(step, target);
  return us > kLongRunUs || count_launches(steps) > kManyLaunches;
}

}  // namespace paoding
