// SPDX-License-Identifier: Apache-2.0
// How the steps of a plan appear in recordings.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>

#include "plan/plan.h"
#include "profile/recorder.h"

namespace paoding {

struct StepSites {
  profile::SiteId op;       // the step as a whole
  profile::SiteId compute;  // its kernel as the host sees it
  profile::SiteId kernel;   // its kernel on a GPU's track
};

/// How a step ran: SiteInfo::kernel and, of its first kernel on a GPU, SiteInfo::launch.
struct StepKernel {
  std::string name = {};
  LaunchShape launch = {};
};
using KernelOf = std::function<StepKernel(const Step&)>;

/// A step in one of the turns of the loop around it.
struct StepTurn {
  const Step* step = nullptr;
  std::int64_t instance = 0;
};

/// The sites of a program's launches: every step is registered once, for all turns of the loop around it.
class LaunchSites {
 public:
  LaunchSites(std::span<const StepTurn> turns, const KernelOf& kernel_of);
  LaunchSites(const std::vector<Launch>& launches, const KernelOf& kernel_of);
  StepSites of(const StepTurn& turn) const;
  StepSites of(const Launch& launch) const;

 private:
  void count(const StepTurn& turn);
  void add(const KernelOf& kernel_of);

  struct PerTurn {
    std::int64_t turns = 0;
    profile::TurnSites op, compute, kernel;
  };
  std::unordered_map<const Step*, PerTurn> steps_;
};

/// Registers groups that run together, as this kernel: one step whose members are all of theirs.
StepSites sites_of_batch(const std::vector<const Step*>& groups, const StepKernel& kernel);

}  // namespace paoding
