// SPDX-License-Identifier: Apache-2.0
// The attribute `reduction` of a collective.
#pragma once

#include "paoding/communicator.h"
#include "paoding/graph.h"

namespace paoding {

/// Whether the attributes have a reduction that is a mean, which no communicator makes.
bool asks_for_mean(const Attrs& attrs);
/// The same with a sum in the mean's place.
Attrs with_sum(Attrs attrs);
/// The reduction of a collective that has been lowered.
Reduction reduction_of(const Attrs& attrs);

}  // namespace paoding
