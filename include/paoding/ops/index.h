// SPDX-License-Identifier: Apache-2.0
// Ops that find elements by indices computed at run time. Indices are i32 or i64 and count from 0; negative ones do not
// count from the end. Their values are known only when the program runs: when one is out of range Error (argument)
// names the op, the position, the number and the range, for gathers and for scatters alike; that run has no results and
// has written no parameter, and the next run() starts afresh. On the CPU run() throws it, on a GPU the wait() or
// fetch() after the run, with the same text: the first such step of the run, the first such index of the step.
#pragma once

#include "paoding/graph.h"

namespace paoding {

/// a's elements at `indices` along `axis`: result[p.., i.., q..] = a[p.., indices[i..], q..], of shape
/// a.shape[:axis] + indices.shape + a.shape[axis + 1:] (NumPy's take). Any dtype. Gradient: scatter_add.
/// Error (dtype) when indices are no i32 or i64; Error (shape) when a has no such axis.
Value gather(const Value& a, const Value& indices, int axis = 0);
/// Rows of `table` [V, H..] by number: gather along axis 0. The row `padding` gets no gradient, so that training leaves
/// it as it is; none when -1. Gradient: scatter_add. Errors: as gather; (argument) unless padding is -1 or a row.
Value embedding(const Value& table, const Value& ids, std::int64_t padding = -1);
/// One element per index: result[p, i, q] = a[p, indices[p, i, q], q], the middle one being `axis` (NumPy's
/// take_along_axis, PyTorch's gather). indices have a's rank and extents except along `axis`.
Value gather_elements(const Value& a, const Value& indices, int axis = 0);
Value take_along_axis(const Value& a, const Value& indices, int axis = 0);

/// The sum of updates[p.., i.., q..] at [p.., indices[i..], q..] of a result that has `extent` elements along `axis`
/// and 0 where no index points. Updates of one element are added in the order of the indices, for any number of
/// threads and on a GPU (no atomics); f16 and bf16 are added in f32. Numbers of any dtype. The gradient of gather.
/// Gradient: gather. Error (shape) unless updates.shape[axis:] begins with indices.shape.
Value scatter_add(const Value& indices, const Value& updates, int axis, std::int64_t extent);
/// into + that: a's shape with the axis replaced by those of indices is the updates'.
Value scatter_add(const Value& into, const Value& indices, const Value& updates, int axis = 0);
/// The same, one element per index: the gradient of gather_elements. indices and updates have one shape.
Value scatter_add_elements(const Value& indices, const Value& updates, int axis, std::int64_t extent);

}  // namespace paoding
