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

namespace {

// Every member walks over the group's space; what it reads and writes there is its share of the time.
void add_members(const Step& step, profile::SiteInfo* info) {
  const std::int64_t bytes = std::max<std::int64_t>(step.group.points(), 1) * 4;
  for (const std::string& member : step.label.members) info->members.push_back({member, bytes});
}

StepSites registered(profile::SiteInfo info) {
  StepSites sites{};
  sites.op = profile::Recorder::add_site(info);
  info.kind = profile::SpanKind::compute;
  sites.compute = profile::Recorder::add_site(info);
  info.kind = profile::SpanKind::kernel;
  sites.kernel = profile::Recorder::add_site(info);
  return sites;
}

}  // namespace

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
  add_members(step, &info);
  return registered(std::move(info));
}

StepSites sites_of_batch(const std::vector<const Step*>& groups) {
  profile::SiteInfo info;
  info.name = info.op = fmt::format("{} groups", groups.size());
  info.instance = fmt::format("{}{}", info.op, groups[0]->position);
  info.scope = groups[0]->label.scope;
  info.kind = profile::SpanKind::op;
  for (const Step* group : groups) {
    // The scope that they have in common.
    while (!info.scope.empty() && info.scope != group->label.scope &&
           !group->label.scope.starts_with(info.scope + "/")) {
      const std::size_t end = info.scope.rfind('/');
      info.scope.resize(end == std::string::npos ? 0 : end);
    }
    info.bytes += bytes_of(*group);
    add_members(*group, &info);
    if (group->label.members.empty()) info.members.push_back({group->label.op, group->group.points() * 4});
  }
  return registered(std::move(info));
}

}  // namespace paoding
