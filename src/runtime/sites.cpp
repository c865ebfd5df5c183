// SPDX-License-Identifier: Apache-2.0
#include "runtime/sites.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/step_work.h"

namespace paoding {

namespace {

// Every member walks over the group's space; what it reads and writes there is its share of the time.
void add_members(const Step& step, profile::SiteInfo* info) {
  const std::int64_t bytes = std::max<std::int64_t>(step.group.points(), 1) * 4;
  for (const std::string& member : step.label.members) info->members.push_back({member, bytes});
}

profile::SiteInfo info_of(const Step& step) {
  profile::SiteInfo info;
  info.name = step.label.op;
  info.op = step.label.op;
  info.scope = step.label.scope;
  info.instance = step.position >= 0 ? fmt::format("{}{}", step.label.op, step.position) : "";
  info.kind = profile::SpanKind::op;
  info.bytes = bytes_of(step);
  info.flops = flops_of(step);
  add_members(step, &info);
  return info;
}

}  // namespace

LaunchSites::LaunchSites(const std::vector<Launch>& launches) {
  for (const Launch& launch : launches) {
    std::int64_t& turns = steps_[launch.step].turns;
    turns = std::max(turns, launch.instance + 1);
  }
  for (auto& [step, sites] : steps_) {
    profile::SiteInfo info = info_of(*step);
    for (const auto& [kind, of_kind] :
         {std::pair{profile::SpanKind::op, &sites.op}, std::pair{profile::SpanKind::compute, &sites.compute},
          std::pair{profile::SpanKind::kernel, &sites.kernel}}) {
      info.kind = kind;
      *of_kind = profile::Recorder::add_sites(info, sites.turns);
    }
  }
}

StepSites LaunchSites::of(const Launch& launch) const {
  const PerTurn& sites = steps_.at(launch.step);
  return {sites.op.at(launch.instance), sites.compute.at(launch.instance), sites.kernel.at(launch.instance)};
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
  StepSites sites{};
  sites.op = profile::Recorder::add_site(info);
  info.kind = profile::SpanKind::compute;
  sites.compute = profile::Recorder::add_site(info);
  info.kind = profile::SpanKind::kernel;
  sites.kernel = profile::Recorder::add_site(info);
  return sites;
}

}  // namespace paoding
