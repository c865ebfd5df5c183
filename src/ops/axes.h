// SPDX-License-Identifier: Apache-2.0
// Axes and extents as attributes have them: negative axes made plain, shapes as lists.
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

/// The extents, as attributes hold them; and back.
std::vector<std::int64_t> to_ints(const Shape& shape);
Shape to_shape(const std::vector<std::int64_t>& dims);
/// `first` and then `ints`: the same numbers with one more axis in front.
std::vector<std::int64_t> with_front(const std::vector<std::int64_t>& ints, std::int64_t first);

}  // namespace paoding
