// SPDX-License-Identifier: Apache-2.0
#include "runtime/sites.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/step_cost.h"
#include "plan/step_shapes.h"

namespace paoding {

namespace {

// A member's share of the time is that of the bytes that it would read and write alone.
void add_members(const Step& step, profile::SiteInfo* info) {
  for (std::size_t i = 0; i < step.label.members.size(); ++i) {
    info->members.push_back({step.label.members[i], step.label.member_bytes[i]});
  }
}

profile::SiteInfo info_of(const Step& step) {
  profile::SiteInfo info;
  info.name = step.label.op;
  info.op = step.label.op;
  info.scope = step.label.scope;
  info.instance = step.position >= 0 ? fmt::format("{}{}", step.label.op, step.position) : "";
  info.kind = profile::SpanKind::op;
  const StepCost cost = cost_of(step);
  info.bytes = cost.bytes;
  info.flops = cost.flops;
  info.unit = cost.unit;
  info.shapes = shapes_of(step);
  add_members(step, &info);
  return info;
}

}  // namespace

LaunchSites::LaunchSites(std::span<const StepTurn> turns, const KernelOf& kernel_of) {
  for (const StepTurn& turn : turns) count(turn);
  add(kernel_of);
}

LaunchSites::LaunchSites(const std::vector<Launch>& launches, const KernelOf& kernel_of) {
  for (const Launch& launch : launches) count({launch.step, launch.instance});
  add(kernel_of);
}

void LaunchSites::count(const StepTurn& turn) {
  std::int64_t& turns = steps_[turn.step].turns;
  turns = std::max(turns, turn.instance + 1);
}

void LaunchSites::add(const KernelOf& kernel_of) {
  for (auto& [step, sites] : steps_) {
    profile::SiteInfo info = info_of(*step);
    const StepKernel kernel = kernel_of(*step);
    info.kernel = kernel.name;
    for (const auto& [kind, of_kind] :
         {std::pair{profile::SpanKind::op, &sites.op}, std::pair{profile::SpanKind::compute, &sites.compute},
          std::pair{profile::SpanKind::kernel, &sites.kernel}}) {
      info.kind = kind;
      if (kind == profile::SpanKind::kernel) info.launch = kernel.launch;
      *of_kind = profile::Recorder::add_held_sites(info, sites.turns);
    }
  }
}

StepSites LaunchSites::of(const StepTurn& turn) const {
  const PerTurn& sites = steps_.at(turn.step);
  return {sites.op.at(turn.instance), sites.compute.at(turn.instance), sites.kernel.at(turn.instance)};
}

StepSites LaunchSites::of(const Launch& launch) const { return of(StepTurn{launch.step, launch.instance}); }

StepSites sites_of_batch(const std::vector<const Step*>& groups, const StepKernel& kernel) {
  profile::SiteInfo info;
  info.kernel = kernel.name;
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
    const StepCost cost = cost_of(*group);
    info.bytes += cost.bytes;
    info.flops += cost.flops;
    info.unit = cost.unit;
    add_members(*group, &info);
    if (group->label.members.empty()) info.members.push_back({group->label.op, cost.bytes});
  }
  StepSites sites{};
  sites.op = profile::Recorder::add_held_sites(info, 1).first;
  info.kind = profile::SpanKind::compute;
  sites.compute = profile::Recorder::add_held_sites(info, 1).first;
  info.kind = profile::SpanKind::kernel;
  info.launch = kernel.launch;
  sites.kernel = profile::Recorder::add_held_sites(info, 1).first;
  return sites;
}

}  // namespace paoding
