// SPDX-License-Identifier: Apache-2.0
// The expected time of a CTA group's step: rates and waits fitted to measurements on an H200.
#pragma once

#include "ops/recurrence/gpu/cta_group.h"

namespace paoding {

/// Whether, within a cluster, copies bring a CTA's data to all others sooner than stores do.
bool are_copies_faster(const LayerExtents& layer, const CtaGroup& cta_group);
/// A step whose weights all stay.
double step_us(const LayerExtents& layer, const CtaGroup& cta_group);
/// The same where weights come out of memory: those asked for ahead come during the exchange.
double streamed_step_us(const LayerExtents& layer, const CtaGroup& cta_group, const Target& target);
/// The chunks of weights in memory that L2 is told to keep from step to step; none where it does so untold, or where
/// kernels can't say which.
std::int64_t l2_resident_chunks(const LayerExtents& layer, const CtaGroup& cta_group, const Target& target);
/// All layers of a pipeline, each in a launch of its own, or in one launch.
double separate_us(const LayerExtents& layer, const CtaGroup& cta_group);
double pipelined_us(const LayerExtents& layer, const CtaGroup& cta_group);

}  // namespace paoding
