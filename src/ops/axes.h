// SPDX-License-Identifier: Apache-2.0
// Axes as attributes give them (negative counts from the end) made plain.
#pragma once

#include <vector>

#include "paoding/op.h"

namespace paoding {

/// 0 <= axis < rank. Error (shape) through `call` otherwise.
int plain_axis(const OpCall& call, std::int64_t axis, int rank);
/// Sorted, without duplicates; all axes when `axes` is empty. Error (shape) through `call` on one out of range or
/// twice.
std::vector<int> plain_axes(const OpCall& call, const std::vector<std::int64_t>& axes, int rank);
/// The same for a node that is known to be legal.
std::vector<int> plain_axes(const std::vector<std::int64_t>& axes, int rank);
/// The axis of a that `op`, which is being composed, was given. Error (shape) when a has no such axis.
int plain_axis(const Value& a, std::int64_t axis, std::string_view op);

}  // namespace paoding
