// SPDX-License-Identifier: Apache-2.0
// From nodes to a Group, given where the operands lie.
#pragma once

#include <span>

#include "base/layout.h"
#include "group/group.h"
#include "paoding/graph.h"

namespace paoding {

/// Whether a node of this op can be lowered: formula ops, sum, expand, full, group.
bool is_groupable(const Node& node);

/// A Group and which input of the node each of its loads reads.
struct LoweredGroup {
  Group group;
  std::vector<std::size_t> load_inputs;
};

/// The Group that computes `node`; its outputs are the node's outputs. An input that is a `full` becomes a constant,
/// one that is read twice one load. Intermediate f16 and bf16 values keep f32 precision; only stores and casts round.
LoweredGroup lower(const Graph& graph, const Node& node, std::span<const Layout> inputs,
                   std::span<const Layout> outputs);

/// The Group that copies a value from one layout to another of the same type.
Group lower_copy(const Layout& from, const Layout& to);

/// The Group that fills a value with one number.
Group lower_fill(double number, const Layout& to);

}  // namespace paoding
