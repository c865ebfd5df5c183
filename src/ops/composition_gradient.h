// SPDX-License-Identifier: Apache-2.0
// The gradient of a composed op that has a rule of its own, by its composition instead: where the rule is not made for
// the call, and for the gradients of gradient ops.
#pragma once

#include <functional>

#include "paoding/op.h"

namespace paoding {

/// A gradient rule: the gradient of the node's composition. The composition is computed for it again, so the node's
/// own results need not be kept.
Values composition_gradient(const GradCall& call);
/// The same for the results of `compose` from values that stand for the node's inputs.
Values gradient_through(const GradCall& call, const std::function<Values(Graph& graph, const Values& inputs)>& compose);

}  // namespace paoding
