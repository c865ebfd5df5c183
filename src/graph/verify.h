// SPDX-License-Identifier: Apache-2.0
// Checks that a graph is legal. Runs after every pass.
#pragma once

#include <string_view>

#include "paoding/graph.h"

namespace paoding {

/// Throws InternalError, naming `when` and the offending node, unless: every node follows its inputs; arity, attributes
/// and types agree with its op; fetches and inputs exist; bodies are legal and closed.
void verify(const Graph& graph, std::string_view when);

}  // namespace paoding
