// SPDX-License-Identifier: Apache-2.0
// The gradient of a composed op that has a rule of its own, by what it consists of instead: where the rule is not made
// for what is asked, and for the gradients of gradient ops.
#pragma once

#include "paoding/op.h"

namespace paoding {

/// A gradient rule: the gradient of the node's composition. The composition is computed for it again, so what the node
/// itself gives need not be kept.
Values composition_gradient(const GradCall& call);

}  // namespace paoding
