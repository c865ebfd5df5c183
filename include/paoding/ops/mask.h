// SPDX-License-Identifier: Apache-2.0
// Values that say where something is, made of positions: they are formulas, so they take no memory where a kernel of
// elementwise ops reads them.
#pragma once

#include "paoding/graph.h"

namespace paoding {

struct OneHotOptions {
  int axis = -1;  // where the new axis stands in the result; negative counts from its end
  DType dtype = DType::f32;
  double on = 1, off = 0;
};

/// `on` where the position along a new axis of extent `depth` is the id, `off` elsewhere: ids [..] give [.., depth].
/// An id outside 0 .. depth - 1 gives `off` everywhere. ids are integers of any dtype. Error (dtype) when they are not,
/// (shape) when depth is negative or there is no such axis, (argument) when the dtype cannot hold on or off.
Value one_hot(const Value& ids, std::int64_t depth, const OneHotOptions& options = {});
/// Which positions a row of that length has: lengths [..] (integers; [B] as a rule) give a bool [.., max_length], true
/// at t where t < length. A length of 0 or less gives no position, one beyond max_length all. Error (dtype) when
/// lengths are no integers, (shape) when max_length is negative.
Value sequence_mask(const Value& lengths, std::int64_t max_length);
/// Which keys a query sees that must not look ahead: a bool [queries, keys], true where key <= query + offset. `offset`
/// is how many keys there are before the first query's own: kept from earlier steps, or keys - queries where the last
/// ones belong together. Error (shape) when an extent is negative.
Value causal_mask(Graph& graph, std::int64_t queries, std::int64_t keys, std::int64_t offset = 0);

}  // namespace paoding
