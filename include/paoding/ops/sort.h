// SPDX-License-Identifier: Apache-2.0
// Orders, running sums and products along an axis. There is no `nonzero` or `unique`: the shape of a result never
// depends on values here; use select, topk or a mask.
#pragma once

#include <utility>

#include "paoding/graph.h"

namespace paoding {

struct Sorted {
  Value values;   // a's dtype
  Value indices;  // i64: where each came from along the axis
};

/// a in order along `axis`, and where each element came from. Stable: equal elements keep their order. A NaN counts as
/// greater than every number, as in PyTorch: last when ascending, first when descending; -0 equals 0. Any dtype.
/// The gradient of `values` goes back to where they came from. Error (shape) when a has no such axis.
Sorted sort(const Value& a, int axis = -1, bool descending = false);
/// The indices alone.
Value argsort(const Value& a, int axis = -1, bool descending = false);
/// The k greatest elements along `axis` in descending order, or the k least in ascending order, with their indices; of
/// equal ones the first. NaN as in sort. Error (shape) unless 0 <= k <= extent.
Sorted topk(const Value& a, std::int64_t k, int axis = -1, bool largest = true);
/// Running sums: result[i] = a[0] + .. + a[i] along `axis`; without a[i] when `exclusive`, from the end when `reverse`.
/// Floats are added in f64 and stored rounded, integers wrap. Not for bool. Gradient: the cumsum of the
/// gradient the other way round.
Value cumsum(const Value& a, int axis = 0, bool exclusive = false, bool reverse = false);
/// Running products: result[i] = a[0] .. a[i] along `axis`; exclusive and reverse as in cumsum, 1 where there is
/// nothing to multiply. Numbers, not bool; f16 and bf16 are multiplied in f32. Made of log2(extent) products of
/// neighbours (Hillis, Steele, "Data parallel algorithms", 1986), so that gradients, of any order, are right where an
/// element is 0. Error (shape) when a has no such axis, (dtype) for bool.
Value cumprod(const Value& a, int axis = 0, bool exclusive = false, bool reverse = false);

}  // namespace paoding
