// SPDX-License-Identifier: Apache-2.0
// The derivative of a formula op, read off its formula.
#pragma once

#include "paoding/op.h"

namespace paoding {

/// Adjoints of the inputs of a formula node, as nodes of the same graph: the formula's Expr is walked in reverse with
/// each primitive's derivative, and what comes out is replayed as ops. The node's own output stands for the root.
Values formula_gradient(const GradCall& call);

}  // namespace paoding
