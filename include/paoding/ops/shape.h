// SPDX-License-Identifier: Apache-2.0
// Constants, and ops that only say where elements are.
#pragma once

#include <span>

#include "paoding/graph.h"

namespace paoding {

/// `shape` filled with `value`.
Value full(Graph& graph, const Shape& shape, double value, DType dtype = DType::f32);
/// The index along `axis` (negative counts from the end) at every element of `shape`; i64 or i32. Where a kernel of
/// elementwise ops and reductions reads it, it takes no memory. Error (dtype) for other dtypes; (argument) when the
/// dtype cannot hold it.
Value iota(Graph& graph, const Shape& shape, int axis, DType dtype = DType::i64);
/// start, start + step, .. up to but without `end`; empty when there is none. i64 and i32 as iota; any other dtype is
/// a cast of the i64. Error (argument) when step is 0.
Value arange(Graph& graph, std::int64_t start, std::int64_t end, std::int64_t step = 1, DType dtype = DType::i64);
/// Same elements in the same order under another shape. One extent may be -1: it is computed.
/// Error (shape) when the element counts differ.
Value reshape(const Value& a, std::span<const std::int64_t> shape);
Value reshape(const Value& a, const Shape& shape);
/// a stretched to `shape`, to which it must broadcast.
Value expand(const Value& a, const Shape& shape);
/// Elements start <= index < end along every axis; result extents are end - start.
/// Error (shape) unless 0 <= start <= end <= extent.
Value slice(const Value& a, std::span<const std::int64_t> start, std::span<const std::int64_t> end);
/// The same along one axis only.
Value slice(const Value& a, int axis, std::int64_t start, std::int64_t end);
/// Zeros around a: `before` and `after` many along every axis.
Value pad(const Value& a, std::span<const std::int64_t> before, std::span<const std::int64_t> after);
/// The inputs one after the other along `axis` (negative counts from the end). All other extents equal.
Value concat(std::span<const Value> inputs, int axis);

}  // namespace paoding
