// SPDX-License-Identifier: Apache-2.0
// Gradients: ordinary nodes added to the graph by a reverse walk.
#pragma once

#include <span>

#include "paoding/graph.h"

namespace paoding {

/// d(sum of outputs * seeds) / d(inputs), one value per input, of the input's type. An input that does not influence
/// the outputs gets zeros. Without `seeds` every output must be a scalar and is seeded with 1.
/// Error (argument) when seeds do not fit, (unsupported) when an op on the way has no gradient, (dtype) when an input
/// is not a float.
Values gradients(std::span<const Value> outputs, std::span<const Value> inputs, std::span<const Value> seeds = {});
Values gradients(const Value& output, std::initializer_list<Value> inputs);

}  // namespace paoding
