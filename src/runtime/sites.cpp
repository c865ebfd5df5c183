// SPDX-License-Identifier: Apache-2.0
#include "runtime/sites.h"

#include <fmt/format.h>

#include "ops/matmul/matmul_shape.h"

namespace paoding {

std::int64_t bytes_of(const Step& step) {
  if (step.kind == Step::Kind::group) return step.group.min_bytes();
  std::int64_t bytes = 0;
  for (const Operand& operand : step.operands) bytes += size_bytes(operand.layout.type);
  return bytes;
}

StepSites sites_of(const Step& step, std::int64_t instance) {
  profile::SiteInfo info;
  info.name = step.label.op;
  info.op = step.label.op;
  info.scope = step.label.scope;
  info.instance = step.position >= 0 ? fmt::format("{}{}", step.label.op, step.position) : "";
  if (instance > 0) info.instance += fmt::format("@{}", instance);
  info.kind = profile::SpanKind::op;
  info.bytes = bytes_of(step);
  if (step.kind == Step::Kind::kernel && step.call.op->name == "matmul") {
    const MatmulShape shape(step.call);
    double batches = 1;
    for (std::int64_t extent : shape.batch) batches *= static_cast<double>(extent);
    info.flops =
        2 * batches * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  }
  // Every member walks over the group's space; what it reads and writes there is its share of the time.
  for (const std::string& member : step.label.members) {
    info.members.push_back({member, std::max<std::int64_t>(step.group.points(), 1) * 4});
  }
  StepSites sites{};
  sites.op = profile::Recorder::add_site(info);
  info.kind = profile::SpanKind::compute;
  sites.compute = profile::Recorder::add_site(info);
  info.kind = profile::SpanKind::kernel;
  sites.kernel = profile::Recorder::add_site(info);
  return sites;
}

}  // namespace paoding
