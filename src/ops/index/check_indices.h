// SPDX-License-Identifier: Apache-2.0
// Indices of which a run that has an illegal one is an error: labels, lengths.
#pragma once

#include <string>

#include "paoding/graph.h"

namespace paoding {

/// The indices that check_indices() finds legal, and where it looks.
struct CheckIndicesOptions {
  bool may_be_negative = false;  // negative ones are legal too
  bool on_gpu = true;            // a GPU looks too, by a small launch of its own
  std::string what = "indices";  // the error's name for them, as "cross_entropy: labels"
};
/// `indices` as they are, i32 or i64. A run in which one is above `most`, or below 0 unless it may be, fails as that of
/// a gather with such an index does. Readers of the result come after the check. A PlacedGraph on a GPU, whose runs
/// nobody waits for, tells of none.
Value check_indices(const Value& indices, std::int64_t most, const CheckIndicesOptions& options = {});

}  // namespace paoding
