// SPDX-License-Identifier: Apache-2.0
// From nodes to a Group, given where the operands lie.
#pragma once

#include <span>

#include "base/layout.h"
#include "group/group.h"
#include "paoding/graph.h"

namespace paoding {

/// Whether a node of this op can be lowered: formula ops, reductions, expand, full, iota, group.
bool is_groupable(const Node& node);

/// Whether the node's value follows from its attributes alone (full, iota): a group that reads it needs no memory.
bool is_generated(const Node& node);

/// How a reduction combines its elements.
Combine combine_of(const Node& reduction);

/// A Group and which input of the node each of its loads reads.
struct LoweredGroup {
  Group group;
  std::vector<std::size_t> load_inputs;
};

/// The Group that computes `node`; its outputs are the node's outputs. An input that is generated is no load,
/// one that is read twice one load. Intermediate f16 and bf16 values keep f32 precision; only stores and casts round.
LoweredGroup lower(const Graph& graph, const Node& node, std::span<const Layout> inputs,
                   std::span<const Layout> outputs);

/// The Group that copies a value from one layout to another of the same type.
Group lower_copy(const Layout& from, const Layout& to);

/// The Group that fills a value with one constant.
Group lower_fill(double number, const Layout& to);

/// The Group that writes the value of a generated node.
Group lower_generated(const Node& node, const Layout& to);

}  // namespace paoding
