// SPDX-License-Identifier: Apache-2.0
// Constants, and ops that only say where elements are. Axes count from the end when negative. Views (reshape, expand,
// slice, transpose and ops written with them) cost nothing where their readers can address the elements in place.
#pragma once

#include <span>
#include <vector>

#include "paoding/graph.h"

namespace paoding {

// ---- constants ----

/// `shape` filled with `value`: an i64 has an integer exactly, whatever its size. Error (argument) when no element of
/// dtype is the number.
Value full(Graph& graph, const Shape& shape, Number value, DType dtype = DType::f32);
/// The index along `axis` (negative counts from the end) at every element of `shape`; i64 or i32. Where a kernel of
/// elementwise ops and reductions reads it, it takes no memory. Error (dtype) for other dtypes; (argument) when the
/// dtype cannot hold it.
Value iota(Graph& graph, const Shape& shape, int axis, DType dtype = DType::i64);
/// start, start + step, .. up to but without `end`; empty when there is none. i64 and i32 as iota; any other dtype is
/// a cast of the i64. Error (argument) when step is 0, or dtype cannot hold one of them.
Value arange(Graph& graph, std::int64_t start, std::int64_t end, std::int64_t step = 1, DType dtype = DType::i64);
Value zeros(Graph& graph, const Shape& shape, DType dtype = DType::f32);
Value ones(Graph& graph, const Shape& shape, DType dtype = DType::f32);
/// The shape and dtype of a, filled with `value`.
Value full_like(const Value& a, Number value);
/// A small tensor that is part of the graph: `values` in the order of the last axis, at most 65536 of them.
/// Error (argument) when their number is not the shape's, when dtype cannot hold one, or when there are too many: feed
/// larger ones as an input or keep them in a parameter.
Value constant(Graph& graph, const Shape& shape, std::span<const double> values, DType dtype = DType::f32);
/// The same for integers, which an i64 holds exactly.
Value constant(Graph& graph, const Shape& shape, std::span<const std::int64_t> values, DType dtype = DType::i64);
/// The extents of a, i64 [rank]. They are known when the graph is built, so this is a constant.
Value shape_of(const Value& a);

// ---- views ----

/// Same elements in the same order under another shape. One extent may be -1: it is computed.
/// Error (shape) when the element counts differ.
Value reshape(const Value& a, std::span<const std::int64_t> shape);
Value reshape(const Value& a, const Shape& shape);
/// The axes from `first` to `last`, both included, as one.
Value flatten(const Value& a, int first = 0, int last = -1);
/// Removes the axes named, whose extents must be 1; every such axis when none is named. Error (shape).
Value squeeze(const Value& a, std::span<const std::int64_t> axes = {});
/// Adds axes of extent 1, which stand at `axes` of the result.
Value unsqueeze(const Value& a, std::span<const std::int64_t> axes);
Value unsqueeze(const Value& a, int axis);
/// a stretched to `shape`, to which it must broadcast (NumPy's and PyTorch's broadcast_to).
Value expand(const Value& a, const Shape& shape);
Value broadcast_to(const Value& a, const Shape& shape);
/// a stretched to the shape of b.
Value expand_like(const Value& a, const Value& b);
/// The axes in another order: axis i of the result is axis permutation[i] of a. Error (shape) unless every axis is
/// named once.
Value transpose(const Value& a, std::span<const std::int64_t> permutation);
/// a with two axes exchanged.
Value swap_axes(const Value& a, int first, int second);
/// Elements start, start + step, .. before `end` along every axis. Without `step` every one is 1.
/// step > 0 needs 0 <= start <= end <= extent; step < 0 walks backwards and needs -1 <= end <= start < extent, where
/// end = -1 is before the first element. Error (shape) otherwise.
Value slice(const Value& a, std::span<const std::int64_t> start, std::span<const std::int64_t> end,
            std::span<const std::int64_t> step = {});
/// The same along one axis only.
Value slice(const Value& a, int axis, std::int64_t start, std::int64_t end, std::int64_t step = 1);
/// a without the first `before` and the last `after` elements of every axis.
Value crop(const Value& a, std::span<const std::int64_t> before, std::span<const std::int64_t> after);
/// a with the order of elements along `axes` reversed; along all of them when none is named.
Value flip(const Value& a, std::span<const std::int64_t> axes = {});
/// Parts of these extents along `axis`; they must add up to its extent. Error (shape).
Values split(const Value& a, std::span<const std::int64_t> sizes, int axis = 0);
/// `parts` parts of one extent along `axis`. Error (shape) when they do not divide it.
Values split(const Value& a, std::int64_t parts, int axis = 0);
/// Every element along `axis`, which the results do not have.
Values unstack(const Value& a, int axis = 0);

// ---- concatenations ----

/// a with `value` around it: `before` and `after` many along every axis, and `interior` many between two neighbours
/// (none when it is empty). Error (shape) when one is negative; Error (argument) when a's dtype cannot hold `value`.
Value pad(const Value& a, std::span<const std::int64_t> before, std::span<const std::int64_t> after, double value = 0,
          std::span<const std::int64_t> interior = {});
/// The inputs one after the other along `axis`. All other extents equal; one dtype.
Value concat(std::span<const Value> inputs, int axis);
/// The inputs, of one shape, along a new axis that stands at `axis` of the result.
Value stack(std::span<const Value> inputs, int axis = 0);
/// times[i] copies of a one after the other along axis i (NumPy's tile); missing leading entries, or axes, count as 1.
Value tile(const Value& a, std::span<const std::int64_t> times);
/// Every element along `axis` `times` times in a row (NumPy's repeat, PyTorch's repeat_interleave).
Value repeat(const Value& a, std::int64_t times, int axis);
/// Element i along `axis` moves to (i + shift) mod extent.
Value roll(const Value& a, std::int64_t shift, int axis);

}  // namespace paoding
