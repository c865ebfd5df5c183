// SPDX-License-Identifier: Apache-2.0
// Slices whose place is known when the program runs. A start that would leave the value is moved to where the slice
// just fits, as XLA has it: start is clamped to 0 .. extent - size, so a run cannot fail by it.
#pragma once

#include <cstdint>
#include <span>

#include "paoding/graph.h"

namespace paoding {

/// sizes[i] elements of a along every axis i from start[i] on: a [..] and start, integers [rank of a], give `sizes`.
/// Any dtype. Gradient: dynamic_update_slice of zeros. Error (dtype) when start holds no i32 or i64, (shape) when there
/// are more or fewer numbers than axes, or a size is negative or larger than its axis.
Value dynamic_slice(const Value& a, const Value& start, std::span<const std::int64_t> sizes);
/// The same along one axis: start is a single integer, [] or [1].
Value dynamic_slice(const Value& a, int axis, const Value& start, std::int64_t size);

/// a with `update` in the place of dynamic_slice(a, start, the shape of update). Along an axis where the update has one
/// element, this is a comparison with the position, fused with the reader of the result. Gradients: the slice for
/// `update`, the rest for a. Error (dtype) when update is of another dtype; the others as of dynamic_slice.
Value dynamic_update_slice(const Value& a, const Value& update, const Value& start);
/// The same along one axis: update has a's extents elsewhere.
Value dynamic_update_slice(const Value& a, const Value& update, int axis, const Value& start);

}  // namespace paoding
