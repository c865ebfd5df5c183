// SPDX-License-Identifier: Apache-2.0
// How the steps of a plan appear in recordings.
#pragma once

#include "plan/plan.h"
#include "profile/recorder.h"

namespace paoding {

struct StepSites {
  profile::SiteId op;       // the step as a whole
  profile::SiteId compute;  // its kernel as the host sees it
  profile::SiteId kernel;   // its kernel on a GPU's track
};

/// Registers a step, once per program. `instance`: the turn of the loop around it.
StepSites sites_of(const Step& step, std::int64_t instance);

/// Registers groups that run together: one step whose members are all of theirs.
StepSites sites_of_batch(const std::vector<const Step*>& groups);

/// The least bytes a step moves: what it reads and writes, each element once.
std::int64_t bytes_of(const Step& step);

}  // namespace paoding
