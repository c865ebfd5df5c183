// SPDX-License-Identifier: Apache-2.0
// Layers over time one above the other, which may share a launch (KernelCall::stacked).
#pragma once

#include <map>
#include <vector>

#include "paoding/graph.h"

namespace paoding {

struct StackPlace {
  int stack = -1;           // its number
  std::int64_t layers = 1;  // of the stack
};

/// Moves layers, and the products between two of them, together; of each, which stack it is of. Kernels have claimed
/// the layers as a whole, they are alike, of the same lengths of rows, and nothing else reads the product of the one's
/// states that is the other's input.
std::map<NodeId, StackPlace> bring_stacks_together(const Graph& graph, std::vector<NodeId>* order);

}  // namespace paoding
