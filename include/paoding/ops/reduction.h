// SPDX-License-Identifier: Apache-2.0
// Reductions over axes.
#pragma once

#include <span>

#include "paoding/graph.h"

namespace paoding {

// `axes`: negative counts from the end; empty means all. With `keepdims` they stay as extent 1. Error (shape) when an
// axis is out of range or named twice.

/// Sum. Numbers. Of nothing: 0.
Value sum(const Value& a, std::span<const std::int64_t> axes = {}, bool keepdims = false);
/// The largest element, NaN if any is. Any dtype; of bools: whether any is true. Of nothing: -inf, the least integer,
/// false. Elements that share the maximum share its gradient equally (as PyTorch's amax).
Value max(const Value& a, std::span<const std::int64_t> axes = {}, bool keepdims = false);
/// The smallest element, NaN if any is. Any dtype; of bools: whether all are true. Of nothing: inf, the greatest
/// integer, true. Elements that share the minimum share its gradient equally (as PyTorch's amin).
Value min(const Value& a, std::span<const std::int64_t> axes = {}, bool keepdims = false);
/// Product. Numeric dtypes. Of no elements: 1. The gradient is right whatever number of elements is 0; it costs two
/// reductions, and divides the product of the other elements by each element, so it overflows where that product does.
/// Its own derivative is right only where no element is 0.
Value prod(const Value& a, std::span<const std::int64_t> axes = {}, bool keepdims = false);
/// Sum / count; f16 and bf16 are summed in f32. Floats. Of nothing: NaN.
Value mean(const Value& a, std::span<const std::int64_t> axes = {}, bool keepdims = false);
/// sum((a - mean(a))^2) / (count - correction), in two passes over a; f16 and bf16 in f32. correction = 0 gives the
/// population's variance, 1 the unbiased estimate. Floats. Where count <= correction the divisor is 0.
Value var(const Value& a, std::span<const std::int64_t> axes = {}, bool keepdims = false, std::int64_t correction = 0);
/// log(sum(e^a)), without overflow: the maximum is taken out first; f16 and bf16 in f32. Floats. Of nothing: -inf. The
/// gradient is softmax(a).
Value logsumexp(const Value& a, std::span<const std::int64_t> axes = {}, bool keepdims = false);
/// Whether any element is true, or not 0 (NaN is not). Any dtype; a bool. Of nothing: false.
Value any(const Value& a, std::span<const std::int64_t> axes = {}, bool keepdims = false);
/// Whether all elements are true, or not 0. Any dtype; a bool. Of nothing: true.
Value all(const Value& a, std::span<const std::int64_t> axes = {}, bool keepdims = false);
/// Index along `axis` of the largest element: the first of several, the first NaN if there is one. Any dtype; an i64.
/// Error (shape) when the axis has extent 0.
Value argmax(const Value& a, int axis, bool keepdims = false);
/// Index along `axis` of the smallest element; ties, NaN and errors as argmax.
Value argmin(const Value& a, int axis, bool keepdims = false);

}  // namespace paoding
