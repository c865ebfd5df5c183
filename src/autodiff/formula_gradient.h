// SPDX-License-Identifier: Apache-2.0
// The derivative of a formula op, read off its formula.
#pragma once

#include <vector>

#include "paoding/op.h"

namespace paoding {

/// Adjoints of inputs, and whether each is one of a choice: 0 where select, minimum or maximum took the other side. On
/// the way to the side's operands such a 0 stays 0, whatever it is multiplied with: the slope of a side that was not
/// taken may be infinite or NaN there.
struct FormulaGradient {
  Values adjoints;
  std::vector<bool> is_chosen;
};

/// Adjoints of the inputs of a formula node, as nodes of the same graph: the formula's Expr is walked in reverse with
/// each primitive's derivative, and the result is replayed as ops. The node's own output stands for the root, and
/// `is_chosen` says whether its adjoint is one of a choice. Expressions with more than one rounding are computed in f32
/// where values are of 16 bits.
FormulaGradient formula_gradient(const GradCall& call, bool is_chosen);

}  // namespace paoding
