// SPDX-License-Identifier: Apache-2.0
// The expected time of a CTA group's step: rates and waits fitted to measurements on an H200.
#pragma once

#include "ops/recurrence/gpu/cta_group.h"

namespace paoding {

/// Whether TMA copies bring a CTA's data to the rest of its cluster sooner than stores.
bool are_copies_faster(const LayerExtents& layer, const CtaGroup& cta_group);
/// A step whose weights are all in registers and shared memory.
double step_us(const LayerExtents& layer, const CtaGroup& cta_group);
/// The same with streamed weights: chunks that are loaded ahead arrive during the exchange.
double streamed_step_us(const LayerExtents& layer, const CtaGroup& cta_group, const Target& target);
/// How many streamed chunks get a cache hint to stay in L2 from step to step; none where L2 keeps them without hints,
/// or where kernels cannot give hints.
std::int64_t l2_resident_chunks(const LayerExtents& layer, const CtaGroup& cta_group, const Target& target);
/// All layers of a pipeline, each in a launch of its own, or in one launch.
double separate_us(const LayerExtents& layer, const CtaGroup& cta_group);
double pipelined_us(const LayerExtents& layer, const CtaGroup& cta_group);

}  // namespace paoding
