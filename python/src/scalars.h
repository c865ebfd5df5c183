// SPDX-License-Identifier: Apache-2.0
// Formulas that Python writes.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "handles.h"
#include "paoding/scalar.h"

namespace paoding::python {

/// Whether one of them is a Scalar: the call belongs to a formula that is being traced.
bool has_scalar(nb::handle inputs);

/// The formula op `op` of Scalars and numbers, at least one of them a Scalar. Error (argument) when there is no such
/// op, it is no formula, or something given is neither.
Scalar call_on_scalars(const std::string& op, nb::handle inputs, const Attrs& attrs);

void bind_scalars(nb::module_& module);
/// Ops that a program registers: pd.op, pd.custom_gradient, pd.cuda_op.
void bind_own_ops(nb::module_& module);

}  // namespace paoding::python
