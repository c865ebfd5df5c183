// SPDX-License-Identifier: Apache-2.0
// Facts that a formula shows when it is traced, so that no op has to declare them: which primitive it is, where it is 0
// with its inputs, the limits that it keeps its input between.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "paoding/op.h"

namespace paoding {

/// The primitive that the op's formula is for inputs of every dtype that it takes. None for formulas with attributes,
/// and for those that throw.
PrimitiveForm primitive_form_of(const OpDef& op);

/// Whether the node is this primitive of inputs and numbers.
inline bool computes(const Node& node, Prim prim) { return node.op->primitive.prim == prim; }
/// Argument k of the primitive that the node is; invalid where the formula has a number there.
Ref argument(const Node& node, std::size_t k);
/// The number that every element of argument k is: the formula's, or that of a value of which all elements are equal.
std::optional<double> number_at(const Graph& graph, const Node& node, std::size_t k);

/// Whether the formula of the node gives 0 wherever the inputs that `is_zero` accepts are 0, whatever its other inputs
/// are: it converts one of them, scales it by a number, or chooses among them and 0.
bool is_zero_with_inputs(const Graph& graph, const Node& node, const std::function<bool(std::size_t)>& is_zero);

/// The least and the greatest value that the node's formula lets through of its only input, where it does nothing else.
std::optional<std::pair<double, double>> limits_of(const Graph& graph, const Node& node);

}  // namespace paoding
