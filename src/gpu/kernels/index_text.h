// SPDX-License-Identifier: Apache-2.0
// Kernels that find rows or elements by index: gather and scatter_add. Values are seen as [outer, middle, inner], the
// middle being the axis that indices count along; inner elements are contiguous. An index out of range reads 0 and adds
// nothing, and the lowest place of one is left in the fault words: the place and the low half of the index in the
// first, the place and the high half in the second. Argument lists are those of text_kernel.h.
#pragma once

#include "gpu/codegen/text_launch.h"
#include "paoding/types.h"

namespace paoding::gpu {

/// Extents of the call and element strides of its two strided operands.
struct IndexShape {
  DType dtype = DType::f32;        // of the values
  DType index_dtype = DType::i64;  // i32 or i64
  std::int64_t outer = 1, inner = 1;
  std::int64_t range = 1;     // of numbers
  std::int64_t padding = -1;  // of plan_scatter_rows: a row that stays 0
  std::int64_t count = 1;     // indices: of all in *_rows; of each outer and inner place in *_elements
  std::int64_t from_outer = 0, from_middle = 0;           // strides of the input that is read: a or updates
  std::int64_t to_outer = 0, to_middle = 0;               // strides of the result
  std::int64_t from_alignment = 256, to_alignment = 256;  // bytes
  std::int64_t sm_count = 132;                            // of the target GPU
};

/// out[o, n, i] = a[o, ids[n], i]. Operands: a, ids, out.
TextLaunch plan_gather_rows(const IndexShape& shape);
/// out[o, n, i] = a[o, ids[o, n, i], i]. Operands: a, ids, out.
TextLaunch plan_gather_elements(const IndexShape& shape);
/// out[o, r, i] = sum of updates[o, n, i] over n with ids[n] == r != padding, added in their order. Operands: ids,
/// updates, out.
TextLaunch plan_scatter_rows(const IndexShape& shape);
/// The same where the ids are there sorted too, with the place n of each. Operands: ids, sorted, places, updates, out.
/// One launch finds where rows begin in the sorted list, the other adds up.
std::vector<TextLaunch> plan_scatter_sorted(const IndexShape& shape);
/// out[o, r, i] = sum of updates[o, n, i] over n with ids[o, n, i] == r, in order. Operands: ids, updates, out.
TextLaunch plan_scatter_elements(const IndexShape& shape);

/// out[n] = ids[n], each of which is to be from `least` to `most`. Operands: ids, out.
TextLaunch plan_check_bounds(DType dtype, std::int64_t count, std::int64_t least, std::int64_t most);

}  // namespace paoding::gpu
