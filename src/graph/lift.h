// SPDX-License-Identifier: Apache-2.0
// Applying a node of a loop body to all time steps at once, outside the loop.
#pragma once

#include <optional>

#include "paoding/op.h"

namespace paoding {

/// A value outside the loop that stands for one inside it: with time as a new outermost axis, or the same every step.
struct Lifted {
  Value value;
  bool has_time = false;
};

/// The outputs of `node` over all steps. nullopt when its op has no rule for that, with the reason in `why_not`.
std::optional<std::vector<Lifted>> lift_node(Graph& graph, const Node& node, const std::vector<Lifted>& inputs,
                                             std::int64_t length, std::string* why_not);

}  // namespace paoding
