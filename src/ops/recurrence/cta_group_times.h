// SPDX-License-Identifier: Apache-2.0
// What a step of a CTA group is expected to take: rates and waits fitted to measurements on an H200.
#pragma once

#include "ops/recurrence/cta_group.h"

namespace paoding {

/// Of a cluster: whether copies get what a CTA gives to all others sooner than stores do.
bool are_copies_faster(const LayerExtents& layer, const CtaGroup& cta_group);
/// A step whose weights all stay.
double step_us(const LayerExtents& layer, const CtaGroup& cta_group);
/// The same where weights come out of memory: what is asked for ahead comes during the exchange.
double streamed_step_us(const LayerExtents& layer, const CtaGroup& cta_group, const Target& target);
/// Of the groups that come out of memory, those that L2 is told to keep from step to step; none where it does so
/// untold, or where kernels can't say which.
std::int64_t l2_resident_chunks(const LayerExtents& layer, const CtaGroup& cta_group, const Target& target);
/// All layers of a pipeline, each in a launch of its own, or in one launch.
double separate_us(const LayerExtents& layer, const CtaGroup& cta_group);
double pipelined_us(const LayerExtents& layer, const CtaGroup& cta_group);

}  // namespace paoding
