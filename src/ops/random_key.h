// SPDX-License-Identifier: Apache-2.0
// Where the random numbers of an op come from, for ops of other files that draw some on their own.
#pragma once

#include "paoding/graph.h"

namespace paoding {

/// Numbers of a stream: index, run and seed are i64.
struct RandomKey {
  Value index, run, seed;
  std::int64_t stream;
};

/// The key of the graph's next random op, which draws `elements` numbers in a run, or in a step of a loop. `index` is
/// that of the first, i64[]; that of another is so much more.
RandomKey random_key_of_first(Graph& graph, std::int64_t elements);

}  // namespace paoding
