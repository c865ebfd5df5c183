// SPDX-License-Identifier: Apache-2.0
// What a step of a team is expected to take: rates and waits fitted to measurements on an H200.
#pragma once

#include "ops/recurrence/team.h"

namespace paoding {

/// Of a cluster: whether copies get what a CTA gives to all others sooner than stores do.
bool are_copies_faster(const LayerExtents& layer, const Team& team);
/// A step whose weights all stay.
double step_us(const LayerExtents& layer, const Team& team);
/// The same where weights come out of memory: what is asked for ahead comes during the exchange.
double streamed_step_us(const LayerExtents& layer, const Team& team, const Target& target);
/// Of the groups that come out of memory, those that L2 is told to keep from step to step; none where it does so
/// untold, or where kernels can't say which.
std::int64_t near_groups(const LayerExtents& layer, const Team& team, const Target& target);
/// All layers of a pipeline, each in a launch of its own, or in one launch.
double apart_us(const LayerExtents& layer, const Team& team);
double pipelined_us(const LayerExtents& layer, const Team& team);

}  // namespace paoding
