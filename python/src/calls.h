// SPDX-License-Identifier: Apache-2.0
// Ops called from Python: operands beside a Value may be numbers or arrays, attributes are converted as the op declares
// them.
#pragma once

#include "handles.h"
#include "paoding/tensor.h"

namespace paoding::python {

/// The value of an op's input: a Value, or a constant of a number (of `beside`'s dtype) or array.
Value input_of(nb::handle object, const Value& beside, Graph* graph, const std::string& name);

/// A tensor as part of the graph. Error (argument) where no element of `dtype` is one of its numbers.
Value constant_of(Graph& graph, const Tensor& tensor, DType dtype);

/// All results of an op. `graph` is for ops without inputs; the current one when null.
std::vector<ValueHandle> call_op(const std::string& op, nb::handle inputs, nb::handle attrs, const GraphHandle* graph);

/// Whether it may stand beside a Value in an operator; a foreign object is asked in turn (NotImplemented).
bool is_operand(nb::handle other);

void bind_calls(nb::module_& module);
void bind_graph(nb::module_& module);
void bind_value(nb::module_& module);
void bind_value_methods(nb::class_<ValueHandle>& type);

}  // namespace paoding::python
