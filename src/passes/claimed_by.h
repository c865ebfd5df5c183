// SPDX-License-Identifier: Apache-2.0
// Whether a composed op is run as a whole, and by which kernel.
#pragma once

#include "ops/decision.h"
#include "passes/pass.h"

namespace paoding {

/// The kernel that runs the node as a whole, where there is one; why others decline is noted. The decision is on the
/// node then (ops/decision.h).
const KernelImplementation* claimed_by(Graph& graph, NodeId id, PassNotes& notes);

}  // namespace paoding
