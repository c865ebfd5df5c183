// SPDX-License-Identifier: Apache-2.0
// Whether a composed op is run as a whole, and by which kernel.
#pragma once

#include "ops/kernel.h"
#include "passes/pass.h"

namespace paoding {

/// A call of the node whose operands are dense; nothing is said of where they begin.
KernelCall dense_call(const Graph& graph, const Node& node, bool allow_tf32, const TargetPtr& target);

/// The kernel that runs the node as a whole, where there is one; why others decline is noted. It is asked about dense
/// operands of any alignment: the planner copies operands that turn out to lie otherwise, if the kernel wants that.
const KernelImplementation* claimed_by(const Graph& graph, const Node& node, PassNotes& notes);

/// The kernel that is expected to run the node in the end: asked about images that lie as kernels of the op want them,
/// as the planner will try to have it, each at the start of a slot. Nothing is noted.
const KernelImplementation* expected_kernel(const Graph& graph, const Node& node, const PassNotes& notes);

}  // namespace paoding
